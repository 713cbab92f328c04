"""Judging a version again: by the ledger's evidence, without spending, and never on weights that are others."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.tracking._tracking_service import utils

from configs.errors import ConfigurationError, UsageError
from tasks.privacy.ledger import Ledger
from tasks.registry import aliases
from tasks.registry.tracking import Store
from tests.flows.conftest import shrunk

pytestmark = [pytest.mark.orchestration, pytest.mark.usefixtures("prefect_api")]
POPULATION = "simulated-discharges"
Small = Callable[..., Path]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, prefect_api: None) -> tuple[Path, Any]:
    """A home with one version, blocked for its AUC alone, and the outcome of its run."""
    from flows.retraining import retrain

    folder = tmp_path_factory.mktemp("promotion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISCREET_HOME", str(folder / "home"))
        strict = shrunk(folder / "strict.yaml", {"min_auc: 0.50": "min_auc: 0.99"})
        outcome = retrain(config_path=str(strict), reason="test")
    assert [reason[0] for reason in outcome.reasons if reason[1] == "blocked"] == ["min_auc"]
    return folder / "home", outcome


@pytest.fixture
def home(once: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that home. MLflow keeps whole paths, so they are moved along."""
    left, home = once[0], tmp_path / "home"
    shutil.copytree(left, home)
    with sqlite3.connect(home / "mlflow.db") as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for _, column, kind, *_ in database.execute(f"pragma table_info('{table}')").fetchall():
                if "CHAR" in kind or "TEXT" in kind:
                    database.execute(
                        f'update "{table}" set "{column}" = replace("{column}", ?, ?)', (str(left), str(home))
                    )
    utils._artifact_repos_cache.clear()  # keeps by run where its files lie
    monkeypatch.setenv("DISCREET_HOME", str(home))
    return home


@pytest.fixture
def blocked(once: tuple[Path, Any]) -> Any:
    """The outcome of its run."""
    return once[1]


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


@pytest.mark.parametrize(
    ("name", "what"),
    [("weights.safetensors", "weights"), ("loader.py", "files (code, preprocessing or network)"), ("MLmodel", "files")],
)
def test_what_is_not_what_the_evidence_was_gathered_on_is_vetoed_whatever_the_limits(
    home: Path, small: Small, blocked: Any, name: str, what: str
) -> None:
    (file,) = home.rglob(name)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    outcome = again(small())
    assert (outcome.verdict, outcome.exit_code) == ("blocked", 40)
    assert outcome.reasons[0][0] == "attack"
    assert outcome.reasons[0][2].startswith(f"VETO: the registered {what}")
    assert champion(home) is None
    file.unlink()
    assert again().verdict == "blocked"
    file.write_bytes(content)
    assert again().verdict == "promoted", "a veto falls when the files are put back"


def test_the_card_is_the_ledger_s_and_a_store_that_takes_none_changes_no_decision(
    home: Path, small: Small, blocked: Any
) -> None:
    file = artifact(home, blocked, "card.json")
    claim = blocked.claim
    file.write_text(file.read_text().replace(claim, "Nobody can learn anything, ever."))
    outcome = again(small())
    assert (outcome.verdict, outcome.claim) == ("promoted", claim)
    assert json.loads(file.read_text())["claim"] == claim, "it is written anew"
    assert dict(outcome.metrics) == dict(blocked.metrics)
    shutil.rmtree(file.parent)
    file.parent.write_text("no folder")
    outcome = again()
    assert (outcome.verdict, outcome.exit_code, outcome.card) == ("promoted", 0, "")
    assert outcome.reasons[-1][:2] == ("card", "noted")
    assert "discreet promote readmission 1 writes the card anew" in outcome.reasons[-1][2]
    file.parent.unlink()
    assert Path(again().card).is_file()


def test_a_second_look_at_the_champion_says_that_it_stays(home: Path, small: Small, blocked: Any) -> None:
    assert again(small()).verdict == "promoted"
    outcome = again(small({"min_auc: 0.50": "min_auc: 0.99"}, name="strict.yaml"))
    assert outcome.verdict == "blocked"
    assert "version 1 holds the alias champion and keeps it" in outcome.reasons[-1][2]
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/mlflow.db")
    assert client.get_model_version("readmission", "1").tags["discreet.verdict"] == "blocked"
    assert champion(home) == "1"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model: readmission": "model: other"}, "model"),
        ({"population: simulated-discharges": "population: others"}, "privacy.population"),
        ({"unit: person": "unit: row"}, "privacy.unit"),
        ({"run: {epsilon: 3.0, delta: 1e-6}": "run: {epsilon: 8.0, delta: 9e-6}"}, "privacy.run.delta"),
    ],
)
def test_a_configuration_of_another_model_or_people_judges_nothing(
    home: Path, small: Small, blocked: Any, change: dict[str, str], key: str
) -> None:
    with pytest.raises(UsageError, match=rf"the configuration has {key} = .+, and the version was trained with"):
        again(small(change, name="another.yaml"))
    assert len(decisions(home)) == 1


def test_epsilon_is_held_against_the_limit_of_today(home: Path, small: Small, blocked: Any) -> None:
    lower = {"run: {epsilon: 3.0, delta: 1e-6}": "run: {epsilon: 7.0, delta: 1e-5}"}
    outcome = again(small(lower, name="lower.yaml"))
    assert outcome.verdict == "blocked"
    assert [gate for gate, state, _ in outcome.reasons if state == "blocked"] == ["run_epsilon"]


def test_a_second_look_sweeps_what_a_killed_run_has_left(home: Path, blocked: Any) -> None:
    left = home / "work" / "readmission-killed"
    left.mkdir(parents=True)
    (left / "records.parquet").write_text("a record")
    assert again().verdict == "blocked"
    assert not left.exists()


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
