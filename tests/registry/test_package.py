"""The model folder: alone, deterministic, without pickles, equal to the network in memory."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import InternalError
from tasks.registry.package import (
    folder_digest,
    load_folder,
    open_folder,
    requirements,
    weights_bytes,
    weights_digest,
)


def test_a_packed_model_scores_raw_records_as_the_network_in_memory(tools, tmp_path, network):
    folder = tools.pack(tmp_path / "m", network)
    records = tools.records(1000)
    served = load_folder(folder).predict(records)
    assert list(served.columns) == ["probability"]
    np.testing.assert_array_equal(served["probability"].to_numpy(), tools.score(network, records))
    one = load_folder(folder).predict(records.iloc[[17]])
    np.testing.assert_allclose(one["probability"], served["probability"].iloc[[17]], atol=1e-7)
    assert list(one.index) == [17]


def test_the_folder_holds_three_data_files_and_four_of_code_and_no_pickle(tools, tmp_path, network):
    folder = tools.pack(tmp_path / "m", network)
    names = {f.relative_to(folder.path).as_posix() for f in folder.path.rglob("*") if f.suffix != ".pyc"}
    code = f"code/{folder.package}"
    files = {f"{code}/{part}.py" for part in ("__init__", "encoding", "networks", "loader")}
    files |= {f"model/{part}" for part in ("encoding.json", "network.json", "weights.safetensors")}
    assert {n for n in names if (folder.path / n).is_file()} == files
    assert not zipfile.is_zipfile(folder.data / "weights.safetensors")  # torch.save would be a zip of pickles
    assert b"\x80\x04" not in (folder.data / "weights.safetensors").read_bytes()[:64]
    described = json.loads((folder.data / "network.json").read_text())
    assert described == {"format": 1, "network": tools.network, "inputs": tools.inputs, "threshold": 0.15}
    assert load_folder(folder).threshold == 0.15


def test_the_same_model_packed_twice_has_the_same_name_and_digests(tools, tmp_path, network):
    first, second = tools.pack(tmp_path / "a", network), tools.pack(tmp_path / "b", network)
    assert (first.package, first.digest, first.weights_sha256) == (
        second.package,
        second.digest,
        second.weights_sha256,
    )
    assert first.weights_sha256 == weights_digest(network.state_dict())
    file = (first.data / "weights.safetensors").read_bytes()
    assert first.weights_sha256 == hashlib.sha256(file).hexdigest()


def test_any_change_changes_the_folders_digest(tools, tmp_path, network):
    base = tools.pack(tmp_path / "a", network)
    with torch.no_grad():
        network[0].weight[0, 0] += 1e-6
    moved = tools.pack(tmp_path / "b", network)
    threshold = tools.pack(tmp_path / "c", network, threshold=0.2)
    assert len({base.digest, moved.digest, threshold.digest}) == 3
    assert base.weights_sha256 != moved.weights_sha256 == threshold.weights_sha256
    assert base.package == moved.package == threshold.package  # the code is the same
    (base.data / "extra").write_text("")
    assert folder_digest(base.path) != base.digest


@given(st.permutations(["a", "b", "c"]), st.booleans())
@settings(deadline=None, max_examples=12, derandomize=True)
def test_the_weights_digest_knows_values_not_order_or_memory(order, transposed):
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3), "c": torch.zeros(1)}
    other = {name: state[name].t().contiguous().t() if transposed else state[name] for name in order}
    assert weights_bytes(other) == weights_bytes(state)
    for name in state:
        changed = {**state, name: state[name] + 1}
        assert weights_digest(changed) != weights_digest(state)


def test_tied_weights_are_written_twice_rather_than_refused():
    shared = torch.ones(3)
    assert len(weights_bytes({"a": shared, "b": shared})) > 2 * 12


def test_a_folder_is_packed_once(tools, tmp_path, network):
    tools.pack(tmp_path / "m", network)
    with pytest.raises(InternalError, match="exists already"):
        tools.pack(tmp_path / "m", network)


def test_a_folder_is_found_again_by_its_path_and_nothing_else_is_one(tools, tmp_path, network):
    folder = tools.pack(tmp_path / "m", network)
    load_folder(folder)
    assert open_folder(tmp_path / "m") == folder  # byte code that loading may leave does not count
    (folder.data / "weights.safetensors").unlink()
    with pytest.raises(InternalError, match="no packed model"):
        open_folder(tmp_path / "m")
    with pytest.raises(InternalError, match="no packed model"):
        open_folder(tmp_path / "elsewhere")


def test_weights_that_do_not_fit_the_specification_are_never_packed(tools, tmp_path, network):
    with pytest.raises(InternalError, match="does not load"):
        tools.pack(tmp_path / "m", network, inputs=tools.inputs + 1)
    state = {**network.state_dict(), "stowaway": torch.ones(1)}
    with pytest.raises(InternalError, match="does not load"):
        tools.pack(tmp_path / "n", network, weights=state)


def test_a_folder_of_a_newer_format_is_refused(tools, tmp_path, network):
    folder = tools.pack(tmp_path / "m", network)
    described = json.loads((folder.data / "network.json").read_text())
    (folder.data / "network.json").write_text(json.dumps({**described, "format": 2}))
    with pytest.raises(InternalError, match="format 1, not 2"):
        load_folder(folder)


def test_two_models_of_different_code_live_in_one_process(tools, tmp_path, network):
    from tasks.dpsgd import networks

    source = Path(str(networks.__file__)).read_text()
    doubled = tmp_path / "networks_of_next_year.py"
    doubled.write_text(source.replace(".squeeze(-1)", ".squeeze(-1) * 2"))
    assert doubled.read_text() != source
    old = load_folder(tools.pack(tmp_path / "old", network))
    new_folder = tools.pack(tmp_path / "new", network, networks_module=doubled)
    new, records = load_folder(new_folder), tools.records(50)
    logit = lambda frame: np.log(frame["probability"] / (1 - frame["probability"]))  # noqa: E731
    np.testing.assert_allclose(logit(new.predict(records)), 2 * logit(old.predict(records)), atol=1e-9)
    np.testing.assert_array_equal(old.predict(records)["probability"], tools.score(network, records))


def test_loading_leaves_the_import_path_as_it_was(tools, tmp_path, network):
    before = list(sys.path)
    load_folder(tools.pack(tmp_path / "m", network))
    assert sys.path == before


def test_typed_cells_score_as_their_texts(tools, tmp_path, network):
    served = load_folder(tools.pack(tmp_path / "m", network))
    text = tools.records(200)
    text["number_inpatient"] = text["number_inpatient"].replace({"x": "2", "?": None})
    typed = text.assign(
        time_in_hospital=text["time_in_hospital"].astype("int64"),
        number_inpatient=pd.to_numeric(text["number_inpatient"]),
        admission_type_id=pd.to_numeric(text["admission_type_id"]),  # float64, since one is missing
    )
    np.testing.assert_array_equal(served.predict(typed)["probability"], served.predict(text)["probability"])


def test_the_shipped_code_imports_nothing_of_the_project(tools, tmp_path, network):
    folder = tools.pack(tmp_path / "m", network)
    program = (
        f"import sys; sys.path.insert(0, {str(folder.code.parent)!r})\n"
        f"import {folder.package}.loader as loader\n"
        f"loader._load_pyfunc({str(folder.data)!r})\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'tasks', 'configs', 'flows', 'mlflow'}))"
    )
    # -I keeps the working folder and PYTHON* out; the finder of an editable installation is dropped too
    drop = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", drop + program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_requirements_are_pinned_and_without_local_labels():
    pins = requirements()
    assert [pin.split("==")[0] for pin in pins] == ["mlflow", "numpy", "pandas", "safetensors", "torch"]
    assert all(pin.split("==")[1][0].isdigit() and "+" not in pin for pin in pins)
