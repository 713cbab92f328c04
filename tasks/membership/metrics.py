"""Evaluate an attack: how well scores tell members from non-members, each figure with an interval.

One score a unit, higher means more likely a member.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from configs.errors import InternalError
from tasks.membership.rates import BLOCKS, Floats, advantage, hits_in_blocks, roc_points, tpr_at_fpr
from tasks.membership.results import AttackResult, Floors, NotEstimable, Published, Rate, published, published_auc
from tasks.statistics import roc
from tasks.statistics.roc import AucEstimate, Undefined

__all__ = [
    "AttackResult",
    "NotEstimable",
    "Published",
    "Rate",
    "evaluate",
    "published",
    "published_auc",
    "strongest",
    "tpr_at_fpr",
]

ERROR: Final = 0.05  # of each two-sided interval
CONTRADICTION_ERROR: Final = 0.01  # chance that any floor of a result lies above its true value
COMPARISONS: Final = 5  # floors: AUC, accuracy, advantage, TPR at 1 % and at .1 %

_MIN_UNITS: Final = 2 * BLOCKS


def evaluate(
    *, members: ArrayLike, non_members: ArrayLike, seed: int = 0, attacks: int = 1
) -> AttackResult | Undefined:
    """Evaluate an attack's scores.

    *AUC*: DeLong; one score a unit, so the interval is the unit's. *TPR at FPR*: `tpr_at_fpr`.

    *Advantage and accuracy*: units are dealt at random (by `seed` and their order) into ten blocks, members and
    non-members alike. Each block from the second on is judged by the threshold that maximises TPR - FPR on the
    blocks before it, and hits are pooled. What the interval covers is the mean true advantage of these
    thresholds. It does so because no unit helps to choose a threshold that judges it or an earlier one: given
    the past a block's hits are binomial, so the errors of the blocks are martingale differences, uncorrelated,
    and their variance is at most that of one binomial with the mean rate, which is what Newcombe's interval
    assumes. Two halves that judge each other lack this argument: where nothing leaks, their errors correlate
    (the lower bound was too high in 3.3 % of simulations, not 2.5 %). The lower end bounds the advantage of
    the best threshold too. The upper end does not: it bounds the thresholds that the attack found.

    Args:
        members: [units] scores of members.
        non_members: [units] scores of non-members.
        seed: deals the blocks; public.
        attacks: k ≥ 1, where the `strongest` of k attacks on the same units is to be reported: each interval
            is then in error by .05 / k, and each floor by a k-th of what it is otherwise.

    Returns:
        The result; or why there is none: a score that is not finite, or fewer than 20 units on a side.

    Raises:
        InternalError: if scores are not vectors or `attacks` < 1.
    """
    inside, outside = np.asarray(members, dtype=np.float64), np.asarray(non_members, dtype=np.float64)
    if inside.ndim != 1 or outside.ndim != 1 or attacks < 1:
        raise InternalError("attack: scores must be vectors, one score a unit, of at least one attack")
    if not (np.isfinite(inside).all() and np.isfinite(outside).all()):
        return Undefined(reason="the score of a unit is not finite")
    if min(inside.size, outside.size) < _MIN_UNITS:
        return Undefined(reason=f"there are fewer than {_MIN_UNITS} members or fewer than {_MIN_UNITS} non-members")
    figures = _figures(inside, outside, seed=seed, tail=ERROR / 2 / attacks)
    floors = _figures(inside, outside, seed=seed, tail=CONTRADICTION_ERROR / COMPARISONS / attacks)
    return AttackResult(
        auc=figures[0],
        accuracy=figures[1],
        advantage=figures[2],
        tpr_at_1pct=figures[3],
        tpr_at_01pct=figures[4],
        roc=roc_points(inside, outside),
        floors=Floors(
            auc=floors[0].lower,
            accuracy=floors[1].lower,
            advantage=floors[2].lower,
            tpr_at_1pct=_lower(floors[3]),
            tpr_at_01pct=_lower(floors[4]),
        ),
        members=inside.size,
        non_members=outside.size,
        attacks=attacks,
    )


def _figures(
    inside: Floats, outside: Floats, *, seed: int, tail: float
) -> tuple[AucEstimate, Rate, Rate, Rate | NotEstimable, Rate | NotEstimable]:
    """AUC, accuracy, advantage, TPR at 1 % and at .1 %, each bound in error by at most `tail`."""
    labels = np.repeat([1, 0], [inside.size, outside.size])
    auc = roc.auc(labels=labels, scores=np.concatenate([inside, outside]), level=1 - 2 * tail)
    if isinstance(auc, Undefined):  # what could make it so was refused by the caller
        raise InternalError(f"attack: {auc.reason}")
    gain = advantage(hits_in_blocks(inside, outside, seed=seed), tail=tail)
    accuracy = Rate(value=(1 + gain.value) / 2, lower=(1 + gain.lower) / 2, upper=(1 + gain.upper) / 2)
    at_1pct, at_01pct = (tpr_at_fpr(members=inside, non_members=outside, fpr=fpr, tail=tail) for fpr in (0.01, 0.001))
    return auc, accuracy, gain, at_1pct, at_01pct


def strongest(*, results: Mapping[str, AttackResult | Undefined]) -> AttackResult | Undefined:
    """The best that any of several attacks on the same units reached, figure by figure.

    Estimates, bounds and floors are the largest among the attacks. Each attack's being corrected for their
    number, the bounds hold for the strongest attack's true figures (Bonferroni); the estimates, being the
    largest of several, lean upwards.

    Args:
        results: by the attack's name, each of `evaluate(attacks=len(results))`.

    Returns:
        The result; undefined as soon as one of them is.

    Raises:
        InternalError: if there is none, or one is corrected for another number of attacks.
    """
    found: list[AttackResult] = []
    for name, result in results.items():
        if isinstance(result, Undefined):
            return Undefined(reason=f"attack {name}: {result.reason}")
        if result.attacks != len(results):
            raise InternalError(f"attack {name} is corrected for {result.attacks} attacks, not for {len(results)}")
        found.append(result)
    if not found:
        raise InternalError("attack: there is no result to choose from")
    floors = [result.floors for result in found]
    return AttackResult(
        auc=_largest_auc([result.auc for result in found]),
        accuracy=_largest([result.accuracy for result in found]),
        advantage=_largest([result.advantage for result in found]),
        tpr_at_1pct=_largest_if_any([result.tpr_at_1pct for result in found]),
        tpr_at_01pct=_largest_if_any([result.tpr_at_01pct for result in found]),
        roc=tuple(max(points) for points in zip(*(result.roc for result in found), strict=True)),
        floors=Floors(
            auc=max(floor.auc for floor in floors),
            accuracy=max(floor.accuracy for floor in floors),
            advantage=max(floor.advantage for floor in floors),
            tpr_at_1pct=_max_if_any(floor.tpr_at_1pct for floor in floors),
            tpr_at_01pct=_max_if_any(floor.tpr_at_01pct for floor in floors),
        ),
        members=found[0].members,
        non_members=found[0].non_members,
        attacks=len(found),
    )


def _lower(rate: Rate | NotEstimable) -> float | None:
    return None if isinstance(rate, NotEstimable) else rate.lower


def _largest_auc(found: Sequence[AucEstimate]) -> AucEstimate:
    best = max(found, key=lambda estimate: estimate.auc)
    return AucEstimate(
        auc=best.auc,
        standard_error=best.standard_error,
        lower=max(estimate.lower for estimate in found),
        upper=max(estimate.upper for estimate in found),
        positives=best.positives,
        negatives=best.negatives,
    )


def _largest(rates: Sequence[Rate]) -> Rate:
    return Rate(
        value=max(rate.value for rate in rates),
        lower=max(rate.lower for rate in rates),
        upper=max(rate.upper for rate in rates),
    )


def _largest_if_any(rates: Sequence[Rate | NotEstimable]) -> Rate | NotEstimable:
    """Estimable for all or for none: it hangs on the number of non-members alone."""
    missing = next((rate for rate in rates if isinstance(rate, NotEstimable)), None)
    return missing or _largest([rate for rate in rates if isinstance(rate, Rate)])


def _max_if_any(floors: Iterable[float | None]) -> float | None:
    known = [floor for floor in floors if floor is not None]
    return max(known) if known else None
