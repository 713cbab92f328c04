"""What a run leaves in MLflow, and what it does not."""

import json
import math
import multiprocessing
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from configs.errors import ConfigurationError, InternalError
from tasks.registry.tracking import (
    Store,
    attach,
    client,
    connected,
    import_mlflow,
    locked,
    log_run,
    prepare,
    reach,
    readable,
)


def log(store, **changes):
    arguments = {
        "store": store,
        "experiment": "readmission",
        "run_name": "test",
        "params": {"steps": 251},
        "metrics": {"privacy/run_epsilon": 2.9997, "test/auc": 0.66},
        "tags": {"dp.unit": "person"},
    }
    return log_run(**{**arguments, **changes})


@pytest.fixture
def logged(store, tools, tmp_path, network):
    return log(store, folder=tools.pack(tmp_path / "m", network), example=tools.records(3, seed=9))


def test_a_run_keeps_parameters_metrics_tags_and_files(store, tmp_path, empty_cwd):
    (tmp_path / "files" / "sub").mkdir(parents=True)
    (tmp_path / "files" / "sub" / "validation.html").write_text("<p>6 of 6</p>")
    done = log(store, artifacts=tmp_path / "files")
    run = client(store).get_run(done.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"steps": "251"}
    assert run.data.metrics == {"privacy/run_epsilon": 2.9997, "test/auc": 0.66, "undefined": 0.0}
    assert run.data.tags["dp.unit"] == "person"
    assert [f.path for f in client(store).list_artifacts(done.run_id, "sub")] == ["sub/validation.html"]
    assert run.info.artifact_uri.startswith(store.artifacts)


def test_a_file_added_to_a_run_lies_where_the_answer_says(store, empty_cwd):
    place = attach(store=store, run_id=log(store).run_id, files={"card.html": b"<p>", "plots/roc.svg": b"<svg>"})
    assert (Path(place) / "card.html").read_bytes() == b"<p>"
    assert (Path(place) / "plots" / "roc.svg").read_bytes() == b"<svg>"


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b"])
def test_a_home_whose_path_would_open_another_database_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="set DISCREET_HOME to a folder without them"):
        Store.at(tmp_path / name)
    assert Store.at(tmp_path / name, uri="http://127.0.0.1:9").uri == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("mlflow-artifacts:/1/2", "mlflow-artifacts:/1/2"),
        ("s3://b/c%20d", "s3://b/c%20d"),
    ],
)
def test_artifacts_of_this_machine_are_told_by_path_and_others_by_uri(uri, place):
    assert readable(uri) == place


def test_what_is_undefined_is_named_and_counted_and_never_stored(store, empty_cwd):
    """Case G2: σ = 0 makes epsilon infinite; a group without positives has no rate."""
    odd = {
        "privacy/run_epsilon": math.inf,
        "fairness/a": math.nan,
        "fairness/b": None,
        "fairness/c": -1.7976931348623157e308,
        "test/auc": 0.6,
    }
    done = log(store, metrics=odd)
    run = client(store).get_run(done.run_id)
    assert run.data.metrics == {"test/auc": 0.6, "undefined": 4.0} == done.metrics
    assert set(done.undefined) == set(odd) - {"test/auc"}
    assert run.data.tags["discreet.undefined"] == ", ".join(done.undefined)
    rows = sqlite3.connect(store.home / "mlflow.db").execute(
        "select count(*) from metrics where is_nan or abs(value) > 1e300"
    )
    assert rows.fetchone() == (0,)


def test_more_parameters_and_metrics_than_one_request_takes_are_all_stored(store):
    done = log(
        store,
        params={f"p{i}": i for i in range(250)},
        metrics={f"fairness/race/{i}/tpr": 0.5 for i in range(1200)},
        tags={f"dp.t{i}": "x" for i in range(150)},
    )
    run = client(store).get_run(done.run_id)
    assert (len(run.data.params), len(run.data.metrics)) == (250, 1201)
    assert sum(key.startswith("dp.") for key in run.data.tags) == 150


def test_a_loaded_model_equals_the_network_in_memory(store, logged, tools, network, empty_cwd):
    """Case G4, in this process."""
    with connected(store) as mlflow:
        model = mlflow.pyfunc.load_model(logged.model_uri, suppress_warnings=True)
    for rows in (1, 1000):
        records = tools.records(rows)
        scores = model.predict(records)["probability"].to_numpy()
        np.testing.assert_array_equal(scores, tools.score(network, records))


FRESH = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
import mlflow.pyfunc, numpy as np, pandas as pd
model = mlflow.pyfunc.load_model(sys.argv[1])
records = pd.read_json(sys.argv[2], dtype=False)
np.save(sys.argv[3], model.predict(records)["probability"].to_numpy())
one = model.predict(records.iloc[[0]])["probability"].to_numpy()
assert one.shape == (1,)
for name in ("tasks", "configs", "flows"):
    assert name not in sys.modules
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} can be imported here, so this proves nothing")
"""


def test_a_fresh_process_without_the_project_loads_and_scores_the_same(
    store, logged, tools, network, tmp_path, empty_cwd
):
    """Case G4: -I keeps the working folder and PYTHONPATH out, and the editable finder is dropped."""
    records = tools.records(1000)
    records.to_json(tmp_path / "records.json", orient="records")
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-c", FRESH, logged.model_uri),
            *(str(tmp_path / "records.json"), str(tmp_path / "scores.npy")),
        ],
        cwd=empty_cwd,
        env={**os.environ, "MLFLOW_TRACKING_URI": store.uri},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mismatch" not in done.stderr
    scores = np.load(tmp_path / "scores.npy")
    np.testing.assert_allclose(scores, tools.score(network, records), atol=1e-7)


@pytest.mark.parametrize("form", ["text", "numbers", "one record", "extra column"])
def test_mlflow_lets_every_form_of_a_record_through(store, logged, tools, network, form):
    records = tools.records(20)
    with connected(store) as mlflow:
        model = mlflow.pyfunc.load_model(logged.model_uri, suppress_warnings=True)
    expected = tools.score(network, records)
    if form == "numbers":
        records = records.assign(time_in_hospital=records["time_in_hospital"].astype("int64"))
    elif form == "one record":
        record = {k: None if v != v else v for k, v in records.iloc[0].to_dict().items()}
        assert model.predict(record)["probability"].to_numpy() == pytest.approx(expected[:1], abs=1e-7)
        return
    elif form == "extra column":
        records = records.assign(sex="F")
    np.testing.assert_array_equal(model.predict(records)["probability"].to_numpy(), expected)


def test_a_record_that_lacks_a_column_is_refused_by_name(store, logged, tools):
    with connected(store) as mlflow:
        model = mlflow.pyfunc.load_model(logged.model_uri, suppress_warnings=True)
    with pytest.raises(Exception, match="race"):
        model.predict(tools.records(3).drop(columns="race"))


def test_the_logged_model_says_what_it_is_and_holds_no_pickle(store, logged, tools):
    with connected(store) as mlflow:
        info = mlflow.models.get_model_info(logged.model_uri)
        path = mlflow.artifacts.download_artifacts(artifact_uri=logged.model_uri)
    from pathlib import Path

    assert [c.name for c in info.signature.inputs.inputs] == [f["name"] for f in tools.spec["features"]]
    assert [c.name for c in info.signature.outputs.inputs] == ["probability"]
    assert info.metadata["kinds"]["diag_1"] == "icd9"
    assert len(info.metadata["weights_sha256"]) == len(info.metadata["folder_sha256"]) == 64
    names = {file.name for file in Path(path).rglob("*") if file.is_file() and file.suffix != ".pyc"}
    assert not {name for name in names if name.endswith((".pkl", ".pt", ".pth", ".pickle", ".joblib"))}
    pins = (Path(path) / "requirements.txt").read_text().split()
    assert {pin.split("==")[0] for pin in pins} == {"mlflow", "numpy", "pandas", "safetensors", "torch"}
    stored = json.loads((Path(path) / "input_example.json").read_text())
    assert len(stored["data"]) == 3  # the synthetic rows handed in, and nothing else


def test_metrics_stand_on_the_model_too(store, logged):
    with connected(store) as mlflow:
        model = mlflow.get_logged_model(logged.model_uri.rpartition("/")[2])
    assert {m.key: m.value for m in model.metrics}["test/auc"] == 0.66


def test_the_process_wide_uris_are_left_as_they_were(store, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow = import_mlflow()
    log(store)
    assert not mlflow.tracking.is_tracking_uri_set()
    with connected(store):
        assert mlflow.get_tracking_uri() == mlflow.get_registry_uri() == store.uri
    mlflow.set_tracking_uri("sqlite:////nowhere/at/all.db")
    try:
        with connected(store):
            pass
        assert mlflow.get_tracking_uri() == "sqlite:////nowhere/at/all.db"
    finally:
        mlflow.set_tracking_uri(None)


def test_a_refused_run_is_an_error_of_ours_and_stands_as_failed(store):
    with pytest.raises(InternalError, match="MlflowException"):
        log(store, run_name="refused", metrics={"fairness/race/[70-80)": 0.5})
    service = client(store)
    number = service.get_experiment_by_name("readmission").experiment_id
    (run,) = service.search_runs([number], filter_string="attributes.run_name = 'refused'")
    assert run.info.status == "FAILED"
    assert mlflow_active() is None


def mlflow_active():
    return import_mlflow().active_run()


def test_an_error_never_shows_the_stores_password(tmp_path):
    away = Store.at(tmp_path, uri="postgresql+psycopg://user:hunter2@127.0.0.1:1/none")
    from tasks.registry.tracking import _place

    assert _place(away) == "postgresql+psycopg://127.0.0.1:1/none"
    assert _place(Store.at(tmp_path)) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"


def test_an_experiment_in_mlflows_bin_is_restored(store):
    log(store, experiment="binned")
    service = client(store)
    service.delete_experiment(service.get_experiment_by_name("binned").experiment_id)
    log(store, experiment="binned")
    assert service.get_experiment_by_name("binned").lifecycle_stage == "active"


def open_fresh(home):
    from pathlib import Path

    store = Store.at(Path(home))
    prepare(store)
    return client(store).create_experiment(f"of {os.getpid()}")


def test_three_processes_may_open_a_fresh_store_at_once(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        numbers = pool.map(open_fresh, [str(tmp_path)] * 3, chunksize=1)
    assert len(set(numbers)) == 3


def test_an_older_store_is_migrated_and_keeps_its_runs(tmp_path):
    store = Store.at(tmp_path)
    prepare(store)
    experiment = client(store).create_experiment("kept")
    from alembic import command
    from mlflow.store.db import utils as tables

    engine = tables.create_sqlalchemy_engine_with_retry(store.uri)
    newest = tables._get_schema_version(engine)
    config = tables._get_alembic_config(store.uri)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "-1")
    assert tables._get_schema_version(engine) != newest
    prepare(store)
    assert tables._get_schema_version(engine) == newest
    assert client(store).get_experiment(experiment).name == "kept"


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path):
    import fcntl

    path = tmp_path / "deep" / "lock"
    with locked(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_telemetry_is_off():
    import_mlflow()
    assert (os.environ["MLFLOW_DISABLE_TELEMETRY"], os.environ["DO_NOT_TRACK"]) == ("true", "true")
    from mlflow.telemetry.client import get_telemetry_client

    assert get_telemetry_client() is None


def test_nothing_is_imported_before_it_is_needed():
    program = (
        "import sys, tasks.registry.gate, tasks.registry.tracking; "
        "assert not {'mlflow', 'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_server_s_database_is_left_to_the_server(tmp_path):
    prepare(Store(uri="http://127.0.0.1:9", artifacts="mlflow-artifacts:/", home=tmp_path / "home"))
    assert not (tmp_path / "home").exists()


def test_a_store_that_can_be_written_is_reached_and_opens_as_one_of_trained_models(store):
    reach(store, experiment="reached")
    tags = client(store).get_experiment_by_name("reached").tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_store_that_cannot_be_written_is_told_before_anything_is_spent(tmp_path):
    (tmp_path / "mlflow.db").write_text("no database")
    with pytest.raises(ConfigurationError, match=r"cannot be reached or written .*; nothing was spent"):
        reach(Store.at(tmp_path), experiment="reached")


def test_a_database_that_has_every_table_but_an_older_version_is_migrated_once(tmp_path, monkeypatch):
    from mlflow.store.db import utils as tables

    older = Store.at(tmp_path)
    prepare(older)
    migrated = []
    monkeypatch.setattr(tables, "_upgrade_db", lambda engine: migrated.append(str(engine.url)))
    prepare(older)
    assert migrated == []
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("update alembic_version set version_num = 'older'")
    prepare(older)
    assert migrated == [older.uri]
