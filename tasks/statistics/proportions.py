"""Shares and the ratio of observed to expected, with intervals that know persons.

A share's interval is Clopper and Pearson (1934). With several rows a person it is that of Korn and Graubard
(1998), "Confidence intervals for proportions with small expected number of positive counts estimated from
survey data", section 2: the same formula at an effective sample size, the number of independent rows that
would leave the variance found between persons. It is never taken above the number of rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import t as student

from configs.errors import InternalError
from tasks.statistics.roc import Undefined

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEstimate:
    """A share with its two-sided interval.

    Attributes:
        rate: hits / rows, in [0, 1].
        lower: lower end of the interval, in [0, 1].
        upper: upper end of the interval, in [0, 1].
        hits: rows that count. Exact, so not for publication as it stands.
        rows: all rows; exact too.
        effective: sample size that the interval was computed at, in (0, rows].
    """

    rate: float
    lower: float
    upper: float
    hits: int
    rows: int
    effective: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioEstimate:
    """Observed over expected with its two-sided interval: 1 is calibrated in the large, above 1 predicts too little."""

    ratio: float
    lower: float
    upper: float


def rate(*, hits: ArrayLike, clusters: Any = None, level: float = 0.95) -> RateEstimate | Undefined:
    """Estimate a share.

    Args:
        hits: [n] of bool, or of 0 and 1.
        clusters: [n] of person ids where a person may have several rows; None for one row a person.
        level: two-sided confidence level, in (0, 1).

    Returns:
        The estimate. No rows, or rows of one person that disagree, define none.

    Raises:
        InternalError: if `hits` is no vector of 0 and 1, or lengths differ.
    """
    values = _binary(hits)
    if values.size == 0:
        return Undefined(reason="there are no rows")
    person, persons = _persons(clusters, values.size)
    share = float(values.mean())
    if share in (0.0, 1.0):
        # No spread is seen, so the persons, and not their rows, are what is known to be independent.
        size = float(persons)
    elif persons == 1:
        return Undefined(reason="all rows are of one person, which leaves no spread to judge by")
    else:
        size = _effective_size(values, person, persons, share, level)
    lower, upper = clopper_pearson(share=share, size=size, level=level)
    hit_rows = int(np.count_nonzero(values))
    return RateEstimate(rate=share, lower=lower, upper=upper, hits=hit_rows, rows=values.size, effective=size)


def clopper_pearson(*, share: float, size: float, level: float) -> tuple[float, float]:
    """Ends of the interval for `share` · `size` hits in `size` rows, neither of which need be whole.

    Args:
        share: in [0, 1].
        size: above 0.
        level: two-sided confidence level, in (0, 1).
    """
    hits, misses, tail = share * size, (1 - share) * size, (1 - level) / 2
    lower = float(betaincinv(hits, misses + 1, tail)) if hits > 0 else 0.0
    upper = float(betaincinv(hits + 1, misses, 1 - tail)) if misses > 0 else 1.0
    return lower, upper


def observed_over_expected(
    *, labels: ArrayLike, predicted: ArrayLike, clusters: Any = None, level: float = 0.95
) -> RatioEstimate | Undefined:
    """Estimate Σ labels / Σ predicted.

    The variance of its logarithm is that of a ratio of two sums over persons, by linearisation (Cochran 1977,
    section 6.3): a person's contribution is Σ (label - ratio · predicted). Where all labels are the same, or
    the contributions vanish, that interval collapses, and the share's own is taken, over the mean prediction.

    Args:
        labels: [n] of 0 and 1.
        predicted: [n] probabilities in [0, 1].
        clusters: [n] of person ids; None for one row a person.
        level: two-sided confidence level, in (0, 1).

    Raises:
        InternalError: if lengths differ, a label is neither 0 nor 1, or a prediction is outside [0, 1].
    """
    label, expected = _binary(labels), np.asarray(predicted, dtype=np.float64)
    if label.shape != expected.shape:
        raise InternalError("calibration: labels and predictions must be vectors of one length")
    if not np.isfinite(expected).all():
        return Undefined(reason="a score is not finite")
    if np.any((expected < 0) | (expected > 1)):
        raise InternalError("calibration: every prediction must be a probability")
    share = rate(hits=label, clusters=clusters, level=level)
    if isinstance(share, Undefined):
        return share
    if expected.sum() == 0:
        return Undefined(reason="the model expects no positive at all")
    ratio = float(label.sum() / expected.sum())
    person, persons = _persons(clusters, label.size)
    spread = float(np.sum(np.bincount(person, weights=label - ratio * expected, minlength=persons) ** 2))
    if share.rate in (0.0, 1.0) or spread < 1e-18 * label.size:
        mean = float(expected.mean())
        return RatioEstimate(ratio=ratio, lower=share.lower / mean, upper=share.upper / mean)
    error = math.sqrt(persons / (persons - 1) * spread) / float(label.sum())
    factor = math.exp(float(student.ppf((1 + level) / 2, persons - 1)) * error)
    return RatioEstimate(ratio=ratio, lower=ratio / factor, upper=ratio * factor)


def _binary(values: ArrayLike) -> Floats:
    """Values as float64 [n], each 0 or 1."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise InternalError("a share needs a vector of 0 and 1")
    return array.astype(np.float64)


def _persons(clusters: Any, rows: int) -> tuple[NDArray[np.intp], int]:
    """Codes [rows] of the persons, and how many persons there are."""
    if clusters is None:
        return np.arange(rows), rows
    if np.shape(clusters) != (rows,):
        raise InternalError("a share's clusters must be a vector of the rows' length")
    person, names = pd.factorize(np.asarray(clusters), use_na_sentinel=False)
    return person, len(names)


def _effective_size(values: Floats, person: NDArray[np.intp], persons: int, share: float, level: float) -> float:
    """Korn and Graubard's size: rows over the design effect, less what few persons leave unknown of it."""
    rows = values.size
    if persons == rows:
        return float(rows)
    sums = np.bincount(person, weights=values - share, minlength=persons)
    # Both variances divide by their number less one, so that one row a person gives an effect of exactly 1.
    between = persons / (persons - 1) * float(sums @ sums) / rows**2
    effect = between * (rows - 1) / (share * (1 - share))
    tail = (1 + level) / 2
    freedom = float(student.ppf(tail, rows - 1) / student.ppf(tail, persons - 1)) ** 2
    return min(float(rows), rows / effect * freedom) if effect > 0 else float(rows)
