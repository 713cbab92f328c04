"""What the ledger answers: a reservation, and a population's balance."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from configs.errors import ConfigurationError
from tasks.privacy import ledger_schema as db
from tasks.privacy.accounting import rdp_units
from tasks.privacy.budget import PrivacyFilter, added
from tasks.privacy.events import Mechanism

ACTIVE = ("reserved", "running")  # committed, charged and released are final
STATES = (*ACTIVE, "committed", "charged", "released")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The right to run.

    Attributes:
        id: names the attempt.
        token: must accompany every claim; a bumped token fences whoever holds the old one.
        total: how many claims it allows: 1 for a Gaussian release, T for T steps.
    """

    id: str
    token: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationState:
    """The balance of one population.

    Attributes:
        name: the population.
        unit: "row" or "person".
        epsilon: ε_G, over everything ever run.
        delta: δ_G.
        planned_runs: as at its creation.
        orders: Rényi orders a_j of the filter.
        weights: shares w_j of δ_G.
        caps: cap_j in units of 1e-12.
        committed: charged units, one an order.
        reserved: units of runs that may still be running, at their worst case.
        runs: number of runs by state: reserved, running, committed, charged, released.
    """

    name: str
    unit: str
    epsilon: float
    delta: float
    planned_runs: int
    orders: tuple[float, ...]
    weights: tuple[float, ...]
    caps: tuple[int, ...]
    committed: tuple[int, ...]
    reserved: tuple[int, ...]
    runs: dict[str, int]

    @property
    def rule(self) -> PrivacyFilter:
        """The admission rule that was fixed when the population was created."""
        return PrivacyFilter(epsilon=self.epsilon, delta=self.delta, orders=self.orders, weights=self.weights)

    @property
    def spent(self) -> tuple[int, ...]:
        """Committed and reserved units together: what admission counts."""
        return added(self.committed, self.reserved)

    @property
    def used_epsilon(self) -> float:
        """What the filter guarantees if nothing more were admitted; exactly 0 before the first run."""
        return self.rule.used_epsilon(self.spent)

    @property
    def remaining_epsilon(self) -> float:
        """ε_G less what is used, never below 0."""
        return max(self.epsilon - self.used_epsilon, 0.0)

    def require(self, *, unit: str, epsilon: float, delta: float, planned_runs: int) -> None:
        """Insist that a file says what was fixed when the population was created.

        Raises:
            ConfigurationError: it says otherwise, naming both values.
        """
        asked = {"unit": unit, "epsilon": float(epsilon), "delta": float(delta), "planned_runs": planned_runs}
        differing = [key for key, value in asked.items() if value != getattr(self, key)]
        if differing:
            said = "; ".join(f"the file says {key} {asked[key]}, the ledger {getattr(self, key)}" for key in differing)
            raise ConfigurationError(
                f"population {self.name}: {said}. They were fixed when the population was created: "
                "write the ledger's values in the file"
            )

    def fits(self, mechanisms: Sequence[Mechanism]) -> int:
        """How many such runs still fit.

        Raises:
            AccountingError: the run cannot be accounted.
        """
        return self.rule.fits(spent=self.spent, charge=rdp_units(mechanisms, self.orders))


def read_population(connection: sa.Connection, name: str) -> PopulationState | None:
    """Read a population's balance from the counters; None when there is no such population."""
    row = connection.execute(sa.select(db.population).where(db.population.c.name == name)).one_or_none()
    if row is None:
        return None
    orders = connection.execute(
        sa.select(db.population_order)
        .where(db.population_order.c.population == name)
        .order_by(db.population_order.c.position)
    ).all()
    counts = connection.execute(
        sa.select(db.reservation.c.state, sa.func.count())
        .where(db.reservation.c.population == name)
        .group_by(db.reservation.c.state)
    ).all()
    return PopulationState(
        name=name,
        unit=row.unit,
        epsilon=row.epsilon,
        delta=row.delta,
        planned_runs=row.planned_runs,
        orders=tuple(order.renyi_order for order in orders),
        weights=tuple(order.weight for order in orders),
        caps=tuple(order.cap_units for order in orders),
        committed=tuple(order.committed_units for order in orders),
        reserved=tuple(order.reserved_units for order in orders),
        runs=dict.fromkeys(STATES, 0) | dict(counts),
    )


def reserved_units(connection: sa.Connection, name: str, orders: int) -> tuple[int, ...]:
    """Sum the worst cases of the population's active reservations.

    Summed anew rather than subtracted: an order that is used up stands at a limit, from which nothing can be
    taken away.
    """
    rows = connection.execute(
        sa.select(db.reservation.c.units_json).where(
            db.reservation.c.population == name, db.reservation.c.state.in_(ACTIVE)
        )
    ).scalars()
    total: tuple[int, ...] = (0,) * orders
    for units in rows:
        total = added(total, json.loads(units))
    return total
