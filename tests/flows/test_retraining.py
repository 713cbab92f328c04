"""A whole run: records in, a promoted or blocked version out, and the ledger charged, whatever happens."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from prefect.settings import PREFECT_API_URL

from configs.errors import BudgetError, ConfigurationError, DataError, InternalError, NotPrivateError
from tasks.data import simulate
from tasks.privacy.events import Gaussian
from tasks.privacy.ledger import Ledger
from tasks.registry.tracking import Store, connected

pytestmark = [pytest.mark.orchestration, pytest.mark.usefixtures("prefect_api")]
ROOT = Path(__file__).parents[2]
POPULATION = "simulated-discharges"
Small = Callable[..., Path]


def retrain(path: Path) -> Any:
    from flows.retraining import retrain as flow

    return flow(config_path=str(path), reason="test")


def balance(home: Path) -> Any:
    with Ledger.open(home / "ledger.db") as ledger:
        return ledger.population(POPULATION)


def kinds(home: Path) -> list[str]:
    with Ledger.open(home / "ledger.db") as ledger:
        return [entry["kind"] for entry in ledger.entries(POPULATION)]


def champion(home: Path) -> str | None:
    from tasks.registry import aliases

    holder = aliases.champion(store=Store.at(home), name="readmission")
    return None if holder is None else holder.version


def test_a_run_is_charged_recorded_and_promoted(home: Path, small: Small) -> None:
    outcome = retrain(small())
    assert (outcome.verdict, outcome.exit_code, outcome.model_version) == ("promoted", 0, "1")
    metrics = dict(outcome.metrics)
    assert 7.9 < metrics["privacy/run_epsilon"] <= 8
    assert metrics["privacy/delta"] == 1e-5
    assert metrics["privacy/ledger_epsilon_cap"] == 20
    assert 0 < metrics["privacy/ledger_epsilon_used"] <= 20
    assert metrics["test/auc_lower"] <= metrics["test/auc"] <= metrics["test/auc_upper"]
    assert champion(home) == "1"
    state = balance(home)
    assert state.runs["committed"] == 1
    assert state.used_epsilon == metrics["privacy/ledger_epsilon_used"]
    assert kinds(home)[:2] == ["population_created", "run_reserved"]
    assert kinds(home)[-2:] == ["run_committed", "gate_decision"]
    assert kinds(home).count("steps_claimed") == 21  # moments, then 20 steps in chunks of one
    assert "person" in outcome.claim
    assert "safe" not in outcome.claim
    assert not list((home / "work").glob("*/"))
    with Ledger.open(home / "ledger.db") as ledger:
        assert ledger.verify().faults == ()


def test_the_registered_model_takes_raw_records_in_a_fresh_process_and_scores_as_in_memory(
    home: Path, small: Small, tmp_path: Path
) -> None:
    retrain(small())
    frame = simulate.discharges(rows=1000, seed=7)
    frame.to_parquet(tmp_path / "frame.parquet")
    with connected(Store.at(home)) as mlflow_here:
        model = mlflow_here.pyfunc.load_model("models:/readmission@champion")
    here = model.predict(frame)["probability"].to_numpy()
    code = (
        "import mlflow, pandas, sys; mlflow.set_tracking_uri(sys.argv[1]);"
        "m = mlflow.pyfunc.load_model('models:/readmission@champion'); f = pandas.read_parquet(sys.argv[2]);"
        "assert 'tasks' not in sys.modules; p = m.predict(f); one = m.predict(f.head(1));"
        "assert abs(one['probability'][0] - p['probability'][0]) < 1e-6; p.to_parquet(sys.argv[3])"
    )
    arguments = [
        f"sqlite:///{home}/mlflow.db",
        str(tmp_path / "frame.parquet"),
        str(tmp_path / "scores.parquet"),
    ]
    subprocess.run([sys.executable, "-I", "-c", code, *arguments], cwd=tmp_path, check=True)
    import pandas as pd

    there = pd.read_parquet(tmp_path / "scores.parquet")["probability"].to_numpy()
    assert np.allclose(here, there, atol=1e-6)
    assert ((here > 0) & (here < 1)).all()
    assert here.std() > 0.001


def test_a_second_model_is_compared_with_the_champion_on_the_same_rows(home: Path, small: Small) -> None:
    retrain(small())
    outcome = retrain(small())
    reasons = {gate: (state, words) for gate, state, words in outcome.reasons}
    assert reasons["max_auc_drop"][0] == "passed"
    assert "champion (version 1)" in reasons["max_auc_drop"][1]
    assert "test/auc_drop" in dict(outcome.metrics)
    assert champion(home) == outcome.model_version == "2"
    assert balance(home).runs["committed"] == 2


def test_a_champion_with_another_split_is_not_compared_with(home: Path, small: Small) -> None:
    retrain(small())
    outcome = retrain(small({"audit: 0.20": "audit: 0.30"}))
    assert (outcome.verdict, outcome.exit_code) == ("blocked", 40)
    assert "split" in {gate: words for gate, _, words in outcome.reasons}["max_auc_drop"]
    assert champion(home) == "1"


def test_a_blocked_version_carries_its_reasons_and_never_becomes_champion(home: Path, small: Small) -> None:
    outcome = retrain(small({"min_auc: 0.50": "min_auc: 0.99"}))
    assert (outcome.verdict, outcome.exit_code) == ("blocked", 40)
    assert champion(home) is None
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/mlflow.db")
    tags = client.get_model_version("readmission", "1").tags
    assert tags["discreet.verdict"] == "blocked"
    assert "0.99" in tags["discreet.reasons"]
    page = client.get_model_version("readmission", "1").description
    assert "Blocked" in page
    assert "0.99" in page
    assert "simulated" in page
    assert client.get_run(outcome.run_id).data.tags["mlflow.note.content"] == page
    assert balance(home).runs["committed"] == 1, "a failed gate refunds nothing"


def test_an_attack_on_others_than_those_who_were_trained_on_is_vetoed(
    home: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack and the recipe without noise take the split's word for who is a member; training must have, too."""
    from tasks import train

    real = train.part_of
    monkeypatch.setattr(train, "part_of", lambda *arguments: real(*arguments).iloc[1:].reset_index(drop=True))
    outcome = retrain(small())
    assert outcome.verdict == "blocked"
    (reason,) = [words for gate, state, words in outcome.reasons if state == "blocked"]
    assert reason.startswith("VETO: The people and rows that were trained on are not those")


@pytest.mark.parametrize("factor", [0.25, 4])
def test_noise_of_another_size_than_charged_ends_with_nothing_recorded(
    home: Path, small: Small, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    from tasks.dpsgd import loop

    real = loop.train

    def train(*, plan: Any, **arguments: Any) -> Any:
        return real(plan=replace(plan, noise_multiplier=factor * plan.noise_multiplier), **arguments)

    monkeypatch.setattr(loop, "train", train)
    with pytest.raises(NotPrivateError, match="what ran is not what was accounted") as caught:
        retrain(small())
    assert caught.value.exit_code == 50
    assert balance(home).runs["charged"] == 1
    assert not list(home.rglob("weights.safetensors"))


def test_what_is_trained_on_is_told_apart_to_the_last_cell_and_only_with_the_key() -> None:
    import torch

    from tasks.dpsgd.units import UnitRecords
    from tasks.fitting import digest

    def units(**changes: Any) -> UnitRecords:
        parts = {"features": torch.zeros(3, 2), "labels": torch.zeros(3), "index": torch.tensor([[0, 1], [2, -1]])}
        return UnitRecords(**(parts | changes))

    one = digest(units(), key=b"k")
    assert one == digest(units(), key=b"k")
    assert len(one) == 64
    features, labels = torch.zeros(3, 2), torch.zeros(3)
    features[2, 1], labels[0] = 1e-30, 1
    others = [
        digest(units(), key=b"other"),
        digest(units(features=features), key=b"k"),
        digest(units(features=torch.zeros(3, 3)), key=b"k"),
        digest(units(labels=labels), key=b"k"),
        digest(units(index=torch.tensor([[1, 0], [2, -1]])), key=b"k"),
    ]
    assert len({one, *others}) == 6


@pytest.mark.parametrize(("hours", "refused"), [(25, True), (23, False)])
def test_a_run_that_a_work_pool_catches_up_is_refused_unspent(
    home: Path, small: Small, hours: int, refused: bool
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Scheduled

    from flows.retraining import retrain as flow

    due = datetime.now(UTC) - timedelta(hours=hours)
    parameters = {"config_path": str(small({"model: readmission": "modell: readmission"})), "reason": "scheduled"}
    with get_client(sync_client=True) as client:
        late = client.create_flow_run(flow, parameters=parameters, state=Scheduled(scheduled_time=due))
    with pytest.raises(BudgetError if refused else ConfigurationError) as caught:
        run_flow(flow, flow_run=late, parameters=parameters)
    if refused:
        assert f"was due on {due:%Y-%m-%d at %H:%M} UTC, more than 24 hours ago" in str(caught.value)
    assert not (home / "ledger.db").exists()


def test_the_run_that_would_overspend_is_refused_before_it_starts(home: Path, small: Small) -> None:
    path = small({"epsilon: 20.0, delta: 1e-5, planned_runs: 3": "epsilon: 12.0, delta: 1e-5, planned_runs: 1"})
    retrain(path)
    before = kinds(home)
    with pytest.raises(BudgetError, match=r"(?s)Requested: epsilon .* remaining: .* difference: .* would fit"):
        retrain(path)
    assert kinds(home) == before
    assert champion(home) == "1"


def test_failed_validation_stops_the_run_before_anything_is_spent(home: Path, small: Small) -> None:
    with pytest.raises(DataError, match="positive labels are 45 % to 50 %") as caught:
        retrain(small({"label_rate: {min: 0.05, max: 0.50}": "label_rate: {min: 0.45, max: 0.50}"}))
    assert "nothing was spent" in str(caught.value)
    assert not (home / "ledger.db").exists()
    assert not (home / "mlflow.db").exists()
    assert not list((home / "work").glob("*/"))


def test_what_is_known_to_fail_later_is_refused_before_anything_is_spent(
    home: Path, small: Small, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"a part of the split holds no record|labels of one class only"):
        retrain(small({"audit: 0.20": "audit: 0.00001"}))
    home.joinpath("mlflow.db").write_text("no database")
    with pytest.raises(ConfigurationError, match=r"MLflow at .* cannot be reached or written"):
        retrain(small())
    assert not (home / "ledger.db").exists()


def test_an_error_after_training_says_that_the_training_is_charged(
    home: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.registry import tracking

    def fails(**_: object) -> None:
        raise InternalError("MLflow is full")

    monkeypatch.setattr(tracking, "log_run", fails)
    with pytest.raises(InternalError, match=r"MLflow is full\n.* is charged in the ledger, and stays charged"):
        retrain(small())
    assert balance(home).runs["committed"] == 1


def test_a_ledger_that_was_changed_by_hand_admits_no_run(home: Path, small: Small) -> None:
    retrain(small())
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("UPDATE population_order SET committed_units = 0")
    with pytest.raises(BudgetError, match="does not hold what its entries say"):
        retrain(small())
    for file in home.glob("ledger.db*"):
        file.unlink()
    with pytest.raises(ConfigurationError, match="what was spent stays spent"):
        retrain(small())


def test_a_source_that_leaves_the_process_is_a_fault_and_no_promotion(
    home: Path, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text("import sys\ndef records():\n    sys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "{kind: python, function: 'leaving:records'}"
    with pytest.raises(DataError, match="leaving:records failed with SystemExit"):
        retrain(small({"{kind: simulated, rows: 6000, seed: 20260101}": source}))


def test_blanks_around_an_id_make_no_second_person(home: Path, small: Small, tmp_path: Path) -> None:
    import pandas as pd

    from tasks.data.workfolder import read_frame
    from tasks.ingest import ingest
    from tasks.opening import opened

    frame = simulate.discharges(rows=3000, seed=1)
    frame["patient_id"] = pd.Series(["P1", " P1", "P1 "] * 1000)
    frame.to_csv(tmp_path / "records.csv", index=False)
    path = small({"{kind: simulated, rows: 6000, seed: 20260101}": f"{{kind: csv, path: {tmp_path}/records.csv}}"})
    with opened(str(path), runtime="local", reason="test", rehearsal=False) as run:
        assert set(read_frame(ingest.fn(run).path)["patient_id"]) == {"P1"}


def test_a_file_that_differs_from_the_ledger_is_refused(home: Path, small: Small) -> None:
    retrain(small())
    before = kinds(home)
    with pytest.raises(ConfigurationError, match=r"the file says epsilon 30\.0, the ledger 20\.0"):
        retrain(small({"epsilon: 20.0, delta: 1e-5": "epsilon: 30.0, delta: 1e-5"}))
    with pytest.raises(ConfigurationError, match="the file says unit row, the ledger person"):
        retrain(small({"unit: person": "unit: row"}))
    assert kinds(home) == before


def test_a_population_whose_key_is_lost_is_not_split_anew(home: Path, small: Small) -> None:
    retrain(small())
    (home / "keys" / POPULATION).unlink()
    with pytest.raises(ConfigurationError, match="key"):
        retrain(small())
    assert balance(home).runs["committed"] == 1


def test_the_claim_by_row_states_what_a_person_with_several_rows_gets(home: Path, small: Small) -> None:
    outcome = retrain(small({"unit: person": "unit: row", "units: 2500": "units: 4000"}))
    metrics = dict(outcome.metrics)
    assert metrics["privacy/person_epsilon"] > metrics["privacy/run_epsilon"]
    assert "whose rows beyond 3 are left out" in outcome.claim
    assert f"{metrics['privacy/person_epsilon']:.3g}"[:3] in outcome.claim


def test_records_without_a_person_are_units_of_their_own(home: Path, small: Small) -> None:
    changes = {
        "  person: patient_id\n": "",
        "unit: person": "unit: row",
        "max_rows_per_person: 3": "max_rows_per_person: 1",
    }
    outcome = retrain(small({**changes, "units: 2500": "units: 4000"}))
    assert outcome.verdict == "promoted"
    assert "privacy/person_epsilon" not in dict(outcome.metrics)


def test_a_recipe_without_moments_claims_steps_alone(home: Path, small: Small) -> None:
    retrain(small({"  moments: {noise_multiplier: 8.0}\n": "", "hidden: [8]": "hidden: [8], layer_norm: true"}))
    assert kinds(home).count("steps_claimed") == 20


def test_a_rehearsal_reads_no_record_and_leaves_nothing(home: Path, small: Small, tmp_path: Path) -> None:
    from flows.retraining import rehearse

    source = "{kind: simulated, rows: 6000, seed: 20260101}"
    path = small(
        {source: f"{{kind: csv, path: {tmp_path}/there-is-no-such-file.csv}}"} | {"rows: 200000": "rows: 6000"}
    )
    outcome = rehearse(config_path=str(path))
    assert outcome.rehearsal
    assert dict(outcome.metrics)["privacy/run_epsilon"] <= 8
    assert not home.exists()


@pytest.mark.parametrize("runtime", [{}, {"threads": 1, "physical_batch": 7, "lease_seconds": 60}])
def test_runtime_settings_cannot_change_epsilon(
    home: Path, small: Small, tmp_path: Path, runtime: dict[str, int]
) -> None:
    from flows.retraining import retrain as flow

    path = tmp_path / "runtime.yaml"
    path.write_text(json.dumps({"home": str(home), **runtime}))
    metrics = dict(flow(config_path=str(small()), runtime=str(path), reason="test").metrics)
    assert metrics["privacy/run_epsilon"] == pytest.approx(7.9999, abs=2e-3)
    assert balance(home).used_epsilon == pytest.approx(metrics["privacy/ledger_epsilon_used"])


KILL = """
import os, signal, sys
from flows.environment import quiet
quiet()
from tasks.privacy.ledger import Ledger
claim, seen = Ledger.claim, []
def killed(self, **arguments):
    claim(self, **arguments)
    seen.append(arguments["upto"])
    if len(seen) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
Ledger.claim = killed
from flows.retraining import retrain
retrain(config_path=sys.argv[1], reason="killed")
"""


def test_a_run_killed_in_training_stays_charged_and_its_records_are_swept(
    home: Path, small: Small, tmp_path: Path
) -> None:
    path = small()
    server = str(PREFECT_API_URL.value())  # a server of its own would outlive it, and hold its pipes
    environment = dict(os.environ, PYTHONPATH=str(ROOT), PREFECT_API_URL=server)
    killed = subprocess.run([sys.executable, "-c", KILL, str(path)], env=environment, cwd=ROOT, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert list((home / "work").glob("*/records.parquet")), "the records lie there until the next start"
    left = balance(home)
    assert left.runs["running"] == 1
    assert left.used_epsilon > 0
    outcome = retrain(path)
    assert not list((home / "work").glob("*/"))
    after = balance(home)
    assert after.runs["running"] == 1, "the dead run's reservation stands until its lease is over"
    assert all(new > old for new, old in zip(after.spent, left.spent, strict=True))
    with Ledger.open(home / "ledger.db", clock=lambda: time.time() + 4000) as later:
        rows = [entry for entry in later.entries(POPULATION) if entry["kind"] == "steps_claimed"]
        claimed = max(row["payload"]["upto"] for row in rows[:6])
        with pytest.raises(BudgetError):  # a reservation settles what is overdue; this one asks for too much
            later.reserve(
                population=POPULATION,
                mechanisms=[Gaussian(noise_multiplier=0.1)],
                idempotency_key="too much",
                actor="test",
                reason="test",
            )
    settled = balance(home)
    assert settled.runs["running"] == 0
    assert outcome.verdict == "promoted"
    assert claimed == 6


def test_the_words_of_a_record_leave_in_no_error_and_no_file(home: Path, small: Small, tmp_path: Path) -> None:
    planted = "jane.roe@example.org"
    frame = simulate.discharges(rows=6000, seed=1)
    frame.loc[:, "discharge_to"] = planted
    frame.to_csv(tmp_path / "records.csv", index=False)
    path = small({"{kind: simulated, rows: 6000, seed: 20260101}": f"{{kind: csv, path: {tmp_path}/records.csv}}"})
    with pytest.raises(DataError) as caught:
        retrain(path)
    assert planted not in str(caught.value)
    assert not [file for file in home.rglob("*") if file.is_file() and planted.encode() in file.read_bytes()]


def test_an_error_of_a_library_is_sealed(home: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.dpsgd import loop

    def fails(**_: object) -> None:
        raise ValueError("could not convert 'jane.roe@example.org'")

    monkeypatch.setattr(loop, "train", fails)
    with pytest.raises(InternalError) as caught:
        retrain(small())
    assert re.fullmatch(r"train failed: ValueError at tasks/fitting\.py:\d+", str(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    state = balance(home)
    assert state.runs["charged"] == 1, "the moments were claimed, and what was claimed is charged"
    with sqlite3.connect(home / "ledger.db") as connection:
        assert not [row for row in connection.iterdump() if "jane.roe" in row]
