"""The admission rule: a Rényi filter on fixed orders, with delta split over them, in integers.

For orders a_j and weights w_j fixed when a population is created,

    cap_j = ε_G - conv(a_j, w_j δ_G),      conv(a, d) = log(1 - 1/a) - (log d + log a) / (a - 1),

and a charge r is admitted iff S_j + r_j ≤ cap_j for at least one j, S_j being what is charged or reserved so
far. It holds when later runs depend on what earlier ones showed; README.md has the proof. Choosing the best
order after the fact, or composing PLDs run by run, does not hold then: tests/privacy/test_budget.py has a
counter-example.

Amounts are integers of 1e-12 Rényi units: charges are rounded up, caps down; an addition loses nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.accounting import UNITS_LIMIT, UNITS_PER_RDP, rdp_units
from tasks.privacy.events import Mechanism

PLANNED_WEIGHT: Final = 0.9
_SPREAD_ORDERS: Final = (
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    16.0,
    32.0,
    64.0,
)  # the nearest to the planned one is left out
_CANDIDATES: Final = (
    *(1.5 + 0.25 * step for step in range(39)),  # 1.5 … 11
    *(float(order) for order in range(12, 65)),
    *(80.0, 96.0, 128.0, 192.0, 256.0, 512.0),
)
_LARGEST_EPSILON: Final = 1000.0  # keeps every cap far below UNITS_LIMIT


def conversion(order: float, delta: float) -> float:
    """What turning a Rényi divergence at `order` into (ε, δ) adds (Canonne, Kamath and Steinke 2020)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def added(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Sum two charges order by order; an order that reaches `UNITS_LIMIT` is used up and stays there."""
    return tuple(min(a + b, UNITS_LIMIT) for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyFilter:
    """The rule of one population; never changes after its creation.

    Attributes:
        epsilon: ε_G over everything ever run on the population, in (0, 1000].
        delta: δ_G in (0, 1).
        orders: a_j > 1, distinct.
        weights: w_j > 0 with sum ≤ 1, the share of δ_G that order j may use.

    Raises:
        ConfigurationError: a value is outside its range.
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_guarantee(self.epsilon, self.delta)
        if not self.orders or len(self.orders) != len(self.weights) or len(set(self.orders)) < len(self.orders):
            raise ConfigurationError("a privacy filter needs distinct orders, each with one weight")
        if not all(1 < order < math.inf for order in self.orders):
            raise ConfigurationError(f"orders = {self.orders!r} must be finite and above 1")
        if not all(weight > 0 for weight in self.weights) or not math.fsum(self.weights) <= 1:
            raise ConfigurationError(f"weights = {self.weights!r} must be above 0 with a sum of at most 1")

    @classmethod
    def planned(cls, *, epsilon: float, delta: float, planned_runs: int, run: Sequence[Mechanism]) -> "PrivacyFilter":
        """Put 90 % of delta on the order that is best for the planned number of planned runs.

        The other 10 % are spread over seven orders, for runs that turn out otherwise. All of it is public.

        Args:
            epsilon: ε_G in (0, 1000].
            delta: δ_G in (0, 1).
            planned_runs: how many such runs are planned, ≥ 1.
            run: the mechanisms of one of them.

        Raises:
            ConfigurationError: a value is outside its range. AccountingError: the run cannot be accounted.
        """
        _check_guarantee(epsilon, delta)
        if isinstance(planned_runs, bool) or not isinstance(planned_runs, int) or planned_runs < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"guarantee.planned_runs = {planned_runs!r} must be an integer ≥ 1")
        if not run:
            raise ConfigurationError("a population is created for a planned run with at least one mechanism")
        units = rdp_units(run, _CANDIDATES)
        costs = {
            order: planned_runs * charge / UNITS_PER_RDP + conversion(order, PLANNED_WEIGHT * delta)
            for order, charge in zip(_CANDIDATES, units, strict=True)
        }
        best = min(costs, key=lambda order: costs[order])
        nearest = min(_SPREAD_ORDERS, key=lambda order: abs(math.log((order - 1) / (best - 1))))
        spread = tuple(order for order in _SPREAD_ORDERS if order != nearest)
        share = math.nextafter((1 - PLANNED_WEIGHT) / len(spread), 0)  # so that the sum stays ≤ 1
        return cls(
            epsilon=epsilon,
            delta=delta,
            orders=(best, *spread),
            weights=(PLANNED_WEIGHT, *(share for _ in spread)),
        )

    @property
    def caps(self) -> tuple[int, ...]:
        """cap_j in units of 1e-12, rounded down; below 0 means that the order admits nothing."""
        return tuple(
            math.floor((self.epsilon - conversion(order, weight * self.delta)) * UNITS_PER_RDP)
            for order, weight in zip(self.orders, self.weights, strict=True)
        )

    def admits(self, *, spent: Sequence[int], charge: Sequence[int]) -> bool:
        """Whether `charge` may come on top of `spent`; both in units, one an order, ≥ 0.

        Raises:
            AccountingError: an amount is no integer in [0, `UNITS_LIMIT`], or their number is wrong.
        """
        total = added(self._checked(spent), self._checked(charge))
        return any(amount <= cap for amount, cap in zip(total, self.caps, strict=True))

    def used_epsilon(self, spent: Sequence[int]) -> float:
        """What the filter guarantees if nothing were run from now on: min_j S_j + conv(a_j, w_j δ_G).

        Exactly 0 when nothing was charged. It counts as a guarantee at a time fixed in advance, not at one
        that is chosen for what the runs have shown; then only ε_G holds.
        """
        if not any(self._checked(spent)):
            return 0.0
        used = min(
            amount / UNITS_PER_RDP + conversion(order, weight * self.delta)
            for amount, order, weight in zip(spent, self.orders, self.weights, strict=True)
        )
        return max(used, 0.0)

    def fits(self, *, spent: Sequence[int], charge: Sequence[int]) -> int:
        """How often `charge` still fits after `spent`: the largest n with S_j + n r_j ≤ cap_j for some j.

        Raises:
            AccountingError: an amount of `charge` is 0, which no mechanism costs.
        """
        if not all(self._checked(charge)):
            raise AccountingError("a charge of 0 units is not the cost of any mechanism")
        rows = zip(self._checked(spent), charge, self.caps, strict=True)
        return max(0, *((cap - amount) // each for amount, each, cap in rows))

    def _checked(self, amounts: Sequence[int]) -> Sequence[int]:
        """Refuse amounts that could lower a counter: in another ledger, a spend of -10 raised the budget."""
        if len(amounts) != len(self.orders) or not all(
            type(amount) is int and 0 <= amount <= UNITS_LIMIT for amount in amounts
        ):
            raise AccountingError(
                f"a charge must be {len(self.orders)} integers in [0, {UNITS_LIMIT}] units, "
                "else it counts as over budget"
            )
        return amounts


def _check_guarantee(epsilon: object, delta: object) -> None:
    if not _is_number(epsilon, 0, _LARGEST_EPSILON):
        raise ConfigurationError(f"guarantee.epsilon = {epsilon!r} must be in (0, {_LARGEST_EPSILON:g}]")
    if not _is_number(delta, 0, math.nextafter(1, 0)):
        raise ConfigurationError(f"guarantee.delta = {delta!r} must be in (0, 1), well below 1 / privacy.units")


def _is_number(value: object, above: float, most: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and above < value <= most
