"""One MLflow store for the room: its migrations take seconds, so they run once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.data import encoding
from tasks.dpsgd import networks
from tasks.registry.package import ModelFolder, build_folder
from tasks.registry.tracking import Store, prepare

FEATURES = {
    "time_in_hospital": {"kind": "number", "min": 1, "max": 14, "scale": "linear", "fill": 1},
    "number_inpatient": {"kind": "number", "min": 0, "max": 20, "scale": "log", "fill": 0},
    "race": {
        "kind": "category",
        "values": ["Caucasian", "AfricanAmerican", "Other"],
        "reference": "Caucasian",
    },
    "admission_type_id": {"kind": "category", "values": ["1", "2", "3"], "reference": "1"},
    "diag_1": {"kind": "icd9"},
}
SPEC = encoding.build(FEATURES, missing=["?"])
INPUTS = len(encoding.feature_names(SPEC))
NETWORK = {"kind": "mlp", "hidden": [8], "prior_rate": 0.11}


def raw_records(rows: int, seed: int = 0) -> pd.DataFrame:
    """Synthetic raw records, every cell text, some of them missing, with a column that no model reads."""
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "encounter_id": [f"e{i}" for i in range(rows)],
            "diag_1": draw.choice(["428", "250.83", "V45", "E849", "?", "junk"], rows),
            "time_in_hospital": draw.integers(0, 20, rows).astype(str),
            "number_inpatient": draw.choice(["0", "3", "1e30", "?", "x"], rows),
            "race": draw.choice(["Caucasian", "AfricanAmerican", "Martian", "?"], rows),
            "admission_type_id": draw.choice(["1", "2", "3", None], rows),
        },
        dtype="str",
    )


def in_memory(network: torch.nn.Module, frame: pd.DataFrame) -> np.ndarray:
    with torch.inference_mode():
        encoded = torch.from_numpy(encoding.encode(frame, SPEC))
        return torch.sigmoid(network.eval()(encoded).double()).numpy()


def pack(into: Path, network: torch.nn.Module, **changes) -> ModelFolder:
    arguments = {
        "into": into,
        "encoding": SPEC,
        "network": NETWORK,
        "inputs": INPUTS,
        "weights": network.state_dict(),
        "threshold": 0.15,
        "encoding_module": Path(str(encoding.__file__)),
        "networks_module": Path(str(networks.__file__)),
    }
    return build_folder(**{**arguments, **changes})


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store.at(tmp_path_factory.mktemp("home"))
    prepare(made)
    return made


@pytest.fixture
def network() -> torch.nn.Module:
    return networks.build(NETWORK, INPUTS, seed=7)


@pytest.fixture
def tools():
    """What several files need, without importing each other."""

    class Tools:
        records = staticmethod(raw_records)
        score = staticmethod(in_memory)
        pack = staticmethod(pack)
        spec, inputs, network = SPEC, INPUTS, NETWORK

    return Tools


@pytest.fixture
def empty_cwd(tmp_path, monkeypatch):
    """A working folder that must stay empty: MLflow's defaults write into it."""
    here = tmp_path / "cwd"
    here.mkdir()
    monkeypatch.chdir(here)
    yield here
    assert list(here.iterdir()) == []
