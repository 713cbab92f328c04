"""The area under the ROC curve with an interval that knows persons, and the paired difference of two.

Estimator and variance: DeLong, DeLong and Clarke-Pearson (1988), computed from midranks in O(n log n) after
Sun and Xu (2014). With several rows per person: Obuchowski (1997), eq. 4 to 6, which sums the structural
components within a person before taking their spread, and so equals DeLong where every person has one row.

Undefined is a state, not a number: what cannot be estimated comes back as `Undefined` with the reason, never
as NaN, 0 or .5.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import norm, rankdata

from configs.errors import InternalError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undefined:
    """A metric that these rows do not define. `reason` is a sentence without any count."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AucEstimate:
    """An AUC with its two-sided interval.

    Attributes:
        auc: P(score of a positive > score of a negative) + half the ties, in [0, 1].
        standard_error: of `auc`, over persons where clusters were given.
        lower: lower end of the interval, in [0, 1].
        upper: upper end of the interval, in [0, 1].
        positives: rows with label 1. Exact, so not for publication as it stands.
        negatives: rows with label 0.
    """

    auc: float
    standard_error: float
    lower: float
    upper: float
    positives: int
    negatives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AucDifference:
    """AUC of model a minus AUC of model b on the same rows.

    Attributes:
        difference: in [-1, 1]; positive where a ranks better.
        standard_error: of the paired difference.
        lower: one-sided lower bound at the level asked for.
        upper: one-sided upper bound at the same level; each holds by itself, not both at once.
    """

    difference: float
    standard_error: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Labels and persons of the rows: `positive` bool [n], `person` codes [n] in [0, persons)."""

    positive: NDArray[np.bool_]
    person: NDArray[np.intp]
    persons: int

    def per_person(self, values: ArrayLike, where: NDArray[np.bool_]) -> Floats:
        """Sum `values` [where.sum()] within each person: [persons]."""
        sums = np.bincount(self.person[where], weights=np.asarray(values), minlength=self.persons)
        return sums.astype(np.float64)

    def counts(self) -> tuple[Floats, Floats]:
        """Positive and negative rows of each person: [persons], [persons]."""
        rows = np.ones(self.positive.size)
        return (
            self.per_person(rows[self.positive], self.positive),
            self.per_person(rows[~self.positive], ~self.positive),
        )


def auc(*, labels: ArrayLike, scores: ArrayLike, clusters: Any = None, level: float = 0.95) -> AucEstimate | Undefined:
    """Estimate the AUC, with a two-sided interval on the logit scale.

    Where the estimate is 0 or 1, or its standard error is 0, that interval collapses to a point, and a bound
    without a distribution takes its place (`_radius`).

    Args:
        labels: [n] of 0 and 1 (or bool).
        scores: [n], higher means more likely 1; any monotone scale.
        clusters: [n] of person ids where a person may have several rows; None for one row a person.
        level: two-sided confidence level, in (0, 1).

    Returns:
        The estimate, or why there is none: no rows, one class only, fewer than two persons in a class, or
        scores that are not finite.

    Raises:
        InternalError: if lengths differ or a label is neither 0 nor 1.
    """
    rows, columns = _checked(labels, clusters, scores)
    problem = _problem(rows, columns)
    if problem is not None:
        return problem
    value, v10, v01 = _components(rows, columns[0])
    error = _standard_error(rows, v10 - value, v01 - value)
    lower, upper = _interval(rows, value, error, level)
    return AucEstimate(
        auc=value,
        standard_error=error,
        lower=lower,
        upper=upper,
        positives=int(v10.size),
        negatives=int(v01.size),
    )


def auc_difference(
    *, labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, clusters: Any = None, level: float = 0.95
) -> AucDifference | Undefined:
    """Estimate AUC(a) - AUC(b) on the same rows, with one-sided bounds on the plain scale.

    The variance is that of the paired structural components, so what both models find hard cancels. Where it
    is 0, the normal bound would claim certainty: see `_degenerate_radius`.

    Args:
        labels: [n] of 0 and 1 (or bool).
        scores_a: [n] scores of model a.
        scores_b: [n] scores of model b.
        clusters: [n] of person ids; None for one row a person.
        level: one-sided confidence level of each bound, in (0, 1).

    Returns:
        The difference, or why there is none.

    Raises:
        InternalError: if lengths differ or a label is neither 0 nor 1.
    """
    rows, columns = _checked(labels, clusters, scores_a, scores_b)
    problem = _problem(rows, columns)
    if problem is not None:
        return problem
    auc_a, a10, a01 = _components(rows, columns[0])
    auc_b, b10, b01 = _components(rows, columns[1])
    value = auc_a - auc_b
    error = _standard_error(rows, a10 - b10 - value, a01 - b01 - value)
    radius = float(norm.ppf(level)) * error if error > 0 else _degenerate_radius(rows, columns, level)
    return AucDifference(
        difference=value,
        standard_error=error,
        lower=max(-1.0, value - radius),
        upper=min(1.0, value + radius),
    )


def _checked(labels: ArrayLike, clusters: Any, *scores: ArrayLike) -> tuple[_Rows, list[Floats]]:
    """Bring labels, persons and scores into arrays of one length."""
    label = np.asarray(labels)
    columns = [np.asarray(column, dtype=np.float64) for column in scores]
    sizes = {label.shape, *(column.shape for column in columns)}
    if clusters is not None:
        sizes.add(np.shape(clusters))
    if len(sizes) != 1 or label.ndim != 1:
        raise InternalError("AUC: labels, scores and clusters must be vectors of one length")
    if not np.isin(label, (0, 1)).all():
        raise InternalError("AUC: every label must be 0 or 1")
    if clusters is None:
        person, persons = np.arange(label.size), label.size
    else:
        person, names = pd.factorize(np.asarray(clusters), use_na_sentinel=False)
        persons = len(names)
    return _Rows(positive=label.astype(bool), person=person, persons=persons), columns


def _problem(rows: _Rows, columns: list[Floats]) -> Undefined | None:
    """Why these rows define no AUC with an interval, if so."""
    if rows.positive.size == 0:
        return Undefined(reason="there are no rows")
    if rows.positive.all():
        return Undefined(reason="every row is positive")
    if not rows.positive.any():
        return Undefined(reason="no row is positive")
    if not all(np.isfinite(column).all() for column in columns):
        return Undefined(reason="a score is not finite")
    if min(np.count_nonzero(count) for count in rows.counts()) < 2:
        return Undefined(reason="a class has rows of one person only, which leaves no spread to judge by")
    return None


def _components(rows: _Rows, scores: Floats) -> tuple[float, Floats, Floats]:
    """AUC and DeLong's structural components: V10 [positives], V01 [negatives], each averaging to the AUC."""
    above, below = scores[rows.positive], scores[~rows.positive]
    ranks = rankdata(np.concatenate([above, below]))
    v10 = (ranks[: above.size] - rankdata(above)) / below.size
    v01 = 1 - (ranks[above.size :] - rankdata(below)) / above.size
    return float(v10.mean()), v10, v01


def _standard_error(rows: _Rows, v10: Floats, v01: Floats) -> float:
    """Obuchowski's standard error of a mean of centred components, V10 [positives] and V01 [negatives].

    The third term is the covariance between a person's own positive and negative rows; it vanishes where no
    person has both.
    """
    positives, negatives = rows.counts()
    sum10, sum01 = rows.per_person(v10, rows.positive), rows.per_person(v01, ~rows.positive)
    variance = (
        _unbiased(positives) * (sum10 @ sum10) / v10.size**2
        + _unbiased(negatives) * (sum01 @ sum01) / v01.size**2
        + 2 * _unbiased(positives + negatives) * (sum10 @ sum01) / (v10.size * v01.size)
    )
    # Rounding of midranks leaves about 1e-16 where the spread is exactly 0; a negative estimate can only come
    # from the covariance term in tiny samples. Both are treated as no spread, that is, as the wide interval.
    return math.sqrt(variance) if variance > 1e-24 else 0.0


def _unbiased(counts: Floats) -> float:
    """K / (K - 1) for the K persons with a row among `counts` [persons]."""
    persons = int(np.count_nonzero(counts))
    return persons / (persons - 1)


def _interval(rows: _Rows, value: float, error: float, level: float) -> tuple[float, float]:
    """Two-sided interval: on the logit scale, or by `_radius` where that one collapses."""
    if error == 0 or value in (0.0, 1.0):
        radius = _radius(rows, (1 - level) / 2)
        return max(0.0, value - radius), min(1.0, value + radius)
    half = float(norm.ppf((1 + level) / 2)) * error / (value * (1 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def _radius(rows: _Rows, tail: float) -> float:
    """Deviation that an AUC exceeds with probability at most `tail`, whatever the distribution.

    Hoeffding (1963), section 5, for a two-sample statistic where persons weigh alike and none has rows of
    both classes; otherwise McDiarmid (1989): a person with m of M positives and n of N negatives moves the
    AUC by at most m/M + n/N.
    """
    positives, negatives = (count / count.sum() for count in rows.counts())
    alike = all(np.ptp(share[share > 0]) == 0 for share in (positives, negatives))
    if alike and not np.any(positives * negatives):
        squares = max(positives @ positives, negatives @ negatives)
    else:
        squares = np.sum((positives + negatives) ** 2)
    return math.sqrt(math.log(1 / tail) * float(squares) / 2)


def _degenerate_radius(rows: _Rows, columns: list[Floats], level: float) -> float:
    """Radius of a difference without spread, exceeded with probability at most 1 - `level`.

    Two models that rank all rows alike differ on none of k disjoint pairs of persons. Were the chance of
    differing on a pair above 1 - (1 - level)^(1/k), that would happen with probability below 1 - level
    (the rule of three); and the AUCs differ by no more than that chance. Any other difference without spread
    gets the distribution-free radius, doubled as a pair's contribution lies in [-1, 1].
    """
    first, second = (np.unique(column, return_inverse=True)[1] for column in columns)
    if not np.array_equal(first, second):
        return 2 * _radius(rows, 1 - level)
    positives, negatives = (np.count_nonzero(count) for count in rows.counts())
    pairs = min(positives, negatives, rows.persons // 2)
    return 1 - (1 - level) ** (1 / pairs)
