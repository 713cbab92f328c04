# pyright: strict
"""The gates that no policy can switch off: budget, delta, self-test, steps, validation, attack."""

import math
from collections.abc import Callable
from dataclasses import replace

from tasks.registry.bounds import apart, finite
from tasks.registry.evidence import Attacked, Evidence, Missing, Outcome, Reason


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
        return Reason(gate=gate, outcome="blocked", words=words, number=finite(epsilon))
    if not 0 < epsilon < math.inf:
        words = f"{what} is {epsilon}, which is no guarantee; the limit is {limit:g}"
        return Reason(gate=gate, outcome="blocked", words=words, number=finite(epsilon), limit=limit)
    number = apart(epsilon, limit)
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
    return Reason(gate="delta", outcome="blocked", words=words, number=finite(worst), limit=1.0)


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


_ATTACK_OUTCOMES: dict[str, Outcome] = {
    "PASS": "passed",
    "INCONCLUSIVE": "insufficient",
    "ATTACK_BROKEN": "insufficient",
    "INVALID_SPLIT": "insufficient",
}


def _attack(evidence: Evidence) -> Reason:
    """FAIL, CONTRADICTION, VETO and whatever else is not known block."""
    found = evidence.attack
    if isinstance(found, Missing):
        return Reason(
            gate="attack", outcome="blocked", words=f"the membership-inference attack is missing: {found.why}"
        )
    outcome = _ATTACK_OUTCOMES.get(found.verdict, "blocked")
    advantage = None if found.advantage is None else finite(found.advantage.estimate)
    if outcome == "passed" and advantage is None:
        outcome = "blocked"
    words = f"{found.verdict}: {found.words}"
    return Reason(gate="attack", outcome=outcome, words=words, number=advantage, limit=finite(found.limit))


def under(found: Attacked, limit: float) -> Attacked:
    """The attack under another limit of its advantage. Verdicts that no limit decides stay as they are.

    Args:
        found: what the attack concluded under the limit of its own time.
        limit: the largest advantage allowed now, in [0, 1].
    """
    advantage = found.advantage
    if found.limit == limit or found.verdict not in _BY_LIMIT or advantage is None:
        return replace(found, limit=limit)
    verdict, ends = "INCONCLUSIVE", "on both sides of"
    if advantage.upper <= limit:
        verdict, ends = "PASS", "within"
    if advantage.lower > limit:
        verdict, ends = "FAIL", "above"
    words = (
        f"The attack's advantage lies between {advantage.lower:.3f} and {advantage.upper:.3f} (95 % interval), {ends} "
        f"the limit of {limit:g}. It was judged by {found.limit:g} when the attack ran, which was: {found.verdict}."
    )
    return Attacked(verdict=verdict, words=words, advantage=advantage, limit=limit)


_BY_LIMIT = {"PASS", "FAIL", "INCONCLUSIVE"}

STANDING: tuple[Callable[[Evidence], Reason], ...] = (
    _run_budget,
    _ledger_budget,
    _delta,
    _self_test,
    _steps,
    _validation,
    _attack,
)
