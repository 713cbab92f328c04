"""Promote: judge the evidence, and move the alias `champion` only on a pass. A blocked version carries its reasons."""

from __future__ import annotations

from tasks.handover import Assessed, Estimate, Outcome, Recorded, Run, Trained, Validation
from tasks.planning import store_of
from tasks.policy import step
from tasks.privacy.ledger import Ledger
from tasks.progress import report
from tasks.registry import aliases
from tasks.registry.evidence import Decision, Evidence, Interval, Missing
from tasks.registry.gate import judge
from tasks.summary import markdown


@step
def promote(run: Run, validation: Validation, trained: Trained, assessed: Assessed, recorded: Recorded) -> Outcome:
    judged = judge(policy=run.config.gates.policy(), evidence=_evidence(run, validation, trained, assessed))
    _enter(run, recorded, judged)  # before the alias moves: no champion may stand without its entry
    decision = aliases.settle(
        store=store_of(run),
        name=run.config.model,
        version=recorded.model_version,
        decision=judged,
        compared_with=assessed.champion,
    )
    if decision != judged:  # another run promoted its model meanwhile
        _enter(run, recorded, decision)
    outcome = _outcome(run, trained, recorded, decision)
    aliases.describe(store=store_of(run), name=outcome.model, version=recorded.model_version, text=markdown(outcome))
    report(step="promote", note=decision.verdict)
    return outcome


def _outcome(run: Run, trained: Trained, recorded: Recorded, decision: Decision) -> Outcome:
    return Outcome(
        model=run.config.model,
        verdict=decision.verdict,
        exit_code=decision.exit_code,
        reasons=tuple((reason.gate, reason.outcome, reason.words) for reason in decision.reasons),
        claim=trained.claim,
        statement=trained.statement,
        run_id=recorded.run_id,
        model_version=recorded.model_version,
        tracking_uri=recorded.tracking_uri,
        metrics=recorded.metrics,
        unit=run.config.privacy.unit,
        guarantee_delta=run.config.privacy.guarantee.delta,
        simulated=run.config.data.source.kind == "simulated",
        rehearsal=run.rehearsal,
    )


def _evidence(run: Run, validation: Validation, trained: Trained, assessed: Assessed) -> Evidence:
    return Evidence(
        self_test_passed=trained.self_test_passed,
        executed_steps=trained.executed_steps,
        planned_steps=trained.planned_steps,
        claimed_steps=trained.claimed_steps,
        run_epsilon=trained.epsilon,
        run_epsilon_limit=run.config.privacy.run.epsilon,
        ledger_epsilon_used=trained.ledger_epsilon_used,
        ledger_epsilon_cap=trained.ledger_epsilon_cap,
        delta=trained.delta,
        ledger_delta=run.config.privacy.guarantee.delta,
        unit=run.config.privacy.unit,
        validation_passed=validation.passed,
        auc=_interval(assessed.auc),
        champion_version=assessed.champion,
        auc_drop=_interval(assessed.auc_drop),
    )


def _interval(found: Estimate) -> Interval | Missing:
    if found.value is None or found.lower is None or found.upper is None:
        return Missing(why=found.why)
    return Interval(estimate=found.value, lower=found.lower, upper=found.upper)


def _enter(run: Run, recorded: Recorded, decision: Decision) -> None:
    """Keep the decision where it cannot be edited."""
    with Ledger.open(run.home / "ledger.db") as ledger:
        ledger.record(
            population=run.config.privacy.population,
            kind="gate_decision",
            payload={
                "model": run.config.model,
                "version": recorded.model_version,
                "run_id": recorded.run_id,
                "policy": run.config.gates.policy(),
                **decision.to_json(),
            },
            actor=run.actor,
        )
