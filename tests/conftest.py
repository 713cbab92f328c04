"""Shared by all tests: a quiet environment, where the field's cases lie, and hypothesis's profiles."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from absl import logging as absl_logging
from hypothesis import HealthCheck, settings

from flows.environment import quiet

# Before anything imports Prefect or MLflow, which read these once; a home or key of the developer's stays out.
quiet()
os.environ["PREFECT_LOGGING_LEVEL"] = "CRITICAL"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores; torch reads it when it is imported
for _name in [name for name in os.environ if name.startswith("DISCREET_")]:
    del os.environ[_name]

# absl (below dp-accounting) binds its log handler to the standard error of the moment, here pytest's; Prefect's log
# configuration closes all handlers, and with this one pytest's own stream. The process's stream it leaves open.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

SHARED = Path(__file__).parents[2] / "shared"

settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


ROOT = Path(__file__).parents[1]
STRAYS = [folder / name for folder in {ROOT, Path.cwd()} for name in ("mlflow.db", "mlruns")]
_there_before = [path for path in STRAYS if path.exists()]


@pytest.fixture(autouse=True)
def no_stray_store() -> Iterator[None]:
    """Whatever speaks to MLflow without naming a store writes into the working directory: no test may."""
    yield
    found = [str(path) for path in STRAYS if path.exists() and path not in _there_before]
    assert not found, f"MLflow was used without a store of the test's own: {', '.join(found)}"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference values, cases and real records beside the project; a user does not have it."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder ../shared with reference values and real records")
    return SHARED
