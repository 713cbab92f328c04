"""How a model does by group, exactly. What may leave the run is `suppression.published` of it.

Simultaneous bounds are Bonferroni's: m bounds that each fail with probability at most α/m all hold with
probability at least 1 - α, by the union bound, which asks nothing of how they depend on one another. That is
needed here: intersections are made of the same rows as their attributes, a person may have rows in several
groups, and every group is scored by the same model. m counts all gated groups of all attributes, and
whether a group is gated depends on its counts alone, never on how the model does. Each of the four families
(loss and primary metric, upper and lower bounds) holds at its level by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from configs.errors import InternalError
from tasks.fairness import disclosure
from tasks.fairness.cells import Counts, Veil, count
from tasks.fairness.gaps import Ends, Gap, gap, pair_level
from tasks.fairness.groups import is_known
from tasks.statistics.proportions import RateEstimate, RatioEstimate, clopper_pearson, observed_over_expected, rate
from tasks.statistics.roc import AucDifference, AucEstimate, Undefined, auc, auc_difference

Estimate: TypeAlias = RateEstimate | RatioEstimate | AucEstimate | Undefined
MODEL = "model"
OTHERS = ("without_noise", "trees", "champion")
GAP_METRICS = ("auc", "tpr", "fpr", "selection_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """One group, exactly. Never published as it stands.

    Attributes:
        attribute: the attribute's name.
        group: the group's name.
        counts: its exact counts.
        veil: what of it may not be shown.
        metrics: base_rate, auc, tpr, fpr, precision, selection_rate and calibration at the report's level.
        others: AUC of the other models on the same rows, by the names in `OTHERS`.
        gated: whether the gate judges it.
        why_not: why it does not.
        loss: AUC without noise less the model's, with one-sided simultaneous bounds; undefined if not gated.
        primary: the model's AUC with one-sided simultaneous bounds; undefined if not gated.
    """

    attribute: str
    group: str
    counts: Counts
    veil: Veil
    metrics: Mapping[str, Estimate]
    others: Mapping[str, AucEstimate | Undefined]
    gated: bool
    why_not: str
    loss: AucDifference | Undefined
    primary: AucEstimate | Undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessReport:
    """All groups of all attributes, declared ones without rows among them.

    Attributes:
        groups: in the order of the attributes, declared groups first.
        gaps: by attribute and metric.
        declared: by attribute, the groups that the configuration names.
        level: of every interval, and of every family of simultaneous bounds.
        gated: number of gated groups, over which the bounds are simultaneous.
    """

    groups: tuple[GroupResult, ...]
    gaps: tuple[Gap, ...]
    declared: Mapping[str, tuple[str, ...]]
    level: float
    gated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    labels: NDArray[np.bool_]
    persons: NDArray[np.intp]
    scores: Mapping[str, NDArray[np.float64] | None]
    threshold: float

    def where(self, mask: NDArray[np.bool_]) -> "_Rows":
        scores = {name: None if values is None else values[mask] for name, values in self.scores.items()}
        return _Rows(labels=self.labels[mask], persons=self.persons[mask], scores=scores, threshold=self.threshold)

    @property
    def model(self) -> NDArray[np.float64]:
        scores = self.scores[MODEL]
        if scores is None:
            raise InternalError("fairness: there are no scores of the model itself")
        return scores


def group_report(
    *,
    labels: ArrayLike,
    groups: Mapping[str, NDArray[np.object_]],
    declared: Mapping[str, tuple[str, ...]],
    persons: Any,
    scores: Mapping[str, NDArray[np.float64] | None],
    threshold: float,
    min_count: int,
    level: float = 0.95,
) -> FairnessReport:
    """Judge a model by group.

    Args:
        labels: [rows] of 0 and 1.
        groups: by attribute or intersection, the group of each row.
        declared: by the same names, the groups that must appear, with rows or without.
        persons: [rows] of ids; None where each row is a person.
        scores: probabilities [rows] of `model`, and of those in `OTHERS` that there are; None for no such.
        threshold: probability from which the deployed model flags.
        min_count: fewest positives and negatives for a group to be gated.
        level: confidence level, in (0, 1).

    Raises:
        InternalError: if lengths differ, attributes differ, or a group is neither declared, unknown nor other:
            its name could be a record's value.
    """
    rows = _rows(labels, persons, scores, threshold)
    names = _names(groups, declared, rows.labels.size)
    keys = [(attribute, group) for attribute in names for group in names[attribute]]
    parts = [rows.where(groups[attribute] == group) for attribute, group in keys]
    rates = [_rates(part, level) for part in parts]
    counts = [_counts(part, found) for part, found in zip(parts, rates, strict=True)]
    veils = disclosure.veils(counts, disclosure.sums(names, groups), min_count=min_count) if keys else ()
    why = [_why_not(count, veil, min_count) for count, veil in zip(counts, veils, strict=True)]
    gated = why.count("")
    results = tuple(
        GroupResult(
            attribute=attribute,
            group=group,
            counts=counts[at],
            veil=veils[at],
            metrics=_metrics(parts[at], rates[at], level),
            others={name: _auc(parts[at], name, level) for name in OTHERS},
            gated=not why[at],
            why_not=why[at],
            loss=_loss(parts[at], 1 - (1 - level) / gated) if not why[at] else Undefined(reason=why[at]),
            primary=_auc(parts[at], MODEL, 1 - 2 * (1 - level) / gated) if not why[at] else Undefined(reason=why[at]),
        )
        for at, (attribute, group) in enumerate(keys)
    )
    gaps = _gaps(results, parts, level)
    return FairnessReport(groups=results, gaps=gaps, declared=dict(declared), level=level, gated=gated)


def _rows(labels: ArrayLike, persons: Any, scores: Mapping[str, Any], threshold: float) -> _Rows:
    label = np.asarray(labels)
    if label.ndim != 1 or not np.isin(label, (0, 1)).all():
        raise InternalError("fairness: labels must be a vector of 0 and 1")
    owner = np.arange(label.size) if persons is None else np.asarray(persons)
    columns = {name: None if (found := scores.get(name)) is None else np.asarray(found) for name in (MODEL, *OTHERS)}
    if any(column is not None and column.shape != label.shape for column in (owner, *columns.values())):
        raise InternalError("fairness: labels, persons and scores must be vectors of one length")
    codes = pd.factorize(owner, use_na_sentinel=False)[0]
    return _Rows(labels=label.astype(bool), persons=codes, scores=columns, threshold=threshold)


def _names(groups: Mapping[str, Any], declared: Mapping[str, tuple[str, ...]], rows: int) -> dict[str, tuple[str, ...]]:
    """By attribute, the declared groups and then what else has rows."""
    if set(groups) != set(declared) or any(np.shape(column) != (rows,) for column in groups.values()):
        raise InternalError("fairness: every attribute needs its declared groups, and a group for each row")
    names: dict[str, tuple[str, ...]] = {}
    for attribute, column in groups.items():
        more = sorted(set(column) - set(declared[attribute]))
        if not all(is_known(group, declared[attribute]) for group in more):
            raise InternalError("fairness: a group has a name that its attribute does not declare; it is withheld")
        names[attribute] = (*declared[attribute], *more)
    return names


def _rates(rows: _Rows, level: float) -> dict[str, RateEstimate | Undefined]:
    """The shares of the group, each over the rows that it is a share of."""
    labels, model = rows.labels, rows.model
    everyone = np.ones(labels.size, dtype=bool)
    flagged = model >= rows.threshold
    broken = Undefined(reason="a score is not finite") if not np.isfinite(model).all() else None

    def share(hits: NDArray[np.bool_], among: NDArray[np.bool_], nobody: str) -> RateEstimate | Undefined:
        found = rate(hits=hits[among], clusters=rows.persons[among], level=level)
        return Undefined(reason=nobody) if labels.size and not among.any() else found

    return {
        "base_rate": share(labels, everyone, ""),
        "tpr": broken or share(flagged, labels, "no row is positive"),
        "fpr": broken or share(flagged, ~labels, "every row is positive"),
        "precision": broken or share(labels, flagged, "the model flags no row"),
        "selection_rate": broken or share(flagged, everyone, ""),
    }


def _counts(rows: _Rows, rates: Mapping[str, RateEstimate | Undefined]) -> Counts:
    return count(labels=rows.labels, flagged=rows.model >= rows.threshold, persons=rows.persons, rates=rates)


def _metrics(rows: _Rows, rates: Mapping[str, RateEstimate | Undefined], level: float) -> dict[str, Estimate]:
    calibration = observed_over_expected(labels=rows.labels, predicted=rows.model, clusters=rows.persons, level=level)
    base_rate = rates["base_rate"]
    rest = {name: found for name, found in rates.items() if name != "base_rate"}
    return {"base_rate": base_rate, "auc": _auc(rows, MODEL, level), **rest, "calibration": calibration}


def _auc(rows: _Rows, name: str, level: float) -> AucEstimate | Undefined:
    scores = rows.scores[name]
    if scores is None:
        return Undefined(reason="there is no such model to compare with")
    return auc(labels=rows.labels, scores=scores, clusters=rows.persons, level=level)


def _loss(rows: _Rows, level: float) -> AucDifference | Undefined:
    """AUC without noise less the model's; each bound one-sided at `level`."""
    without = rows.scores["without_noise"]
    if without is None:
        return Undefined(reason="there is no model without noise to compare with")
    return auc_difference(labels=rows.labels, scores_a=without, scores_b=rows.model, clusters=rows.persons, level=level)


def _why_not(counts: Counts, veil: Veil, min_count: int) -> str:
    """Why a group is not gated, "" if it is."""
    if counts.of("rows") == 0:
        return "there are no rows"
    if veil.everything:
        return "its numbers are not shown, for they would tell of few people"
    if counts.of("positives") < min_count:
        return f"fewer than {min_count} with the outcome"
    if counts.of("negatives") < min_count:
        return f"fewer than {min_count} without the outcome"
    return ""


def _gaps(results: Sequence[GroupResult], parts: Sequence[_Rows], level: float) -> tuple[Gap, ...]:
    attributes = dict.fromkeys(result.attribute for result in results)
    found = []
    for attribute in attributes:
        gated = [at for at, result in enumerate(results) if result.attribute == attribute and result.gated]
        pair = pair_level(len(gated), level)
        for metric in GAP_METRICS:
            ends = [_ends(results[at].metrics[metric], parts[at], pair) for at in gated]
            found.append(Gap(attribute=attribute, metric=metric, gap=gap(ends)))
    return tuple(found)


def _ends(found: Estimate, rows: _Rows, level: float) -> Ends | Undefined:
    """An estimate with its interval at another level."""
    if isinstance(found, RateEstimate):
        lower, upper = clopper_pearson(share=found.rate, size=found.effective, level=level)
        return Ends(value=found.rate, lower=lower, upper=upper)
    again = _auc(rows, MODEL, level)
    return Ends(value=again.auc, lower=again.lower, upper=again.upper) if isinstance(again, AucEstimate) else again
