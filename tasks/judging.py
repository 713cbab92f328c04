"""Judging a registered version again, by the ledger's evidence and not by what MLflow says. Costs no privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from configs.errors import ConfigurationError, UsageError
from configs.schema import Config
from tasks import decisions, publishing
from tasks.data.workfolder import sweep
from tasks.handover import Outcome
from tasks.opening import check_reason
from tasks.privacy.ledger import Ledger
from tasks.registry import aliases
from tasks.registry import evidence as given
from tasks.registry.card_content import CardContent
from tasks.registry.evidence import Decision, Evidence, Reason
from tasks.registry.gate import judge
from tasks.registry.standing import under
from tasks.registry.tracking import Store


def judged_again(
    *, home: Path, store: Store, model: str, version: str, config: Config | None, actor: str, reason: str
) -> Outcome:
    """Judge a version by the ledger's evidence, and move the alias on a pass.

    Args:
        home: `$DISCREET_HOME`.
        store: MLflow.
        model: the registered model's name.
        version: its version.
        config: the model's configuration, with today's limits; those that it was last judged by when None.
        actor: who asks.
        reason: why, for the ledger.

    Raises:
        UsageError: the ledger knows no such version, or would not keep the reason; the configuration is of another
            model, population or unit.
        ConfigurationError: there is no ledger, or its chain is broken.
        InternalError: MLflow does not answer.
    """
    check_reason(reason)
    sweep(home)  # a killed run's records do not wait for the next one
    path = home / "ledger.db"
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no ledger, so no version has any evidence")
    with Ledger.open(path) as ledger:
        ledger.ensure_sound()
        entry = decisions.last(ledger, model=model, version=version)
        evidence, card = entry.evidence, entry.content
        policy = entry.payload["policy"]
        if config is not None:
            _check_same(config, entry, evidence)
            policy, evidence = config.gates.policy(), _limited(evidence, config)
        seen = _unaltered(entry, evidence, store, model, version)
        # the ledger keeps the evidence without today's veto, which falls when the files are put back
        enter = partial(
            decisions.enter,
            ledger,
            population=entry.population,
            about=entry.payload,
            policy=policy,
            evidence=evidence,
            actor=actor,
            more={"again": True, "reason": reason},
        )
        decision = _settled(store, model, version, judge(policy=policy, evidence=seen), evidence, enter)
    return publishing.shown(store=store, card=_renewed(card, seen, decision), metrics=entry.metrics)


def _settled(
    store: Store, model: str, version: str, judged: Decision, evidence: Evidence, enter: Callable[..., None]
) -> Decision:
    """Enter the decision, then move the alias by it: no champion may stand without its entry."""
    holder = aliases.champion(store=store, name=model)
    if holder is not None and holder.version == version:
        decision = _kept(judged, version)
        enter(decision=decision)
        aliases.write(store=store, name=model, version=version, decision=decision)
        return decision
    enter(decision=judged)
    compared = evidence.champion_version
    decision = aliases.settle(store=store, name=model, version=version, decision=judged, compared_with=compared)
    if decision != judged:
        enter(decision=decision)
    return decision


def _check_same(config: Config, entry: decisions.Entry, evidence: Evidence) -> None:
    """Refuse a configuration that is not about the version's model and people."""
    for key, theirs, ours in (
        ("model", config.model, entry.payload["model"]),
        ("privacy.population", config.privacy.population, entry.population),
        ("privacy.unit", config.privacy.unit, evidence.unit),
        ("privacy.run.delta", f"{config.privacy.run.delta:g}", f"{evidence.delta:g}"),
    ):
        if theirs != ours:
            raise UsageError(
                f"the configuration has {key} = {theirs}, and the version was trained with {ours}: give the version's "
                "own configuration, or retrain"
            )


def _limited(evidence: Evidence, config: Config) -> Evidence:
    """The evidence with attack and epsilon held against today's limits."""
    evidence = replace(evidence, run_epsilon_limit=config.privacy.run.epsilon)
    if isinstance(evidence.attack, given.Missing):
        return evidence
    return replace(evidence, attack=under(evidence.attack, config.attack.max_advantage))


def _unaltered(entry: decisions.Entry, evidence: Evidence, store: Store, model: str, version: str) -> Evidence:
    """The evidence, or a veto where what is registered is not what it was gathered on."""
    found = aliases.digests(store=store, name=model, version=version)
    weights, files = entry.payload.get("weights_sha256"), entry.payload.get("files_sha256")
    if found == (weights, files):
        return evidence
    limit = evidence.attack.limit if isinstance(evidence.attack, given.Attacked) else 0.0
    part = "files (code, preprocessing or network) are" if found and found[0] == weights else "weights are"
    words = f"the registered {part} not those that the ledger's evidence was gathered on"
    return replace(evidence, attack=given.Attacked(verdict="VETO", words=words, advantage=None, limit=limit))


def _kept(decision: Decision, version: str) -> Decision:
    """A decision on the champion itself: a second look takes nothing away."""
    words = f"version {version} holds the alias champion"
    if decision.verdict != "promoted":
        words += " and keeps it, for a second look takes nothing away: move the alias by hand, or retrain"
    return replace(decision, reasons=(*decision.reasons, Reason(gate="champion", outcome="noted", words=words)))


def _renewed(card: CardContent, evidence: Evidence, decision: Decision) -> CardContent:
    attack = card.attack
    if attack is not None and isinstance(evidence.attack, given.Attacked):
        attack = replace(attack, verdict=evidence.attack.verdict, words=evidence.attack.words)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(card, verdict=decision.verdict, reasons=decision.reasons, attack=attack, created=now)
