"""Recomputes the ledger from its entries alone, and compares it with the counters beside them.

The chain shows an entry that was changed, removed in the middle, or put in. It cannot show that the last
entries were cut off, or that all were rewritten: for that, keep `Ledger.head()` elsewhere too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from configs.errors import DiscreetError
from tasks.privacy import ledger_schema as db
from tasks.privacy.accounting import rdp_units
from tasks.privacy.budget import PrivacyFilter, added
from tasks.privacy.events import Mechanism, from_json, prefix, total_claims
from tasks.privacy.ledger_state import ACTIVE, read_population


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a replay found.

    Attributes:
        entries: how many were replayed.
        head: the last hash.
        faults: one sentence each; empty when the ledger is as its entries say.
    """

    entries: int
    head: str
    faults: tuple[str, ...]


@dataclass(slots=True)
class _Run:
    population: str
    mechanisms: tuple[Mechanism, ...]
    total: int
    token: int = 1
    state: str = "reserved"
    claimed: int = 0
    charged: int = 0


@dataclass(slots=True)
class _Replay:
    populations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    runs: dict[str, _Run] = field(default_factory=dict[str, _Run])

    def apply(self, population: str, kind: str, said: Mapping[str, Any]) -> None:
        """Follow one entry; a kind that spends nothing is only part of the chain."""
        if kind == "population_created":
            self.populations[population] = dict(said)
        elif kind == "run_reserved":
            mechanisms = from_json(said["mechanisms"])
            self.runs[said["reservation"]] = _Run(population, mechanisms, total_claims(mechanisms))
        elif kind == "steps_claimed":
            run = self.runs[said["reservation"]]
            run.claimed, run.state = said["upto"], "running"
        elif kind in ("run_committed", "run_abandoned", "lease_expired"):
            run = self.runs[said["reservation"]]
            run.state, run.charged = said["state"], said["claims"]
            run.token = said.get("token", run.token)


def replay(connection: sa.Connection) -> Verification:
    """Replay every entry inside one read transaction."""
    faults = [] if db.triggers_present(connection) else ["the triggers that refuse changes are missing"]
    state, last, count = _Replay(), db.GENESIS, 0
    for row in connection.execute(sa.select(db.entry).order_by(db.entry.c.seq)):
        count += 1
        digest = db.entry_hash(
            prev_hash=last,
            seq=count,
            population=row.population,
            kind=row.kind,
            payload=row.payload_json,
            actor=row.actor,
            at=row.at,
        )
        if (row.seq, row.prev_hash, row.hash) != (count, last, digest):
            faults.append(f"entry {row.seq}: the hash chain is broken here")
            return Verification(entries=count, head=row.hash, faults=tuple(faults))
        last = digest
        try:
            state.apply(row.population, row.kind, json.loads(row.payload_json))
        except (DiscreetError, KeyError, TypeError, ValueError) as error:
            faults.append(f"entry {row.seq} of kind {row.kind} cannot be replayed ({type(error).__name__})")
    faults += _compare_runs(connection, state)
    faults += _compare_populations(connection, state)
    return Verification(entries=count, head=last, faults=tuple(faults))


def _compare_runs(connection: sa.Connection, state: _Replay) -> list[str]:
    rows = {row.id: row for row in connection.execute(sa.select(db.reservation))}
    faults = [f"reservation {name} has no entry" for name in rows.keys() - state.runs.keys()]
    for name, run in state.runs.items():
        row = rows.get(name)
        said = (run.population, run.state, run.token, run.claimed, run.total, run.mechanisms)
        if row is None:
            faults.append(f"reservation {name} is missing")
        elif said != (
            row.population,
            row.state,
            row.token,
            row.claimed,
            row.total_claims,
            from_json(json.loads(row.payload_json)),
        ):
            faults.append(f"reservation {name} differs from its entries")
    return faults


def _compare_populations(connection: sa.Connection, state: _Replay) -> list[str]:
    names = set(connection.execute(sa.select(db.population.c.name)).scalars())
    faults = [f"population {name} has no entry" for name in names - state.populations.keys()]
    for name, said in state.populations.items():
        balance = read_population(connection, name)
        if balance is None:
            faults.append(f"population {name} is missing")
            continue
        fixed = ("unit", "epsilon", "delta", "planned_runs")
        if [said[key] for key in fixed] != [getattr(balance, key) for key in fixed]:
            faults.append(f"population {name} differs from its entry")
        rule = PrivacyFilter(
            epsilon=said["epsilon"],
            delta=said["delta"],
            orders=tuple(said["orders"]),
            weights=tuple(said["weights"]),
        )
        committed = reserved = (0,) * len(rule.orders)
        for run in state.runs.values():
            if run.population != name:
                continue
            if run.state in ACTIVE:
                reserved = added(reserved, rdp_units(run.mechanisms, rule.orders))
            elif run.charged:
                committed = added(committed, rdp_units(prefix(run.mechanisms, run.charged), rule.orders))
        recomputed = (rule.orders, rule.weights, rule.caps, committed, reserved)
        if recomputed != (
            balance.orders,
            balance.weights,
            balance.caps,
            balance.committed,
            balance.reserved,
        ):
            faults.append(f"population {name}: the counters differ from what its entries add up to")
    return faults
