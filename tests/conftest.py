"""Shared by all tests: where the field's cases lie, and hypothesis's profiles."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
