"""The gate's decisions as the ledger keeps them: what was judged, by which limits, on which files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from tasks.privacy.ledger import Ledger
from tasks.registry.card_content import CardContent
from tasks.registry.evidence import Decision, Evidence, evidence_of

KIND = "gate_decision"
_BOUND = ("model", "version", "run_id", "weights_sha256", "files_sha256")  # what a decision is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A decision on a version.

    Attributes:
        population: whose people the version was trained on.
        payload: what the ledger holds.
        card: the version's model card as its first decision kept it; {} if it did not.
        metrics: what was recorded of its run, by name.
    """

    population: str
    payload: Mapping[str, Any]
    card: Mapping[str, Any]
    metrics: Mapping[str, float]

    @property
    def evidence(self) -> Evidence:
        """What it rests on.

        Raises:
            UsageError: the entry is older than evidence in the ledger.
        """
        try:
            return evidence_of(self.payload["evidence"])
        except (KeyError, TypeError, ValueError):
            raise self._old() from None

    @property
    def content(self) -> CardContent:
        """The card as the ledger holds it.

        Raises:
            UsageError: the entry is older than cards in the ledger.
        """
        fields = {name: value for name, value in self.card.items() if name not in {"schema", "undefined"}}
        try:
            return TypeAdapter(CardContent).validate_python(fields)
        except ValidationError:
            raise self._old() from None

    def _old(self) -> UsageError:
        version, model = self.payload["version"], self.payload["model"]
        return UsageError(
            f"version {version} of {model} was judged before the ledger kept all that a second look needs: retrain it"
        )


def enter(
    ledger: Ledger,
    *,
    population: str,
    about: Mapping[str, str],
    policy: Mapping[str, object],
    evidence: Evidence,
    decision: Decision,
    actor: str,
    more: Mapping[str, object],
) -> None:
    """Keep a decision and what it rests on where they cannot be edited.

    Args:
        ledger: the ledger.
        population: whose people.
        about: model, version, run and the digests of what was judged.
        policy: the limits.
        evidence: what was looked at.
        decision: the gate's.
        actor: who asked.
        more: what else belongs to it, such as the card or the reason for a second look.
    """
    payload = {
        **{name: about[name] for name in _BOUND},
        "policy": dict(policy),
        "evidence": evidence.to_json(),
        **decision.to_json(),
        **more,
    }
    ledger.record(population=population, kind=KIND, payload=payload, actor=actor)


def last(ledger: Ledger, *, model: str, version: str) -> Entry:
    """The last decision on a version.

    Raises:
        UsageError: there is none; names the versions that there are.
    """
    found = [entry for entry in ledger.entries() if entry["kind"] == KIND and entry["payload"].get("model") == model]
    chosen = [entry for entry in found if entry["payload"]["version"] == version]
    if not chosen:
        known = ", ".join(dict.fromkeys(entry["payload"]["version"] for entry in found)) or "none"
        raise UsageError(f"the ledger holds no decision on version {version} of {model}; versions it knows: {known}")
    first, newest = chosen[0]["payload"], chosen[-1]
    return Entry(
        population=newest["population"],
        payload=newest["payload"],
        card=first.get("card", {}),
        metrics=first.get("metrics", {}),
    )


def judged_files(home: Path, *, model: str, version: str) -> str | None:
    """Digest of a version's files when it was last judged; None if it never was.

    Args:
        home: `$DISCREET_HOME`.
        model: the registered model's name.
        version: its version.
    """
    path = home / "ledger.db"
    if not path.is_file():
        return None
    with Ledger.open(path) as ledger:
        try:
            return last(ledger, model=model, version=version).payload.get("files_sha256")
        except UsageError:
            return None
