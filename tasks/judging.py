"""Judging a registered version again, by the ledger's evidence and not by what MLflow says. Costs no privacy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import ConfigurationError, InternalError, UsageError
from tasks.carding import files_of
from tasks.handover import Outcome
from tasks.opening import check_reason
from tasks.privacy.ledger import Ledger
from tasks.registry import aliases, tracking
from tasks.registry import evidence as given
from tasks.registry.card import render
from tasks.registry.card_content import CardContent
from tasks.registry.evidence import Decision, Evidence, evidence_of
from tasks.registry.gate import judge
from tasks.registry.standing import under
from tasks.registry.tracking import Store
from tasks.summary import markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The last decision on a version that the ledger holds."""

    population: str
    payload: Mapping[str, Any]

    @property
    def evidence(self) -> Evidence:
        try:
            return evidence_of(self.payload["evidence"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"version {self.payload['version']} of {self.payload['model']} was judged before the ledger kept "
                "evidence: retrain it"
            ) from None


def judged_again(
    *,
    home: Path,
    store: Store,
    model: str,
    version: str,
    policy: Mapping[str, object] | None,
    max_advantage: float | None,
    actor: str,
    reason: str,
) -> Outcome:
    """Judge a version by the ledger's evidence, and move the alias on a pass.

    Args:
        home: `$DISCREET_HOME`.
        store: MLflow.
        model: the registered model's name.
        version: its version.
        policy: today's limits; those that it was last judged by when None.
        max_advantage: today's limit of the attack's advantage; the one it was last judged by when None.
        actor: who asks.
        reason: why, for the ledger.

    Raises:
        UsageError: the ledger knows no such version, or would not keep the reason.
        ConfigurationError: there is no ledger, or its chain is broken.
        InternalError: MLflow does not answer.
    """
    check_reason(reason)
    path = home / "ledger.db"
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no ledger, so no version has any evidence")
    with Ledger.open(path) as ledger:
        ledger.ensure_sound()
        entry = _last(ledger, model, version)
        limits = entry.payload["policy"] if policy is None else policy
        evidence = _limited(_unaltered(entry, store, model, version), max_advantage)
        judged = judge(policy=limits, evidence=evidence)
        _enter(ledger, entry, limits, evidence, judged, actor=actor, reason=reason)
        holder = aliases.champion(store=store, name=model)
        if holder is not None and holder.version == version:
            decision = judged  # it holds the alias already; taking it away is `reconcile`'s and `rollback`'s
        else:
            decision = aliases.settle(
                store=store, name=model, version=version, decision=judged, compared_with=evidence.champion_version
            )
        if decision != judged:
            _enter(ledger, entry, limits, evidence, decision, actor=actor, reason=reason)
    return _shown(store, entry, evidence, decision)


def _last(ledger: Ledger, model: str, version: str) -> _Entry:
    found = [
        _Entry(population=entry["population"], payload=entry["payload"])
        for entry in ledger.entries()
        if entry["kind"] == "gate_decision" and entry["payload"].get("model") == model
    ]
    chosen = [entry for entry in found if entry.payload["version"] == version]
    if not chosen:
        known = ", ".join(dict.fromkeys(entry.payload["version"] for entry in found)) or "none"
        raise UsageError(f"the ledger holds no decision on version {version} of {model}; versions it knows: {known}")
    return chosen[-1]


def _unaltered(entry: _Entry, store: Store, model: str, version: str) -> Evidence:
    """The evidence, or a veto where the registered weights are not those it was gathered on."""
    evidence, expected = entry.evidence, entry.payload.get("weights_sha256")
    found = _digest(store, model, version)
    if found == expected:
        return evidence
    limit = evidence.attack.limit if isinstance(evidence.attack, given.Attacked) else 0.0
    words = "the registered weights are not those that the ledger's evidence was gathered on"
    return replace(evidence, attack=given.Attacked(verdict="VETO", words=words, advantage=None, limit=limit))


def _limited(evidence: Evidence, max_advantage: float | None) -> Evidence:
    """The evidence with the attack held against today's limit."""
    attack = evidence.attack
    if max_advantage is None or isinstance(attack, given.Missing):
        return evidence
    return replace(evidence, attack=under(attack, max_advantage))


def _digest(store: Store, model: str, version: str) -> str | None:
    """The sha256 of the registered weights as they lie there now; None where there are none."""
    try:
        with tracking.download(store=store, uri=f"models:/{model}/{version}") as place:
            found = sorted(Path(place).rglob("weights.safetensors"))
            return hashlib.sha256(found[0].read_bytes()).hexdigest() if len(found) == 1 else None
    except InternalError:
        return None


def _enter(
    ledger: Ledger,
    entry: _Entry,
    policy: Mapping[str, object],
    evidence: Evidence,
    decision: Decision,
    *,
    actor: str,
    reason: str,
) -> None:
    kept = {name: entry.payload[name] for name in ("model", "version", "run_id", "weights_sha256")}
    judged = {"policy": dict(policy), "evidence": evidence.to_json(), **decision.to_json()}
    payload = {**kept, **judged, "again": True, "reason": reason}
    ledger.record(population=entry.population, kind="gate_decision", payload=payload, actor=actor)


def _shown(store: Store, entry: _Entry, evidence: Evidence, decision: Decision) -> Outcome:
    """The card and the descriptions with the new decision, and what the terminal shows of it."""
    run_id, model, version = (entry.payload[name] for name in ("run_id", "model", "version"))
    content = _card(store, run_id)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    attack = content.attack
    if attack is not None and isinstance(evidence.attack, given.Attacked):
        attack = replace(attack, verdict=evidence.attack.verdict, words=evidence.attack.words)
    card = replace(content, verdict=decision.verdict, reasons=decision.reasons, attack=attack, created=now)
    place = tracking.attach(store=store, run_id=run_id, files=files_of(render(card)))
    outcome = Outcome(
        model=model,
        verdict=decision.verdict,
        exit_code=decision.exit_code,
        reasons=tuple((reason.gate, reason.outcome, reason.words) for reason in decision.reasons),
        claim=card.claim,
        statement=card.statement,
        run_id=run_id,
        model_version=version,
        tracking_uri=store.uri,
        card=f"{place}/card.html",
        metrics=tuple(sorted(tracking.client(store).get_run(run_id).data.metrics.items())),
        unit=evidence.unit,
        guarantee_delta=evidence.ledger_delta,
        simulated=card.simulated,
        rehearsal=False,
    )
    aliases.describe(store=store, name=model, version=version, text=markdown(outcome))
    return outcome


def _card(store: Store, run_id: str) -> CardContent:
    """The card as it was written; only its decision is of the ledger's."""
    with tracking.download(store=store, uri=f"runs:/{run_id}/card.json") as place:
        plain = json.loads(Path(place).read_text(encoding="utf-8"))
    fields = {name: value for name, value in plain.items() if name not in {"schema", "undefined"}}
    try:
        return TypeAdapter(CardContent).validate_python(fields)
    except ValidationError:
        raise InternalError(f"card.json of run {run_id} is not a card of this version's making") from None
