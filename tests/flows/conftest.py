"""A small hospital for whole runs: the shipped configuration, shrunk; its records as a CSV file."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows import cli

SHIPPED = Path(__file__).parents[2] / "configs" / "readmission.yaml"
SHRINK = {
    "rows: 200000": "rows: 6000",
    "units: 82000": "units: 2500",
    "expected_batch: 8192": "expected_batch: 500",
    "epochs: 20": "epochs: 4",
    "epsilon: 8.0, delta: 1e-6, planned_runs: 5": "epsilon: 20.0, delta: 1e-5, planned_runs: 3",
    "run: {epsilon: 3.0, delta: 1e-6}": "run: {epsilon: 8.0, delta: 1e-5}",
    "min_rows: 1000}": "min_rows: 30}",
    "hidden: [64]": "hidden: [8]",
    "min_auc: 0.70": "min_auc: 0.50",
    "max_auc_drop: 0.02": "max_auc_drop: 0.5",
    # a thousand people tell little of an attack, and less of a group
    "max_advantage: 0.05": "max_advantage: 0.9",
    "units: 5000, epochs: 40": "units: 500, epochs: 150",
    "  max_privacy_loss: 0.05\n": "",
    "  min_group: 0.60\n": "",
    'required: ["age_band/80+"]': "required: []",
}


def shrunk(path: Path, changes: dict[str, str]) -> Path:
    """Write the shrunk configuration, with further replacements."""
    text = SHIPPED.read_text()
    for old, new in {**SHRINK, **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[None]:
    """One Prefect API for all flows of the session."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=300),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `$DISCREET_HOME`."""
    folder = tmp_path / "home"
    monkeypatch.setenv("DISCREET_HOME", str(folder))
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """Write the shrunk configuration, with further replacements, and return its path."""

    def write(changes: dict[str, str] | None = None, name: str = "small.yaml") -> Path:
        return shrunk(tmp_path / name, changes or {})

    return write


@pytest.fixture
def discreet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["discreet", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as leave:
            code = int(leave.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
