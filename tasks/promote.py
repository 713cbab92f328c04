"""Promote: judge the evidence, and move the alias `champion` only on a pass. A blocked version carries its reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tasks import attack_panel, decisions, publishing
from tasks.carding import card_of
from tasks.fairness.suppression import Number
from tasks.handover import Assessed, Attacked, Estimate, Outcome, Recorded, Records, Run, Trained, Validation
from tasks.planning import store_of
from tasks.policy import step
from tasks.privacy.ledger import Ledger
from tasks.progress import report
from tasks.registry import aliases
from tasks.registry import evidence as given
from tasks.registry.card import as_json
from tasks.registry.card_content import Figure
from tasks.registry.evidence import Decision, Evidence, Gap, Interval, Judged, Missing
from tasks.registry.gate import judge


@step
def promote(
    run: Run,
    records: Records,
    validation: Validation,
    trained: Trained,
    attacked: Attacked,
    assessed: Assessed,
    recorded: Recorded,
) -> Outcome:
    evidence = _evidence(run, validation, trained, attacked, assessed, recorded)
    judged = judge(policy=run.config.gates.policy(), evidence=evidence)
    card = card_of(run, records, validation, trained, attacked, assessed, recorded, judged)
    # before the alias moves: no champion may stand without its entry
    _enter(run, recorded, evidence, judged, {"card": json.loads(as_json(card)), "metrics": dict(recorded.metrics)})
    name, version, store = run.config.model, recorded.model_version, store_of(run)
    champion = assessed.champion
    decision = aliases.settle(store=store, name=name, version=version, decision=judged, compared_with=champion)
    if decision != judged:  # another run promoted its model meanwhile
        _enter(run, recorded, evidence, decision, {})
        card = replace(card, verdict=decision.verdict, reasons=decision.reasons)
    report(step="promote", note=decision.verdict)
    return publishing.shown(store=store, card=card, metrics=dict(recorded.metrics))


def _evidence(
    run: Run, validation: Validation, trained: Trained, attacked: Attacked, assessed: Assessed, recorded: Recorded
) -> Evidence:
    fairness = assessed.fairness
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
        attack=_attack(attacked, recorded),
        groups=tuple(
            Judged(
                attribute=group.attribute,
                group=group.group,
                why_not=group.why_not,
                auc=_interval(group.primary),
                loss=_interval(group.loss),
            )
            for group in (fairness.groups if fairness else ())
        ),
        gaps=tuple(
            Gap(attribute=attribute, auc=_interval(number))
            for attribute, metric, number in (fairness.gaps if fairness else ())
            if metric == "auc"
        ),
        min_count=assessed.min_count,
    )


def _attack(attacked: Attacked, recorded: Recorded) -> given.Attacked:
    """Its verdict, if the weights that were attacked are those that were registered."""
    panel = attacked.panel
    advantage = _interval(attack_panel.advantage(panel))
    found = given.Attacked(
        verdict=panel.verdict,
        words=panel.words,
        advantage=advantage if isinstance(advantage, Interval) else None,
        limit=attacked.max_advantage,
    )
    if attacked.weights_sha256 == recorded.weights_sha256:
        return found
    return replace(found, verdict="VETO", words="the weights that were attacked are not those that were registered")


def _interval(found: Estimate | Number | Figure) -> Interval | Missing:
    if found.value is None or found.lower is None or found.upper is None:
        return Missing(why=found.why)
    return Interval(estimate=found.value, lower=found.lower, upper=found.upper)


def _enter(run: Run, recorded: Recorded, evidence: Evidence, decision: Decision, more: Mapping[str, object]) -> None:
    about = {
        "model": run.config.model,
        "version": recorded.model_version,
        "run_id": recorded.run_id,
        "weights_sha256": recorded.weights_sha256,
        "files_sha256": recorded.files_sha256,
    }
    with Ledger.open(run.home / "ledger.db") as ledger:
        decisions.enter(
            ledger,
            population=run.config.privacy.population,
            about=about,
            policy=run.config.gates.policy(),
            evidence=evidence,
            decision=decision,
            actor=run.actor,
            more=more,
        )
