"""A mechanism's record is valid or does not exist, and survives the ledger's JSON unchanged."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.events import (
    MAX_STEPS,
    Gaussian,
    Mechanism,
    SampledGaussian,
    from_json,
    prefix,
    to_json,
    total_claims,
)

sigmas = st.floats(1e-3, 1e3)
gaussians = st.builds(Gaussian, noise_multiplier=sigmas)
sampled = st.builds(
    SampledGaussian,
    sampling_rate=st.floats(1e-9, 1),
    noise_multiplier=sigmas,
    steps=st.integers(1, 1000),
)
runs = st.lists(st.one_of(gaussians, sampled), max_size=4)


@given(runs)
@settings(max_examples=50)
def test_json_round_trip_is_exact(run: list[Mechanism]) -> None:
    assert from_json(json.loads(json.dumps(to_json(run)))) == tuple(run)


@given(runs, st.integers(-1, 5000))
@settings(max_examples=50)
def test_a_prefix_covers_exactly_what_was_claimed(run: list[Mechanism], claims: int) -> None:
    part = prefix(run, claims)
    assert total_claims(part) == max(0, min(claims, total_claims(run)))
    assert all(type(a) is type(b) for a, b in zip(part, run, strict=False))
    assert part[:-1] == tuple(run)[: max(len(part) - 1, 0)]


@pytest.mark.parametrize("sigma", [math.nan, math.inf, -math.inf, 0, 0.0, -1, "1", None, True])
def test_a_noise_multiplier_that_is_no_positive_number_is_refused(sigma: object) -> None:
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        Gaussian(noise_multiplier=sigma)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        SampledGaussian(sampling_rate=0.1, noise_multiplier=sigma, steps=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0, -0.1, 1.5, "0.1", None, True])
def test_a_sampling_rate_outside_its_range_is_refused(rate: object) -> None:
    with pytest.raises(ConfigurationError, match="sampling_rate"):
        SampledGaussian(sampling_rate=rate, noise_multiplier=1.0, steps=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, -1, 1.0, 10.5, math.nan, "3", None, True, MAX_STEPS + 1])
def test_steps_that_are_no_positive_integer_are_refused(steps: object) -> None:
    with pytest.raises(ConfigurationError, match="steps"):
        SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=steps)  # type: ignore[arg-type]


def test_ten_million_steps_are_the_most_that_a_run_may_have() -> None:
    assert SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=10_000_000).claims == MAX_STEPS == 10_000_000


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([{"kind": "laplace", "noise_multiplier": 1.0}], "laplace"),
        ([{"kind": ["gaussian"], "noise_multiplier": 1.0}], "unknown"),
        ([{"noise_multiplier": 1.0}], "unknown"),
        ([{"kind": "gaussian", "noise_multiplier": 1.0, "relation": "replace_one"}], "relation"),
        ([{"kind": "sampled_gaussian", "noise_multiplier": 1.0}], "fields"),
        (["gaussian"], "object"),
        ({"kind": "gaussian"}, "list"),
        ("gaussian", "list"),
    ],
)
def test_an_unknown_kind_or_field_is_refused_never_skipped(records: object, named: str) -> None:
    with pytest.raises(AccountingError, match=named):
        from_json(records)  # type: ignore[arg-type]


def test_a_stored_nan_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        from_json([{"kind": "gaussian", "noise_multiplier": float("nan")}])


def test_an_object_that_is_no_mechanism_has_no_json() -> None:
    with pytest.raises(AccountingError, match="dict"):
        to_json([{"kind": "gaussian"}])  # type: ignore[list-item]


def test_integers_become_floats_so_that_equal_runs_compare_equal() -> None:
    run = SampledGaussian(sampling_rate=1, noise_multiplier=2, steps=3)
    assert to_json([run]) == [{"kind": "sampled_gaussian", "sampling_rate": 1.0, "noise_multiplier": 2.0, "steps": 3}]
    assert isinstance(run.sampling_rate, float)
