"""The gate: a pure function of a policy and the evidence. It decides whether a model may become champion.

    judge(policy=…, evidence=…) -> Decision(verdict, reasons)

A number passes only if it is finite and inside its limit; NaN, infinity and what is missing block, in words.
An interval that straddles its limit neither passes nor blocks: the verdict is `insufficient`. Every gate is
judged and every reason reported, also those of the gates that passed.

Two kinds of gates. `ALWAYS` holds what no policy can switch off: the budget, the self-test, the steps, the
randomness, the validation. `POLICY` holds the limits an owner sets in `gates:`. A new gate is one function
`Evidence -> Reason`, or `(limit, Evidence) -> Reason`, and one line in its table.
"""

import difflib
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from configs.errors import ConfigurationError
from tasks.registry.evidence import (
    EXIT_CODES,
    Decision,
    Evidence,
    Interval,
    Missing,
    Outcome,
    Reason,
    Verdict,
)

__all__ = ["EXIT_CODES", "Decision", "Evidence", "Interval", "Missing", "Reason", "check_policy", "judge"]


def judge(*, policy: Mapping[str, object], evidence: Evidence) -> Decision:
    """Judge a model.

    Args:
        policy: limits by the names in `POLICY`, at least one.
        evidence: what is known of the model.

    Returns:
        `promoted` only if every gate passed; `blocked` if any blocked; `insufficient` otherwise.

    Raises:
        ConfigurationError: if the policy is empty, or a key or limit is not one (`check_policy`).
    """
    limits = check_policy(policy)
    reasons = [gate(evidence) for gate in ALWAYS]
    reasons += [POLICY[name].judge(limit, evidence) for name, limit in limits.items()]
    reasons += _first_model(limits, evidence)
    outcomes = {reason.outcome for reason in reasons}
    verdict: Verdict = "promoted"
    if "insufficient" in outcomes:
        verdict = "insufficient"
    if "blocked" in outcomes:
        verdict = "blocked"
    order = ("blocked", "insufficient", "passed", "noted")
    return Decision(verdict=verdict, reasons=tuple(sorted(reasons, key=lambda r: order.index(r.outcome))))


def check_policy(policy: Mapping[str, object], *, source: str = "gates") -> dict[str, float]:
    """Return the limits of a policy, in the order given.

    Args:
        policy: limits by gate name.
        source: the file or section that holds them, for the message.

    Raises:
        ConfigurationError: naming every fault: no limit at all, an unknown key (with the nearest known one),
            a limit that is null, not a number, not finite, or out of range.
    """
    known = ", ".join(POLICY)
    if not policy:
        message = f"the policy sets no limit, so it would pass every model; set at least one of: {known}"
        raise ConfigurationError.of(source, [message])
    limits: dict[str, float] = {}
    faults: list[str] = []
    for key, value in policy.items():
        limit = _limit(key, value)
        if isinstance(limit, str):
            faults.append(limit)
        else:
            limits[key] = limit
    if faults:
        raise ConfigurationError.of(source, faults)
    return limits


def _limit(key: str, value: object) -> float | str:
    """The limit on one line of a policy, or what is wrong with the line and how to mend it."""
    gate = POLICY.get(key)
    if gate is None:
        near = difflib.get_close_matches(key, POLICY, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known gates: {', '.join(POLICY)}"
        return f"{key}: no such gate; {hint}"
    bounds = f"{gate.low:g} to {gate.high:g}"
    if value is None:
        return f"{key}: null is no limit; give a number from {bounds}, or remove the line"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"{key} = {value!r}: must be a finite number from {bounds}"
    if not gate.low <= value <= gate.high:
        return f"{key} = {value:g}: must lie in {bounds} ({gate.meaning})"
    return float(value)


def _run_budget(evidence: Evidence) -> Reason:
    what = f"epsilon of the run for one {evidence.unit} at delta {evidence.delta:g}"
    return _spent("run_epsilon", what, evidence.run_epsilon, evidence.run_epsilon_limit)


def _ledger_budget(evidence: Evidence) -> Reason:
    used, cap = evidence.ledger_epsilon_used, evidence.ledger_epsilon_cap
    what = f"epsilon over all runs on the population for one {evidence.unit} at delta {evidence.ledger_delta:g}"
    return _spent("ledger_epsilon", what, used, cap)


def _spent(gate: str, what: str, epsilon: float, limit: float) -> Reason:
    if not 0 < limit < math.inf:
        words = f"{what} has no finite limit ({limit}) to be held against"
        return Reason(gate=gate, outcome="blocked", words=words, number=_finite(epsilon))
    if not 0 < epsilon < math.inf:
        words = f"{what} is {epsilon}, which is no guarantee; the limit is {limit:g}"
        return Reason(gate=gate, outcome="blocked", words=words, number=_finite(epsilon), limit=limit)
    number = _apart(epsilon, limit)
    if epsilon > limit:
        words = f"{what} is {number}, above its limit of {limit:g}"
        return Reason(gate=gate, outcome="blocked", words=words, number=epsilon, limit=limit)
    words = f"{what} is {number}, within its limit of {limit:g}"
    return Reason(gate=gate, outcome="passed", words=words, number=epsilon, limit=limit)


def _delta(evidence: Evidence) -> Reason:
    worst = max(evidence.delta, evidence.ledger_delta)
    if 0 < evidence.delta < 1 and 0 < evidence.ledger_delta < 1:
        words = (
            f"the deltas, {evidence.delta:g} of the run and {evidence.ledger_delta:g} of the population, lie in (0, 1)"
        )
        return Reason(gate="delta", outcome="passed", words=words, number=worst, limit=1.0)
    words = f"a delta ({evidence.delta}, {evidence.ledger_delta}) lies outside (0, 1), so epsilon says nothing"
    return Reason(gate="delta", outcome="blocked", words=words, number=_finite(worst), limit=1.0)


def _steps(evidence: Evidence) -> Reason:
    ran, planned, claimed = evidence.executed_steps, evidence.planned_steps, evidence.claimed_steps
    if ran == planned == claimed and ran > 0:
        words = f"{ran} steps ran, as planned and as claimed in the ledger"
        return Reason(gate="steps", outcome="passed", words=words, number=ran, limit=planned)
    words = (
        f"{ran} steps ran, {planned} were planned and {claimed} claimed in the ledger; epsilon is stated for "
        "the plan, so all three must be equal and above 0"
    )
    return Reason(gate="steps", outcome="blocked", words=words, number=ran, limit=planned)


def _self_test(evidence: Evidence) -> Reason:
    return _yes("self_test", evidence.self_test_passed, "the noise path passed its self-test before step 1")


def _validation(evidence: Evidence) -> Reason:
    return _yes("validation", evidence.validation_passed, "the records met every expectation")


def _yes(gate: str, holds: bool, words: str) -> Reason:
    if holds is True:
        return Reason(gate=gate, outcome="passed", words=words)
    return Reason(gate=gate, outcome="blocked", words=f"not shown: {words}")


ALWAYS: tuple[Callable[[Evidence], Reason], ...] = (
    _run_budget,
    _ledger_budget,
    _delta,
    _self_test,
    _steps,
    _validation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGate:
    """A limit an owner may set.

    Attributes:
        judge: the gate itself.
        low: smallest limit that makes sense.
        high: largest limit that makes sense.
        meaning: of the limit, for the message that refuses one.
        absolute: judges the model by itself, so that it can judge a first model.
    """

    judge: Callable[[float, Evidence], Reason]
    low: float
    high: float
    meaning: str
    absolute: bool


def _min_auc(limit: float, evidence: Evidence) -> Reason:
    return _bounded(
        gate="min_auc",
        what="AUC on the hold-out",
        found=evidence.auc,
        span=(0.0, 1.0),
        limit=limit,
        at_least=True,
    )


def _max_auc_drop(limit: float, evidence: Evidence) -> Reason:
    if evidence.champion_version is None:
        words = "there is no champion to drop from: a first model is judged by the absolute limits alone"
        return Reason(gate="max_auc_drop", outcome="noted", words=words, limit=limit)
    return _bounded(
        gate="max_auc_drop",
        what=f"drop in AUC against the champion (version {evidence.champion_version})",
        found=evidence.auc_drop,
        span=(-1.0, 1.0),
        limit=limit,
        at_least=False,
    )


POLICY: Mapping[str, PolicyGate] = MappingProxyType(
    {
        "min_auc": PolicyGate(
            judge=_min_auc,
            low=0.5,
            high=0.999,
            meaning="the lower bound of the hold-out's AUC must reach it; .5 is guessing",
            absolute=True,
        ),
        "max_auc_drop": PolicyGate(
            judge=_max_auc_drop,
            low=0.0,
            high=0.5,
            meaning="the AUC lost against the champion may not exceed it",
            absolute=False,
        ),
    }
)


def _first_model(limits: Mapping[str, float], evidence: Evidence) -> list[Reason]:
    """Record that nothing was there to compare with; then, without an absolute limit, nothing judged."""
    if evidence.champion_version is not None:
        return []
    absolute = [name for name in limits if POLICY[name].absolute]
    if absolute:
        words = f"first model: no champion to compare with; the absolute limits judge it ({', '.join(absolute)})"
        return [Reason(gate="champion", outcome="noted", words=words)]
    names = ", ".join(name for name, gate in POLICY.items() if gate.absolute)
    words = f"first model, and the policy has no absolute limit to judge it by; set one of: {names}"
    return [Reason(gate="champion", outcome="insufficient", words=words)]


def _bounded(
    *,
    gate: str,
    what: str,
    found: Interval | Missing,
    span: tuple[float, float],
    limit: float,
    at_least: bool,
) -> Reason:
    """Hold an interval against a limit: inside passes, outside blocks, astride is insufficient.

    Args:
        gate: its name in the policy.
        what: the metric in words.
        found: the metric's interval, or why there is none.
        span: the metric's range; an interval that leaves it is a fault and blocks.
        limit: the policy's limit.
        at_least: the metric must reach the limit; otherwise it must not exceed it.
    """
    if isinstance(found, Missing):
        words = f"{what} is missing: {found.why}; the limit is {limit:g}"
        return Reason(gate=gate, outcome="blocked", words=words, limit=limit)
    bounds = (span[0], found.lower, found.estimate, found.upper, span[1])
    if not all(a <= b for a, b in itertools.pairwise(bounds)):  # false for every NaN
        words = (
            f"{what} is {found.estimate} in [{found.lower}, {found.upper}], which is no interval within "
            f"[{span[0]:g}, {span[1]:g}]; the limit is {limit:g}"
        )
        return Reason(gate=gate, outcome="blocked", words=words, number=_finite(found.estimate), limit=limit)
    low, high = _apart(found.lower, limit), _apart(found.upper, limit)
    inside = found.lower >= limit if at_least else found.upper <= limit
    outside = found.upper < limit if at_least else found.lower > limit
    if inside:
        outcome: Outcome = "passed"
        end = f"lower bound {low} reaches" if at_least else f"upper bound {high} is within"
    elif outside:
        outcome = "blocked"
        end = f"upper bound {high} misses" if at_least else f"lower bound {low} exceeds"
    else:
        outcome = "insufficient"
        end = f"interval from {low} to {high} is too wide for a verdict: it straddles"
    words = f"{what} is {found.estimate:.4g}; its {end} the limit of {limit:g}"
    return Reason(gate=gate, outcome=outcome, words=words, number=found.estimate, limit=limit)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _apart(number: float, limit: float) -> str:
    """`number` with as many digits, from four on, as it takes to tell it from `limit`."""
    digits = 4
    while number != limit and float(f"{number:.{digits}g}") == limit and digits < 17:
        digits += 1
    return f"{number:.{digits}g}"
