# pyright: strict
"""The gates that no policy can switch off: budget, delta, self-test, steps, validation, attack."""

import math
from collections.abc import Callable

from tasks.registry.bounds import apart, finite
from tasks.registry.evidence import Evidence, Missing, Outcome, Reason


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
    advantage = None if found.advantage is None else finite(found.advantage)
    if outcome == "passed" and advantage is None:
        outcome = "blocked"
    words = f"{found.verdict}: {found.words}"
    return Reason(gate="attack", outcome=outcome, words=words, number=advantage, limit=finite(found.limit))


STANDING: tuple[Callable[[Evidence], Reason], ...] = (
    _run_budget,
    _ledger_budget,
    _delta,
    _self_test,
    _steps,
    _validation,
    _attack,
)
