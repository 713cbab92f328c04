"""The largest difference between groups, with an interval that holds for all pairs at once."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.statistics.roc import Undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """An estimate between the ends of its interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Highest less lowest value of a metric among the gated groups of an attribute.

    Attributes:
        attribute: the attribute's name.
        metric: auc, tpr, fpr or selection_rate.
        gap: the difference of the estimates, which is biased upwards, with its interval; or why there is none.
    """

    attribute: str
    metric: str
    gap: Ends | Undefined


def pair_level(groups: int, level: float) -> float:
    """Two-sided level of one pair, so that all pairs of `groups` hold at once at `level` (Bonferroni)."""
    return 1 - (1 - level) / max(1, groups * (groups - 1) // 2)


def gap(estimates: Sequence[Ends | Undefined]) -> Ends | Undefined:
    """Highest less lowest, with bounds from the bounds of all pairs.

    A pair's difference has the square-and-add interval (Newcombe 1998, method 10, for shares; Zou and Donner
    2008 for any estimate with an interval). If all pairs' intervals hold, so does that of the largest
    difference: it is at least every pair's least distance from 0, and at most the greatest one. The groups
    are taken as independent; a person with rows in two of them makes the two alike rather than apart, which
    leaves the interval too wide.

    Args:
        estimates: of the gated groups, each with an interval at `pair_level`.

    Returns:
        The gap. Fewer than two groups define none, and no group is dropped: one without an estimate leaves
        the gap without one.
    """
    found = [each for each in estimates if isinstance(each, Ends)]
    if len(estimates) < 2:
        return Undefined(reason="fewer than two groups are large enough to compare")
    if len(found) < len(estimates):
        return Undefined(reason="a group that would be compared has no estimate")
    least, most = 0.0, 0.0
    for one, two in itertools.combinations(found, 2):
        lower, upper = difference(one, two)
        least, most = max(least, lower, -upper), max(most, upper, -lower)
    values = [each.value for each in found]
    return Ends(value=max(values) - min(values), lower=least, upper=most)


def difference(one: Ends, two: Ends) -> tuple[float, float]:
    """Ends of the square-and-add interval of `one` - `two`."""
    value = one.value - two.value
    down = float(np.hypot(one.value - one.lower, two.upper - two.value))
    up = float(np.hypot(one.upper - one.value, two.value - two.lower))
    return value - down, value + up
