# pyright: strict
"""The limits that an owner may set in `gates:`, and how a policy is read.

`LIMITS` holds one line a limit. A limit on groups gives a reason for every group that does not keep it, and one for
all that do; groups with too few people are named, and never count as passed.
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from configs.errors import ConfigurationError
from tasks.registry.bounds import apart, bounded
from tasks.registry.evidence import Evidence, Interval, Judged, Missing, Reason

DEFAULT_MIN_COUNT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy that was checked.

    Attributes:
        limits: by the names in `LIMITS`, at least one.
        min_count: positives and negatives that make a group gated.
        required: groups, as `attribute/group`, that must be gated.
    """

    limits: Mapping[str, float]
    min_count: int
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit an owner may set.

    Attributes:
        judge: the gate itself.
        low: smallest limit that makes sense.
        high: largest limit that makes sense.
        meaning: of the limit, for the message that refuses one.
        absolute: judges the model by itself, so that it can judge a first model.
        groups: looks at groups.
    """

    judge: Callable[[float, Evidence], list[Reason]]
    low: float
    high: float
    meaning: str
    absolute: bool
    groups: bool = False


def check_policy(policy: Mapping[str, object], *, source: str = "gates") -> Policy:
    """Read a policy.

    Args:
        policy: limits by name, and the settings `min_count` and `required`.
        source: the file or section that holds them, for the message.

    Raises:
        ConfigurationError: naming every fault: no limit at all, an unknown key (with the nearest known one),
            a limit that is null, not a number, not finite, or out of range; a setting that is none.
    """
    faults: list[str] = []
    limits: dict[str, float] = {}
    min_count, required = DEFAULT_MIN_COUNT, tuple[str, ...]()
    for key, value in policy.items():
        if key == "min_count":
            if isinstance(value, bool) or not isinstance(value, int) or value < 11:
                faults.append(f"min_count = {value!r}: must be a whole number of at least 11")
            else:
                min_count = value
        elif key == "required":
            names = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else None
            if names is None or not all(isinstance(name, str) for name in names):
                faults.append(f"required = {value!r}: must be a list of groups, each `attribute/group`")
            else:
                required = tuple(cast("Sequence[str]", names))
        elif isinstance(limit := _limit(key, value), str):
            faults.append(limit)
        else:
            limits[key] = limit
    if not limits and not faults:
        known = ", ".join(LIMITS)
        faults.append(f"the policy sets no limit, so it would pass every model; set at least one of: {known}")
    if faults:
        raise ConfigurationError.of(source, faults)
    return Policy(limits=MappingProxyType(limits), min_count=min_count, required=required)


def _limit(key: str, value: object) -> float | str:
    """The limit on one line of a policy, or what is wrong with the line and how to mend it."""
    gate = LIMITS.get(key)
    if gate is None:
        near = difflib.get_close_matches(key, LIMITS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known limits: {', '.join(LIMITS)}"
        return f"{key}: no such limit; {hint}"
    bounds = f"{gate.low:g} to {gate.high:g}"
    if value is None:
        return f"{key}: null is no limit; give a number from {bounds}, or remove the line"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"{key} = {value!r}: must be a finite number from {bounds}"
    if not gate.low <= value <= gate.high:
        return f"{key} = {value:g}: must lie in {bounds} ({gate.meaning})"
    return float(value)


def _min_auc(limit: float, evidence: Evidence) -> list[Reason]:
    what = "AUC on the hold-out"
    return [bounded(gate="min_auc", what=what, found=evidence.auc, span=(0, 1), limit=limit, at_least=True)]


def _max_auc_drop(limit: float, evidence: Evidence) -> list[Reason]:
    if evidence.champion_version is None:
        return []  # a first model: recorded by the gate itself
    what = f"drop in AUC against the champion (version {evidence.champion_version})"
    found = evidence.auc_drop
    return [bounded(gate="max_auc_drop", what=what, found=found, span=(-1, 1), limit=limit, at_least=False)]


def _max_privacy_loss(limit: float, evidence: Evidence) -> list[Reason]:
    def one(group: Judged) -> Reason:
        return bounded(
            gate="max_privacy_loss",
            what=f"what noise costs {group.name} in AUC",
            found=group.loss,
            span=(-1, 1),
            limit=limit,
            at_least=False,
            group=group.name,
        )

    return _over_groups("max_privacy_loss", limit, evidence, one, "what noise costs a gated group in AUC", most=True)


def _min_group(limit: float, evidence: Evidence) -> list[Reason]:
    def one(group: Judged) -> Reason:
        return bounded(
            gate="min_group",
            what=f"AUC of {group.name}",
            found=group.auc,
            span=(0, 1),
            limit=limit,
            at_least=True,
            group=group.name,
        )

    return _over_groups("min_group", limit, evidence, one, "AUC of a gated group", most=False)


def _over_groups(
    gate: str, limit: float, evidence: Evidence, one: Callable[[Judged], Reason], what: str, *, most: bool
) -> list[Reason]:
    """A reason for every gated group that does not keep the limit, or one for all of them together."""
    groups = evidence.groups
    if isinstance(groups, Missing):
        words = f"the fairness report is missing: {groups.why}; the limit is {limit:g}"
        return [Reason(gate=gate, outcome="blocked", words=words, limit=limit)]
    gated = [group for group in groups if not group.why_not]
    if not gated:
        words = f"{what} cannot be judged: no group has the people it takes; the limit is {limit:g}"
        return [Reason(gate=gate, outcome="insufficient", words=words, limit=limit)]
    reasons = {group.name: one(group) for group in gated}
    failing = [reason for reason in reasons.values() if reason.outcome != "passed"]
    if failing:
        return failing
    bounds = {group.name: group.loss if most else group.auc for group in gated}
    found = {name: bound for name, bound in bounds.items() if isinstance(bound, Interval)}
    worst = max(found, key=lambda name: found[name].upper if most else -found[name].lower)
    edge = apart(found[worst].upper if most else found[worst].lower, limit)
    number = found[worst].estimate
    words = (
        f"{what} is worst for {worst}: {number:.4g}, its {'upper' if most else 'lower'} bound {edge} "
        f"{'is within' if most else 'reaches'} the limit of {limit:g} ({len(gated)} groups judged at once)"
    )
    return [Reason(gate=gate, outcome="passed", words=words, number=number, limit=limit, group=worst)]


def _max_gap(limit: float, evidence: Evidence) -> list[Reason]:
    if not evidence.gaps:
        words = f"gaps between groups are missing: no attribute is declared; the limit is {limit:g}"
        return [Reason(gate="max_gap", outcome="blocked", words=words, limit=limit)]
    reasons: list[Reason] = []
    for gap in evidence.gaps:
        what = f"largest gap in AUC between groups of {gap.attribute}"
        if isinstance(gap.auc, Missing):
            words = f"{what} cannot be judged: {gap.auc.why}; the limit is {limit:g}"
            outcome = "insufficient"
            reasons.append(Reason(gate="max_gap", outcome=outcome, words=words, limit=limit, group=gap.attribute))
            continue
        reasons.append(
            bounded(
                gate="max_gap",
                what=what,
                found=gap.auc,
                span=(0, 1),
                limit=limit,
                at_least=False,
                group=gap.attribute,
            )
        )
    return reasons


LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "min_auc": Limit(
            judge=_min_auc,
            low=0.5,
            high=0.999,
            meaning="the lower bound of the hold-out's AUC must reach it; .5 is guessing",
            absolute=True,
        ),
        "max_auc_drop": Limit(
            judge=_max_auc_drop,
            low=0.0,
            high=0.5,
            meaning="the AUC lost against the champion may not exceed it",
            absolute=False,
        ),
        "max_privacy_loss": Limit(
            judge=_max_privacy_loss,
            low=0.0,
            high=0.5,
            meaning="what noise costs any gated group in AUC may not exceed it",
            absolute=False,
            groups=True,
        ),
        "min_group": Limit(
            judge=_min_group,
            low=0.5,
            high=0.999,
            meaning="the lower bound of every gated group's AUC must reach it",
            absolute=True,
            groups=True,
        ),
        "max_gap": Limit(
            judge=_max_gap,
            low=0.0,
            high=0.5,
            meaning="the gap in AUC between gated groups of one attribute may not exceed it",
            absolute=False,
            groups=True,
        ),
    }
)
