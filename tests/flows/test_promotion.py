"""Judging a version again: by the ledger's evidence, without spending, and never on weights that are others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest

from configs.errors import ConfigurationError, UsageError
from tasks.privacy.ledger import Ledger
from tasks.registry import aliases
from tasks.registry.tracking import Store

pytestmark = [pytest.mark.orchestration, pytest.mark.usefixtures("prefect_api")]
POPULATION = "simulated-discharges"
Small = Callable[..., Path]


@pytest.fixture
def blocked(home: Path, small: Small) -> Any:
    """A version that was blocked for its AUC alone."""
    from flows.retraining import retrain

    outcome = retrain(config_path=str(small({"min_auc: 0.50": "min_auc: 0.99"}, name="strict.yaml")), reason="test")
    assert [reason[0] for reason in outcome.reasons if reason[1] == "blocked"] == ["min_auc"]
    return outcome


def again(config: Path | None = None, *, version: str = "1", model: str = "readmission") -> Any:
    from flows.promotion import promote_again

    return promote_again(model, version, None if config is None else str(config), reason="looked at twice")


def champion(home: Path) -> str | None:
    holder = aliases.champion(store=Store.at(home), name="readmission")
    return None if holder is None else holder.version


def decisions(home: Path) -> list[dict[str, Any]]:
    with Ledger.open(home / "ledger.db") as ledger:
        assert ledger.verify().faults == ()
        return [entry["payload"] for entry in ledger.entries(POPULATION) if entry["kind"] == "gate_decision"]


def spent(home: Path) -> Any:
    with Ledger.open(home / "ledger.db") as ledger:
        state = ledger.population(POPULATION)
        assert state is not None
        return state.used_epsilon, state.runs


def artifact(home: Path, outcome: Any, name: str) -> Path:
    (found,) = (home / "artifacts").glob(f"*/{outcome.run_id}/artifacts/{name}")
    return found


def test_a_blocked_version_passes_wider_limits_at_no_cost_and_everything_says_so(
    home: Path, small: Small, blocked: Any
) -> None:
    before = spent(home)
    same = again()
    assert (same.verdict, same.exit_code) == ("blocked", 40), "without a file, the limits of the last decision"
    assert champion(home) is None
    outcome = again(small())
    assert (outcome.verdict, outcome.exit_code, outcome.model_version) == ("promoted", 0, "1"), outcome.reasons
    assert champion(home) == "1"
    assert spent(home) == before
    first, second, third = decisions(home)
    assert first["evidence"] == second["evidence"] == third["evidence"]
    assert first["weights_sha256"] == third["weights_sha256"]
    assert [found["verdict"] for found in (first, second, third)] == ["blocked", "blocked", "promoted"]
    assert third["policy"]["min_auc"] == 0.5
    assert (third["again"], third["reason"]) == (True, "looked at twice")
    card = json.loads(artifact(home, blocked, "card.json").read_text())
    assert card["verdict"] == "promoted"
    assert "Promoted" in artifact(home, blocked, "card.html").read_text()
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/mlflow.db")
    assert "Promoted" in client.get_model_version("readmission", "1").description
    kept = again(small({"min_auc: 0.50": "min_auc: 0.99"}, name="strict.yaml"))
    assert kept.verdict == "blocked"
    assert champion(home) == "1", "taking the alias away is not for a second look"


def test_the_attack_is_held_against_the_limit_of_today(home: Path, small: Small, blocked: Any) -> None:
    strict = small({"max_advantage: 0.05": "max_advantage: 0.001"}, name="no_advantage.yaml")
    outcome = again(strict)
    (attack,) = [words for gate, _, words in outcome.reasons if gate == "attack"]
    assert outcome.verdict in {"blocked", "insufficient"}
    assert "the limit of 0.001. It was judged by 0.9 when the attack ran, which was: PASS." in attack
    assert attack.endswith(json.loads(artifact(home, blocked, "card.json").read_text())["attack"]["words"])
    assert again().reasons == outcome.reasons, "without a file, the limits of the last decision"


def test_weights_that_are_not_those_of_the_evidence_are_vetoed_whatever_the_limits(
    home: Path, small: Small, blocked: Any
) -> None:
    (weights,) = home.rglob("weights.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    outcome = again(small())
    assert (outcome.verdict, outcome.exit_code) == ("blocked", 40)
    assert outcome.reasons[0][0] == "attack"
    assert "VETO: the registered weights are not those" in outcome.reasons[0][2]
    assert champion(home) is None
    weights.unlink()
    assert again(small()).verdict == "blocked"


def test_evidence_is_the_ledger_s_and_what_mlflow_says_changes_nothing(home: Path, small: Small, blocked: Any) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/mlflow.db")
    client.log_metric(blocked.run_id, "test/auc", 0.999)
    client.set_model_version_tag("readmission", "1", "discreet.verdict", "promoted")
    assert again().verdict == "blocked"


def test_what_the_ledger_does_not_know_is_not_judged(
    home: Path, blocked: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    with pytest.raises(UsageError, match=r"no decision on version 7 of readmission; versions it knows: 1$"):
        again(version="7")
    with pytest.raises(UsageError, match="versions it knows: none"):
        again(model="nobody")
    from flows.promotion import promote_again

    with pytest.raises(UsageError, match="reason"):
        promote_again("readmission", "1", reason="x" * 100_000)
    monkeypatch.setenv("DISCREET_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigurationError, match="there is no ledger"):
        again()
    assert not (tmp_path / "elsewhere").exists()
