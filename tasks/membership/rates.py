"""Rates of true and false positives with their intervals: the parts of `metrics.evaluate`.

A unit is called a member iff its score is strictly above the threshold, so ties never count as hits.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm

from tasks.membership.results import NotEstimable, Point, Rate

Floats = NDArray[np.float64]

BLOCKS: Final = 10
_MIN_FALSE_POSITIVES: Final = 10  # a rate that would rest on fewer is not shown
_GRID: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Units called members, pooled over blocks: `true_positives` of `members`, `false_positives` of `non_members`."""

    true_positives: int
    members: int
    false_positives: int
    non_members: int


def hits_in_blocks(members: Floats, non_members: Floats, *, seed: int) -> Hits:
    """Judge each block of units by the threshold chosen on the blocks before it.

    The first block is judged by none. The units' order and the seed decide who is in which block.
    """
    generator = np.random.default_rng(seed)
    inside = np.array_split(generator.permutation(members), BLOCKS)
    outside = np.array_split(generator.permutation(non_members), BLOCKS)
    true_positives = false_positives = 0
    for block in range(1, BLOCKS):
        threshold = best_threshold(np.concatenate(inside[:block]), np.concatenate(outside[:block]))
        true_positives += int(np.count_nonzero(inside[block] > threshold))
        false_positives += int(np.count_nonzero(outside[block] > threshold))
    return Hits(
        true_positives=true_positives,
        members=members.size - inside[0].size,
        false_positives=false_positives,
        non_members=non_members.size - outside[0].size,
    )


def best_threshold(members: Floats, non_members: Floats) -> float:
    """The score that maximises TPR - FPR when used as threshold; of several, the largest; infinite for flagging nobody.

    Flagging nobody is always among the choices, so the maximum is never negative.
    """
    values, place = np.unique(np.concatenate([members, non_members]), return_inverse=True)
    gain = np.bincount(place[: members.size], minlength=values.size) / members.size
    gain -= np.bincount(place[members.size :], minlength=values.size) / non_members.size
    above = np.cumsum(gain[:0:-1])  # of thresholds values[-2], values[-3], ...
    if not above.size or above.max() <= 0:
        return math.inf
    return float(values[values.size - 2 - int(np.argmax(above))])


def advantage(hits: Hits, *, tail: float) -> Rate:
    """TPR - FPR with Newcombe's interval (1998, method 10), in error by `tail` on each side."""
    tpr, fpr = hits.true_positives / hits.members, hits.false_positives / hits.non_members
    tpr_low, tpr_high = _wilson(tpr, hits.members, tail)
    fpr_low, fpr_high = _wilson(fpr, hits.non_members, tail)
    value = tpr - fpr
    return Rate(
        value=value,
        lower=value - math.hypot(tpr - tpr_low, fpr_high - fpr),
        upper=value + math.hypot(tpr_high - tpr, fpr - fpr_low),
    )


def _wilson(share: float, units: int, tail: float) -> tuple[float, float]:
    """Wilson's score interval (1927) of a binomial share; never a point, also at 0 and 1."""
    square = float(norm.isf(tail)) ** 2
    centre = (share + square / (2 * units)) / (1 + square / units)
    half = math.sqrt(square * (share * (1 - share) / units + square / (4 * units**2))) / (1 + square / units)
    return max(0.0, centre - half), min(1.0, centre + half)


def tpr_at_fpr(*, members: ArrayLike, non_members: ArrayLike, fpr: float, tail: float = 0.025) -> Rate | NotEstimable:
    """True positive rate at a false positive rate.

    The estimate's threshold is the (k+1)-th largest non-member score, k = ⌊fpr · n⌋. The true FPR of that threshold
    may lie on either side of `fpr`, so the bounds use others: the lower one the threshold whose true FPR exceeds
    `fpr` with probability at most `tail` / 2 (an order statistic, hence Clopper and Pearson's beta law), and
    there the Clopper-Pearson bound of the TPR at `tail` / 2; the upper one the mirror image, for scores without
    ties. So each covers the true ROC curve at `fpr`, which is what a privacy guarantee bounds, but for
    probability `tail`.

    Args:
        members: [units] scores.
        non_members: [units] scores.
        fpr: in (0, 1).
        tail: in (0, 1/2).

    Returns:
        The rate in [0, 1]; not estimable where fewer than ten false positives are expected.
    """
    inside, descending = np.asarray(members, dtype=np.float64), _descending(non_members)
    if fpr * descending.size < _MIN_FALSE_POSITIVES - 1e-9:
        return NotEstimable(needs=math.ceil(_MIN_FALSE_POSITIVES / fpr - 1e-9))
    # P(true FPR of the (k+1)-th largest > fpr) = P(Bin(n, fpr) ≤ k)
    strict = int(binom.ppf(tail / 2, descending.size, fpr)) - 1
    loose = int(binom.isf(tail / 2, descending.size, fpr))
    few = _above(inside, descending, strict) if strict >= 0 else 0
    many = _above(inside, descending, loose)
    return Rate(
        value=_above(inside, descending, allowed(descending.size, fpr)) / inside.size,
        lower=float(beta.ppf(tail / 2, few, inside.size - few + 1)) if few else 0.0,
        upper=float(beta.isf(tail / 2, many + 1, inside.size - many)) if many < inside.size else 1.0,
    )


def roc_points(members: Floats, non_members: Floats) -> tuple[Point, ...]:
    """(FPR, TPR) on a grid of 1, 2, 5 times powers of ten, where at least ten false positives are expected."""
    descending = _descending(non_members)
    grid = [fpr for fpr in _GRID if fpr * descending.size >= _MIN_FALSE_POSITIVES - 1e-9]
    size = members.size
    return tuple((fpr, _above(members, descending, allowed(descending.size, fpr)) / size) for fpr in grid)


def allowed(non_members: int, fpr: float) -> int:
    """k = ⌊fpr · n⌋, as meant: .29 × 100 is 28.999… in floating point."""
    return math.floor(fpr * non_members + 1e-9)


def _descending(scores: ArrayLike) -> Floats:
    return -np.sort(-np.asarray(scores, dtype=np.float64))


def _above(members: Floats, descending: Floats, k: int) -> int:
    """Members strictly above the (k+1)-th largest non-member, k < n."""
    return int(np.count_nonzero(members > descending[k]))
