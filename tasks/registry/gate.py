"""The gate: a pure function of a policy and the evidence. It decides whether a model may become champion.

    judge(policy=…, evidence=…) -> Decision(verdict, reasons)

A number passes only if it is finite and inside its limit; NaN, infinity and what is missing block, in words.
An interval that straddles its limit neither passes nor blocks: the verdict is `insufficient`. Every gate is
judged and every reason reported, also those of the gates that passed.

Two kinds of gates: `standing.STANDING` holds what no policy can switch off, `limits.LIMITS` the limits that an owner
sets in `gates:`. A new gate is one function and one line in its table.
"""

from collections.abc import Mapping

from tasks.registry.evidence import Decision, Evidence, Missing, Reason, Verdict
from tasks.registry.limits import LIMITS, Policy, check_policy
from tasks.registry.standing import STANDING

_NAMED = 40  # groups that a sentence names
_ORDER = ("blocked", "insufficient", "passed", "noted")


def judge(*, policy: Mapping[str, object], evidence: Evidence) -> Decision:
    """Judge a model.

    Args:
        policy: limits by the names in `LIMITS`, at least one, and the settings of groups.
        evidence: what is known of the model.

    Returns:
        `promoted` only if every gate passed; `blocked` if any blocked; `insufficient` otherwise.

    Raises:
        ConfigurationError: if the policy is empty, or a key or limit is not one (`check_policy`).
    """
    checked = check_policy(policy)
    reasons = [gate(evidence) for gate in STANDING]
    for name, limit in checked.limits.items():
        reasons += LIMITS[name].judge(limit, evidence)
    reasons += [*_groups(checked, evidence), *_first_model(checked, evidence)]
    outcomes = {reason.outcome for reason in reasons}
    verdict: Verdict = "promoted"
    if "insufficient" in outcomes:
        verdict = "insufficient"
    if "blocked" in outcomes:
        verdict = "blocked"
    return Decision(verdict=verdict, reasons=tuple(sorted(reasons, key=lambda reason: _ORDER.index(reason.outcome))))


def _groups(policy: Policy, evidence: Evidence) -> list[Reason]:
    """The groups that are not gated, by name; those that must be; and evidence from another floor."""
    groups = () if isinstance(evidence.groups, Missing) else evidence.groups
    reasons: list[Reason] = []
    gated = {group.name for group in groups if not group.why_not}
    why = {group.name: group.why_not for group in groups}
    for name in policy.required:
        if name not in gated:
            words = f"{name} is required and cannot be judged: {why.get(name, 'there is no such group')}"
            reasons.append(Reason(gate="required", outcome="insufficient", words=words, group=name))
    judged = any(LIMITS[name].groups for name in policy.limits)
    if judged and policy.min_count != evidence.min_count:
        words = (
            f"groups were judged from {evidence.min_count} positives and negatives on, the policy asks for "
            f"{policy.min_count}: assess again"
        )
        reasons.append(Reason(gate="min_count", outcome="insufficient", words=words, limit=policy.min_count))
    left = [name for name, reason in why.items() if reason and name not in policy.required]
    if left:
        more = f" and {len(left) - _NAMED} more, see the groups on the model card" if len(left) > _NAMED else ""
        words = f"not gated, for they hold too few people: {', '.join(left[:_NAMED])}{more}"
        reasons.append(Reason(gate="groups", outcome="noted", words=words))
    return reasons


def _first_model(policy: Policy, evidence: Evidence) -> list[Reason]:
    """Record that nothing was there to compare with; then, without an absolute limit, nothing judged."""
    if evidence.champion_version is not None:
        return []
    absolute = [name for name in policy.limits if LIMITS[name].absolute]
    if absolute:
        words = f"first model: no champion to compare with; the absolute limits judge it ({', '.join(absolute)})"
        return [Reason(gate="champion", outcome="noted", words=words)]
    names = ", ".join(name for name, limit in LIMITS.items() if limit.absolute)
    words = f"first model, and the policy has no absolute limit to judge it by; set one of: {names}"
    return [Reason(gate="champion", outcome="insufficient", words=words)]
