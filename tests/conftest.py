"""Shared by all tests: a quiet environment, where the field's cases lie, and hypothesis's profiles."""

import os
import sys
from pathlib import Path

import pytest
from absl import logging as absl_logging
from hypothesis import HealthCheck, settings

from flows.environment import quiet

# Before anything imports Prefect or MLflow, which read these once; a home or key of the developer's stays out.
quiet()
os.environ["PREFECT_LOGGING_LEVEL"] = "CRITICAL"
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


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference values, cases and real records beside the project; a user does not have it."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder ../shared with reference values and real records")
    return SHARED
