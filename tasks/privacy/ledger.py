"""The durable record of what was spent on each population: reserve, claim, run, commit.

    reserve   worst case, before anything runs, in one transaction: it fits, or nothing happens
    claim     before the steps that it covers are computed, durable when it returns
    commit    the run ended; it is charged for what it claimed
    abandon   it failed; charged for what it claimed, or released when it claimed nothing

A crash is charged for its claims: whatever was computed may have been seen. A lease that runs out refunds
nothing that was claimed; it fences the process that held it. Nothing is ever deleted and there is no reset.
Payloads hold parameters, counts and digests, never a value of a record or a person's identifier.
"""

import json
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import sqlalchemy as sa

from configs.errors import BudgetError, ConfigurationError, NotPrivateError
from tasks.privacy import ledger_rows as rows
from tasks.privacy import ledger_schema as db
from tasks.privacy.accounting import rdp_units
from tasks.privacy.budget import PrivacyFilter
from tasks.privacy.events import Mechanism, to_json, total_claims
from tasks.privacy.keys import checked_population
from tasks.privacy.ledger_replay import Verification, replay
from tasks.privacy.ledger_state import PopulationState, Reservation, read_population
from tasks.privacy.refusal import refusal

UNITS_OF_PRIVACY: Final = ("person", "row")
RECORDED_KINDS: Final = ("gate_decision", "model_registered", "alias_moved")
LEASE_SECONDS: Final = 3600.0
_PAYLOAD_LIMIT: Final = 4_194_304  # characters; evidence and card of 250 groups with long Greek names are 3 million
_TEXT_LIMIT: Final = 200


class Ledger:
    """One ledger file. Safe to use from many processes at once, each with a `Ledger` of its own."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock

    @classmethod
    def open(cls, path: Path | str, *, clock: Callable[[], float] = time.time) -> "Ledger":
        """Open the ledger, or create an empty one (file 0600, folder 0700).

        Args:
            path: `$DISCREET_HOME/ledger.db`.
            clock: seconds since the epoch; tests pass their own to let a lease run out.

        Raises:
            ConfigurationError: not writable, damaged, no ledger, or of another version.
            BudgetError: another process holds it for too long.
        """
        return cls(db.open_engine(Path(path)), clock)

    @contextmanager
    def _writing(self) -> Generator[sa.Connection]:
        """A transaction that ends with the anchor naming its last entry; claims do without, for speed."""
        with db.writing(self._engine) as connection:
            yield connection
        db.drop_anchor(self._engine, self.head())

    def ensure_sound(self) -> None:
        """Replay the ledger, and refuse to go on from one that does not say what its entries say.

        Raises:
            BudgetError: it was changed behind our back; nothing may be spent on its word.
        """
        faults = self.verify().faults
        if faults:
            raise BudgetError(
                "the ledger does not hold what its entries say, so nothing may be spent on its word; restore it from "
                "its backup" + "".join(f"\n  - {fault}" for fault in faults[:5])
            )

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_population(
        self,
        *,
        name: str,
        unit: str,
        epsilon: float,
        delta: float,
        planned_runs: int,
        planned: Sequence[Mechanism],
        actor: str,
    ) -> PopulationState:
        """Fix a population's unit, guarantee, orders and weights for good; the same again changes nothing.

        Args:
            name: of the population; never two names for the same people.
            unit: "person" or "row".
            epsilon: ε_G over everything ever run on it.
            delta: δ_G in (0, 1).
            planned_runs: how many runs like `planned` are meant; decides the orders, limits nothing.
            planned: one such run; another one later is no conflict.
            actor: who asks.

        Raises:
            ConfigurationError: a value is wrong, or differs from what the ledger holds.
            AccountingError: the planned run cannot be accounted.
        """
        checked_population(name)
        checked_text("actor", actor)
        if unit not in UNITS_OF_PRIVACY:
            raise ConfigurationError(f"privacy.unit = {unit!r} must be one of {', '.join(UNITS_OF_PRIVACY)}")
        rule = PrivacyFilter.planned(epsilon=epsilon, delta=delta, planned_runs=planned_runs, run=planned)
        with self._writing() as connection:
            state = read_population(connection, name)
            if state is None:
                said = {
                    "unit": unit,
                    "epsilon": float(epsilon),
                    "delta": float(delta),
                    "planned_runs": planned_runs,
                    "planned": to_json(planned),
                    "orders": list(rule.orders),
                    "weights": list(rule.weights),
                }
                self._append(connection, name, "population_created", said, actor)
                rows.insert_population(connection, name, said, rule)
                state = rows.known_population(connection, name)
        state.require(unit=unit, epsilon=epsilon, delta=delta, planned_runs=planned_runs)
        return state

    def populations(self) -> list[str]:
        """Names of all populations, in the order of the alphabet."""
        with db.reading(self._engine) as connection:
            return list(connection.scalars(sa.select(db.population.c.name).order_by(db.population.c.name)))

    def population(self, name: str) -> PopulationState | None:
        """The balance of a population, or None when nothing was ever planned on it."""
        with db.reading(self._engine) as connection:
            return read_population(connection, name)

    def reserve(
        self,
        *,
        population: str,
        mechanisms: Sequence[Mechanism],
        idempotency_key: str,
        actor: str,
        reason: str,
        lease_seconds: float = LEASE_SECONDS,
        delta: float | None = None,
    ) -> Reservation:
        """Set the worst case of a run aside, or refuse it whole.

        Args:
            population: its name.
            mechanisms: everything that the run may do, in the order in which it does it.
            idempotency_key: names the attempt; the same call again returns the same reservation.
            actor: who asks.
            reason: why, in words.
            lease_seconds: how long it may go without a claim before others may fence it.
            delta: of the run, so that a refusal can name the `privacy.run.epsilon` that would fit; None to do without.

        Raises:
            BudgetError: it does not fit (the text says what would), or the key was used for something else.
            AccountingError: it cannot be accounted; the ledger is unchanged.
            ConfigurationError: an argument is wrong or the population is unknown.
        """
        checked_text("actor", actor)
        checked_text("reason", reason)
        checked_text("idempotency_key", idempotency_key)
        if not 0 < lease_seconds <= 31 * 86_400:
            raise ConfigurationError(f"lease_seconds = {lease_seconds!r} must be in (0, 31 days]")
        records, total = to_json(mechanisms), total_claims(mechanisms)
        if not total:
            raise ConfigurationError("a reservation needs at least one mechanism")
        with db.reading(self._engine) as connection:
            orders = rows.known_population(connection, population).orders  # they never change
        charge = rdp_units(mechanisms, orders)
        with self._writing() as connection:
            now = self._clock()
            rows.settle_expired(connection, population=population, actor=actor, now=now)
            former = rows.reserved_before(connection, key=idempotency_key, population=population, mechanisms=records)
            if former is not None:
                return former
            state = rows.known_population(connection, population)
            if state.rule.admits(spent=state.spent, charge=charge):
                made = Reservation(id=uuid.uuid4().hex, token=1, total=total)
                said = {
                    "reservation": made.id,
                    "idempotency_key": idempotency_key,
                    "mechanisms": records,
                    "reason": reason,
                    "lease_seconds": float(lease_seconds),
                }
                self._append(connection, population, "run_reserved", said, actor)
                rows.insert_reservation(connection, population=population, made=made, said=said, charge=charge, now=now)
                return made
        raise BudgetError(refusal(state=state, mechanisms=mechanisms, charge=charge, delta=delta))

    def claim(self, *, reservation_id: str, token: int, upto: int) -> None:
        """Record, before they run, that the first `upto` releases and steps are spent. Renews the lease.

        Args:
            reservation_id: from `reserve`.
            token: from `reserve`.
            upto: above what is claimed already, at most the total. Claiming the same steps twice is refused:
                two processes would both run them.

        Raises:
            BudgetError: fenced, over, out of range, or not recorded. The steps must not run.
        """
        with db.writing(self._engine) as connection:
            row = rows.active_row(connection, reservation_id, token)
            now = self._clock()
            if now >= row.lease_until:
                raise BudgetError(
                    f"reservation {reservation_id}: its lease has run out, so the claim is refused; "
                    "stop, and start a new attempt"
                )
            if type(upto) is not int or not row.claimed < upto <= row.total_claims:
                raise BudgetError(
                    f"reservation {reservation_id}: claim up to {upto!r} must be an integer above "
                    f"{row.claimed}, what is claimed already, and at most {row.total_claims}"
                )
            said = {"reservation": reservation_id, "upto": upto}
            self._append(connection, row.population, "steps_claimed", said, "run")
            rows.update_reservation(
                connection,
                reservation_id,
                state="running",
                claimed=upto,
                lease_until=now + row.lease_seconds,
            )

    def commit(self, *, reservation_id: str, token: int, executed: int) -> PopulationState:
        """Close a run that ended; it is charged for everything it claimed.

        Args:
            reservation_id: from `reserve`.
            token: from `reserve`.
            executed: how many releases and steps ran; the same call again changes nothing.

        Raises:
            NotPrivateError: more ran than was claimed. The larger number is charged, and stays.
            BudgetError: fenced, closed already, or not recorded.
        """
        if type(executed) is not int or executed < 0:
            raise BudgetError(f"executed = {executed!r} must be an integer ≥ 0")
        with self._writing() as connection:
            row = rows.reservation_row(connection, reservation_id)
            if (row.state, row.token, row.executed) == ("committed", token, executed):
                return rows.known_population(connection, row.population)
            row = rows.active_row(connection, reservation_id, token)
            charged = max(row.claimed, min(executed, row.total_claims))
            state = "committed" if executed <= row.claimed else "charged"
            said = {"reservation": reservation_id, "state": state, "claims": charged, "executed": executed}
            self._append(connection, row.population, "run_committed", said, "run")
            rows.settle(connection, row, claims=charged, state=state, executed=executed)
            balance = rows.known_population(connection, row.population)
        if executed > row.claimed:
            raise NotPrivateError(
                f"reservation {reservation_id}: {executed} releases and steps ran and {row.claimed} were "
                f"claimed; {charged} are charged, and the model must not be used"
            )
        return balance

    def abandon(self, *, reservation_id: str, token: int, reason: str) -> PopulationState:
        """Close a run that failed: charged for its claims, released when it claimed nothing.

        Raises:
            BudgetError: fenced, closed already, or not recorded.
        """
        checked_text("reason", reason)
        with self._writing() as connection:
            row = rows.active_row(connection, reservation_id, token)
            state = "charged" if row.claimed else "released"
            said = {"reservation": reservation_id, "state": state, "claims": row.claimed, "reason": reason}
            self._append(connection, row.population, "run_abandoned", said, "run")
            rows.settle(connection, row, claims=row.claimed, state=state)
            return rows.known_population(connection, row.population)

    def record(self, *, population: str, kind: str, payload: Mapping[str, Any], actor: str) -> int:
        """Append evidence that spends nothing; returns the entry's number.

        Args:
            population: its name.
            kind: one of `RECORDED_KINDS`.
            payload: plain finite JSON without any value of a record, at most 4 MiB.
            actor: who decided.

        Raises:
            ConfigurationError: kind, payload or population is wrong.
        """
        checked_text("actor", actor)
        if kind not in RECORDED_KINDS:
            raise ConfigurationError(f"entry kind {kind!r} is unknown; known: {', '.join(RECORDED_KINDS)}")
        try:
            size = len(db.canonical(payload))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"the payload of {kind} must be plain JSON with finite numbers") from error
        if size > _PAYLOAD_LIMIT:
            raise ConfigurationError(f"the payload of {kind} has {size} characters, at most {_PAYLOAD_LIMIT}")
        with self._writing() as connection:
            rows.known_population(connection, population)
            return self._append(connection, population, kind, payload, actor)

    def entries(self, population: str | None = None) -> list[dict[str, Any]]:
        """All entries in order, or those of one population: seq, kind, payload, actor, at, hash and so on."""
        query = sa.select(db.entry).order_by(db.entry.c.seq)
        if population is not None:
            query = query.where(db.entry.c.population == population)
        with db.reading(self._engine) as connection:
            found = connection.execute(query).mappings().all()
        return [
            {key: row[key] for key in ("seq", "population", "kind", "actor", "at", "prev_hash", "hash")}
            | {"payload": json.loads(row["payload_json"])}
            for row in found
        ]

    def head(self) -> str:
        """The chain's last hash; kept elsewhere too, it shows that no entry was cut off or rewritten."""
        with db.reading(self._engine) as connection:
            return rows.head(connection)[1]

    def verify(self) -> Verification:
        """Replay every entry: the chain, the counters recomputed from the mechanisms, the triggers."""
        with db.reading(self._engine) as connection:
            return replay(connection)

    def _append(
        self, connection: sa.Connection, population: str, kind: str, said: Mapping[str, Any], actor: str
    ) -> int:
        return rows.append(connection, population=population, kind=kind, said=said, actor=actor, now=self._clock())


def checked_text(name: str, value: object) -> None:
    """Refuse what is no short line of text: it is kept for ever and shown in terminals.

    Raises:
        ConfigurationError: it is empty, too long, or holds a control character.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > _TEXT_LIMIT or not value.isprintable():
        raise ConfigurationError(f"{name} must be one printable line of 1 to {_TEXT_LIMIT} characters")
