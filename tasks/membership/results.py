"""What an attack found, and the rounded form of it that may be published."""

import math
from dataclasses import dataclass
from typing import Final

from tasks.statistics.roc import AucEstimate

Point = tuple[float, float]

_STEPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate, or a difference of rates, with its two-sided interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEstimable:
    """A true positive rate at a false positive rate that so few non-members cannot show.

    Attributes:
        needs: non-members it would take; follows from the rate alone, not from the records.
    """

    needs: int

    @property
    def reason(self) -> str:
        """The sentence to show in place of a number."""
        return f"not estimable: it takes at least {self.needs:,} non-members"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Lower bounds that hold all at once: what is held against the accountant's curve.

    One-sided, Bonferroni: the chance that any of the five (times the number of attacks) exceeds its true
    value is at most `metrics.CONTRADICTION_ERROR`. None where the rate is not estimable.
    """

    auc: float
    accuracy: float
    advantage: float
    tpr_at_1pct: float | None
    tpr_at_01pct: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """What an attack found; exact, so it stays inside the run (`published` is what leaves it).

    Attributes:
        auc: P(a member's score > a non-member's) + half the ties. DeLong; one score a unit.
        accuracy: balanced accuracy, (TPR + 1 - FPR) / 2 = (1 + advantage) / 2.
        advantage: TPR - FPR, at thresholds chosen on other units; see `metrics.evaluate`.
        tpr_at_1pct: TPR at FPR .01.
        tpr_at_01pct: TPR at FPR .001.
        roc: (FPR, TPR), where estimable; without intervals.
        floors: simultaneous lower bounds.
        members: units; non_members: units.
        attacks: number of attacks for which every interval and floor is corrected.
    """

    auc: AucEstimate
    accuracy: Rate
    advantage: Rate
    tpr_at_1pct: Rate | NotEstimable
    tpr_at_01pct: Rate | NotEstimable
    roc: tuple[Point, ...]
    floors: Floors
    members: int
    non_members: int
    attacks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A result rounded to multiples of `step`: bounds outwards, floors down. No counts.

    Rounding is no privacy mechanism. It only keeps a single unit from showing in most cases.
    """

    auc: Rate
    accuracy: Rate
    advantage: Rate
    tpr_at_1pct: Rate | NotEstimable
    tpr_at_01pct: Rate | NotEstimable
    roc: tuple[Point, ...]
    floors: Floors
    step: float


def published(result: AttackResult) -> Published:
    """Round a result for publication.

    Three decimals, and coarser where units are few: the step is at least 2/n for n the smaller of members
    and non-members, so that no figure tells a count of units.
    """
    step = step_for(min(result.members, result.non_members))
    floors = result.floors
    return Published(
        auc=published_auc(result.auc),
        accuracy=_rounded(result.accuracy, step),
        advantage=_rounded(result.advantage, step),
        tpr_at_1pct=_rounded_if_any(result.tpr_at_1pct, step),
        tpr_at_01pct=_rounded_if_any(result.tpr_at_01pct, step),
        roc=tuple((fpr, nearest(tpr, step)) for fpr, tpr in result.roc),
        floors=Floors(
            auc=down(floors.auc, step),
            accuracy=down(floors.accuracy, step),
            advantage=down(floors.advantage, step),
            tpr_at_1pct=None if floors.tpr_at_1pct is None else down(floors.tpr_at_1pct, step),
            tpr_at_01pct=None if floors.tpr_at_01pct is None else down(floors.tpr_at_01pct, step),
        ),
        step=step,
    )


def published_auc(estimate: AucEstimate) -> Rate:
    """Round an AUC for publication, as `published` does."""
    step = step_for(min(estimate.positives, estimate.negatives))
    return Rate(value=nearest(estimate.auc, step), lower=down(estimate.lower, step), upper=up(estimate.upper, step))


def step_for(units: int) -> float:
    """The step of rounding for rates over so many units: .001, or the next of 1-2-5 that is at least 2 / units."""
    return next((step for step in _STEPS if step * units >= 2), _STEPS[-1])


def nearest(value: float, step: float) -> float:
    """The nearest multiple of `step`."""
    return round(round(value / step) * step, 3)


def down(value: float, step: float) -> float:
    """The multiple of `step` at or below `value`; 1e-9 of a step is taken for the error of dividing."""
    return round(math.floor(value / step + 1e-9) * step, 3)


def up(value: float, step: float) -> float:
    """The multiple of `step` at or above `value`."""
    return round(math.ceil(value / step - 1e-9) * step, 3)


def _rounded(rate: Rate, step: float) -> Rate:
    return Rate(value=nearest(rate.value, step), lower=down(rate.lower, step), upper=up(rate.upper, step))


def _rounded_if_any(rate: Rate | NotEstimable, step: float) -> Rate | NotEstimable:
    return rate if isinstance(rate, NotEstimable) else _rounded(rate, step)
