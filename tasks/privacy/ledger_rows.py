"""The ledger's rows: each function works inside a transaction that its caller has begun."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from configs.errors import BudgetError, ConfigurationError
from tasks.privacy import ledger_schema as db
from tasks.privacy.accounting import rdp_units
from tasks.privacy.budget import PrivacyFilter, added
from tasks.privacy.events import from_json, prefix
from tasks.privacy.ledger_state import ACTIVE, PopulationState, Reservation, read_population, reserved_units


def head(connection: sa.Connection) -> tuple[int, str]:
    """The last entry's number and hash."""
    query = sa.select(db.entry.c.seq, db.entry.c.hash).order_by(db.entry.c.seq.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return (row.seq, row.hash) if row is not None else (0, db.GENESIS)


def append(
    connection: sa.Connection, *, population: str, kind: str, said: Mapping[str, Any], actor: str, now: float
) -> int:
    """Add an entry to the chain; returns its number."""
    seq, prev_hash = head(connection)
    at = datetime.fromtimestamp(now, UTC).isoformat()
    payload = db.canonical(said)
    digest = db.entry_hash(
        prev_hash=prev_hash,
        seq=seq + 1,
        population=population,
        kind=kind,
        payload=payload,
        actor=actor,
        at=at,
    )
    connection.execute(
        db.entry.insert().values(
            seq=seq + 1,
            prev_hash=prev_hash,
            hash=digest,
            population=population,
            kind=kind,
            payload_json=payload,
            actor=actor,
            at=at,
        )
    )
    return seq + 1


def known_population(connection: sa.Connection, name: str) -> PopulationState:
    """The balance of a population that must exist.

    Raises:
        ConfigurationError: it does not; the message lists those that do.
    """
    state = read_population(connection, name)
    if state is None:
        names = connection.execute(sa.select(db.population.c.name).order_by(db.population.c.name)).scalars()
        raise ConfigurationError(f"population {name!r} is not in the ledger; it holds: {', '.join(names) or 'none'}")
    return state


def insert_population(connection: sa.Connection, name: str, said: Mapping[str, Any], rule: PrivacyFilter) -> None:
    """Write a new population with empty counters."""
    columns = ("unit", "epsilon", "delta", "planned_runs")
    connection.execute(db.population.insert().values(name=name, **{key: said[key] for key in columns}))
    connection.execute(
        db.population_order.insert(),
        [
            {
                "population": name,
                "position": position,
                "renyi_order": order,
                "weight": weight,
                "cap_units": cap,
                "committed_units": 0,
                "reserved_units": 0,
            }
            for position, (order, weight, cap) in enumerate(zip(rule.orders, rule.weights, rule.caps, strict=True))
        ],
    )


def insert_reservation(
    connection: sa.Connection,
    *,
    population: str,
    made: Reservation,
    said: Mapping[str, Any],
    charge: Sequence[int],
    now: float,
) -> None:
    """Write a new reservation and set its worst case aside."""
    connection.execute(
        db.reservation.insert().values(
            id=made.id,
            population=population,
            idempotency_key=said["idempotency_key"],
            token=made.token,
            state="reserved",
            lease_seconds=said["lease_seconds"],
            lease_until=now + said["lease_seconds"],
            total_claims=made.total,
            claimed=0,
            units_json=db.canonical(list(charge)),
            payload_json=db.canonical(said["mechanisms"]),
        )
    )
    _recount(connection, known_population(connection, population), charged=None)


def reserved_before(
    connection: sa.Connection, *, key: str, population: str, mechanisms: list[dict[str, Any]]
) -> Reservation | None:
    """The reservation that this idempotency key made already, or None.

    Raises:
        BudgetError: the key was used for another run, or its attempt is closed.
    """
    row = connection.execute(sa.select(db.reservation).where(db.reservation.c.idempotency_key == key)).one_or_none()
    if row is None:
        return None
    if (row.population, row.payload_json) != (population, db.canonical(mechanisms)):
        raise BudgetError(f"idempotency key {key!r} was used for another run: every attempt needs its own")
    if row.state not in ACTIVE:
        raise BudgetError(f"the attempt of idempotency key {key!r} is {row.state}: a new one needs a new key")
    return Reservation(id=row.id, token=row.token, total=row.total_claims)


def reservation_row(connection: sa.Connection, reservation_id: str) -> Any:
    """Read one reservation.

    Raises:
        BudgetError: there is none of this id.
    """
    query = sa.select(db.reservation).where(db.reservation.c.id == reservation_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise BudgetError(f"reservation {reservation_id!r} is not in the ledger")
    return row


def active_row(connection: sa.Connection, reservation_id: str, token: int) -> Any:
    """Read a reservation that is open and held by this token.

    Raises:
        BudgetError: it is unknown, closed, or fenced.
    """
    row = reservation_row(connection, reservation_id)
    if row.token != token:
        raise BudgetError(
            f"reservation {reservation_id}: the token is stale, because the lease ran out and another "
            "process settled it; stop, and start a new attempt"
        )
    if row.state not in ACTIVE:
        raise BudgetError(f"reservation {reservation_id} is {row.state} already")
    return row


def update_reservation(connection: sa.Connection, reservation_id: str, **changes: Any) -> None:
    """Change columns of one reservation."""
    connection.execute(db.reservation.update().where(db.reservation.c.id == reservation_id).values(**changes))


def settle(connection: sa.Connection, row: Any, *, claims: int, state: str, **changes: Any) -> None:
    """Close a reservation and move what it claimed from reserved to committed."""
    balance = known_population(connection, row.population)
    ran = prefix(from_json(json.loads(row.payload_json)), claims)
    update_reservation(connection, row.id, state=state, **changes)
    _recount(connection, balance, charged=rdp_units(ran, balance.orders) if ran else None)


def settle_expired(connection: sa.Connection, *, population: str, actor: str, now: float) -> None:
    """Fence whoever let a lease run out; charge what was claimed, release what was not."""
    rows = connection.execute(
        sa.select(db.reservation).where(
            db.reservation.c.population == population,
            db.reservation.c.state.in_(ACTIVE),
            db.reservation.c.lease_until <= now,
        )
    ).all()
    for row in rows:
        state, token = ("charged" if row.claimed else "released"), row.token + 1
        said = {"reservation": row.id, "state": state, "claims": row.claimed, "token": token}
        append(connection, population=population, kind="lease_expired", said=said, actor=actor, now=now)
        settle(connection, row, claims=row.claimed, state=state, token=token)


def _recount(connection: sa.Connection, balance: PopulationState, *, charged: Sequence[int] | None) -> None:
    """Write the counters anew after a reservation was made or closed."""
    committed = added(balance.committed, charged) if charged is not None else balance.committed
    reserved = reserved_units(connection, balance.name, len(balance.orders))
    table = db.population_order
    for position, (spent, promised) in enumerate(zip(committed, reserved, strict=True)):
        connection.execute(
            table.update()
            .where(table.c.population == balance.name, table.c.position == position)
            .values(committed_units=spent, reserved_units=promised)
        )
