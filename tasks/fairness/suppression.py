"""What may leave the run of a fairness report: one pure function, `published`.

Of every group's counts a reader is told what `cells.display` tells and no more: the size in words, and of each
rate that is not hidden the value to two decimals and its interval's size rounded down, from which the
published interval is computed anew. Which groups and rates are hidden, so that no cell of 1 to 10 people can
be read or derived, is decided in `disclosure` and stands in the report.

An AUC, its bounds and a calibration are no counts, and depend on scores that nobody is shown; they are told
of groups with more than ten people in each class only, to two decimals, or three if the group is gated.
Where such an estimate has no spread, its bounds are a function of the counts, and lose a decimal more.
"""

from dataclasses import dataclass

from tasks.fairness.cells import DECIMALS, coarse_rate, hidden_words, outward, words
from tasks.fairness.gaps import Ends, Gap, gap, pair_level
from tasks.fairness.groups import shown
from tasks.fairness.report import OTHERS, FairnessReport, GroupResult
from tasks.fairness.slugs import slugs
from tasks.statistics.proportions import RateEstimate, RatioEstimate
from tasks.statistics.roc import AucDifference, AucEstimate, Undefined

HIDDEN = "not shown, for it would tell of few people"
_MOST_DECIMALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number with its interval, or the reason why there is none.

    Attributes:
        value: the estimate; None if undefined or hidden.
        lower: lower bound, rounded down.
        upper: upper bound, rounded up.
        why: why there is no number.
    """

    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGroup:
    """One group, as it may be shown.

    Attributes:
        attribute: the attribute's name.
        group: the group's name for a reader.
        name: its name in the configuration and in the report.
        rows: "about 3,800", "10 or fewer" or, of a hidden group, "more than 10" or "not shown".
        shown: whether any number of it is shown.
        metrics: (name, number): base_rate, auc, tpr, fpr, precision, selection_rate, calibration.
        without_noise: AUC of the same recipe without noise on the same rows.
        trees: AUC of boosted trees without privacy.
        champion: AUC of the champion.
        loss: AUC without noise less the model's; each bound one-sided, simultaneous over the gated groups.
        primary: the model's AUC; each bound one-sided, simultaneous over the gated groups.
        gated: whether the gate judges it.
        why_not: why it does not.
    """

    attribute: str
    group: str
    name: str
    rows: str
    shown: bool
    metrics: tuple[tuple[str, Number], ...]
    without_noise: Number
    trees: Number
    champion: Number
    loss: Number
    primary: Number
    gated: bool
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedReport:
    """A fairness report that may leave the run.

    Attributes:
        groups: all groups, hidden ones without numbers.
        gaps: (attribute, metric, highest less lowest among the gated groups).
        level: of every interval, and of every family of simultaneous bounds.
    """

    groups: tuple[PublishedGroup, ...]
    gaps: tuple[tuple[str, str, Number], ...]
    level: float


def published(report: FairnessReport) -> PublishedReport:
    """What of a report may be shown to anybody.

    Args:
        report: exact, with the veils that hide its small cells.

    Returns:
        Words and rounded numbers, of which no cell of 1 to 10 people can be read or derived.
    """
    groups = tuple(_group(result, report) for result in report.groups)
    gaps = tuple((found.attribute, found.metric, _gap(found, report)) for found in report.gaps)
    return PublishedReport(groups=groups, gaps=gaps, level=report.level)


def metrics(report: PublishedReport) -> dict[str, float]:
    """The numbers for the tracking server, `fairness/<attribute>/<group>/<metric>`.

    Hidden groups are not even named. What is undefined is not logged as a number but counted, under the
    metric `undefined`.
    """
    parts = _parts(report)
    logged: dict[str, float] = {}
    for group in report.groups:
        if not group.shown:
            continue
        path = f"fairness/{parts[group.attribute, None]}/{parts[group.attribute, group.name]}"
        found = dict(group.metrics)
        found |= {f"auc_{name}": getattr(group, name) for name in OTHERS if getattr(group, name).value is not None}
        logged |= {f"{path}/{name}": number.value for name, number in found.items() if number.value is not None}
        logged[f"{path}/undefined"] = float(sum(number.value is None for number in found.values()))
        if group.loss.value is not None and group.loss.lower is not None and group.loss.upper is not None:
            logged[f"{path}/privacy_loss"] = group.loss.value
            logged[f"{path}/privacy_loss_lower"] = group.loss.lower
            logged[f"{path}/privacy_loss_upper"] = group.loss.upper
    return logged


def names(report: PublishedReport) -> dict[str, str]:
    """The real name behind each part of a metric's key: `<attribute>` and `<attribute>/<group>`, as in `metrics`."""
    parts = _parts(report)
    real: dict[str, str] = {}
    for group in report.groups:
        if group.shown:
            attribute = parts[group.attribute, None]
            real[attribute] = group.attribute
            real[f"{attribute}/{parts[group.attribute, group.name]}"] = group.group
    return real


def _parts(report: PublishedReport) -> dict[tuple[str, str | None], str]:
    """Key parts by (attribute, None) and (attribute, group), of shown groups only."""
    visible = [group for group in report.groups if group.shown]
    attributes = slugs(dict.fromkeys(group.attribute for group in visible))
    parts: dict[tuple[str, str | None], str] = {(name, None): part for name, part in attributes.items()}
    for attribute in attributes:
        named = slugs(group.name for group in visible if group.attribute == attribute)
        parts |= {(attribute, name): part for name, part in named.items()}
    return parts


def _group(result: GroupResult, report: FairnessReport) -> PublishedGroup:
    hidden = result.veil.everything
    decimals = _MOST_DECIMALS if result.gated else DECIMALS
    nothing = Number(why=HIDDEN)

    def told(found: RatioEstimate | AucEstimate | AucDifference | Undefined) -> Number:
        return nothing if hidden else _number(found, decimals)

    rows = result.counts.of("rows")
    return PublishedGroup(
        attribute=result.attribute,
        group=shown(result.group, report.declared[result.attribute]),
        name=result.group,
        rows=hidden_words(rows, result.veil) if hidden else words(rows),
        shown=not hidden,
        metrics=tuple((name, nothing if hidden else _metric(result, name, report.level)) for name in result.metrics),
        without_noise=told(result.others["without_noise"]),
        trees=told(result.others["trees"]),
        champion=told(result.others["champion"]),
        loss=told(result.loss),
        primary=told(result.primary),
        gated=result.gated,
        why_not=HIDDEN if hidden else result.why_not,
    )


def _metric(result: GroupResult, name: str, level: float) -> Number:
    found = result.metrics[name]
    if isinstance(found, RateEstimate):
        return _rate(result, name, found, level)
    if name in result.counts.effects and name not in result.veil.rates():
        return Number(why=HIDDEN)
    return _number(found, _MOST_DECIMALS if result.gated and name == "auc" else DECIMALS)


def _rate(result: GroupResult, name: str, found: RateEstimate, level: float) -> Number:
    if name not in result.veil.rates():
        return Number(why=HIDDEN)
    value, lower, upper = coarse_rate(found, result.counts.effects[name], level)
    return Number(value=value, lower=lower, upper=upper)


def _number(found: RatioEstimate | AucEstimate | AucDifference | Undefined, decimals: int) -> Number:
    """An estimate rounded, its bounds outwards, or why there is none."""
    if isinstance(found, Undefined):
        return Number(why=found.reason)
    if isinstance(found, RatioEstimate):
        value, ends = found.ratio, decimals
    else:
        value = found.auc if isinstance(found, AucEstimate) else found.difference
        ends = decimals if found.standard_error > 0 else decimals - 1
    return Number(
        value=round(value, decimals) + 0.0,  # no negative zero
        lower=outward(found.lower, -1, ends),
        upper=outward(found.upper, 1, ends),
    )


def _gap(found: Gap, report: FairnessReport) -> Number:
    """A gap of AUCs rounded; one of rates anew, from what is shown of the groups."""
    if isinstance(found.gap, Undefined):
        return Number(why=found.gap.reason)
    if found.metric == "auc":
        return _ends(found.gap, _MOST_DECIMALS)
    gated = [result for result in report.groups if result.gated and result.attribute == found.attribute]
    level, ends = pair_level(len(gated), report.level), []
    for result in gated:
        number = _metric(result, found.metric, level)
        if number.value is None or number.lower is None or number.upper is None:
            return Number(why="a group's rate is not shown, for it would tell of few people")
        ends.append(Ends(value=number.value, lower=number.lower, upper=number.upper))
    again = gap(ends)
    return Number(why=again.reason) if isinstance(again, Undefined) else _ends(again, DECIMALS)


def _ends(found: Ends, decimals: int) -> Number:
    lower, upper = outward(found.lower, -1, decimals), outward(found.upper, 1, decimals)
    return Number(value=round(found.value, decimals), lower=lower, upper=upper)
