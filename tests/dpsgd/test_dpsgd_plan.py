import dataclasses
import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import BudgetError, ConfigurationError
from tasks.dpsgd.plan import DpSgdPlan
from tasks.privacy.events import Gaussian, SampledGaussian

needs_accounting = pytest.mark.skipif(
    importlib.util.find_spec("tasks.privacy.accounting") is None, reason="the accountant is not there yet"
)

PLAN = {"units": 1000, "expected_batch": 100, "steps": 30, "noise_multiplier": 1.5, "delta": 1e-5}


def test_mechanisms_are_the_moments_and_then_the_steps():
    plan = DpSgdPlan(**PLAN, moments_noise_multiplier=8.0)
    assert plan.mechanisms == (
        Gaussian(noise_multiplier=8.0),
        SampledGaussian(sampling_rate=0.1, noise_multiplier=1.5, steps=30),
    )
    assert plan.claims_before_training == 1


def test_without_moments_the_steps_are_the_only_mechanism():
    plan = DpSgdPlan(**PLAN)
    assert plan.mechanisms == (SampledGaussian(sampling_rate=0.1, noise_multiplier=1.5, steps=30),)
    assert plan.claims_before_training == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("units", 0),
        ("units", 1000.0),
        ("units", True),
        ("expected_batch", 0),
        ("expected_batch", 1500),  # q = 1.5
        ("steps", 0),
        ("steps", 2.5),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", float("nan")),
        ("noise_multiplier", float("inf")),
        ("clipping_norm", 0.0),
        ("clipping_norm", float("nan")),
        ("clipping", "automatic"),
        ("unit", "household"),
        ("rows_per_unit", 0),
        ("rows_per_unit", 3),  # of a row
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", 1e-3),  # 1/n
        ("delta", float("nan")),
        ("moments_noise_multiplier", 0.0),
        ("moments_noise_multiplier", float("inf")),
    ],
)
def test_a_value_out_of_range_is_refused_with_field_value_and_bound(field, value):
    with pytest.raises(ConfigurationError) as refusal:
        DpSgdPlan(**(PLAN | {field: value}))
    assert f"{field} = {value!r}" in str(refusal.value)
    assert "must" in str(refusal.value)


def test_all_faults_are_reported_at_once():
    with pytest.raises(ConfigurationError, match="3 faults"):
        DpSgdPlan(**(PLAN | {"steps": 0, "delta": 1.0, "clipping": "none"}))


def test_a_plan_cannot_be_changed_after_it_was_accounted():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DpSgdPlan(**PLAN).noise_multiplier = 0.1  # type: ignore[misc]


def test_the_twin_has_no_mechanism_that_could_be_accounted():
    twin = DpSgdPlan(**PLAN, moments_noise_multiplier=8.0).without_noise()
    assert not twin.is_private
    assert DpSgdPlan(**PLAN).is_private
    with pytest.raises(BudgetError, match="infinite"):
        _ = twin.mechanisms


def test_the_twin_differs_in_noise_alone():
    plan = DpSgdPlan(**PLAN)
    twin = plan.without_noise()
    assert dataclasses.replace(twin, noise_multiplier=plan.noise_multiplier, twin=False) == plan


def test_a_private_plan_cannot_claim_to_be_the_twin():
    with pytest.raises(ConfigurationError, match="noise_multiplier"):
        DpSgdPlan(**PLAN, twin=True)


@settings(deadline=None, max_examples=50)
@given(data=st.data(), units=st.integers(2, 10**7))
def test_the_rate_comes_from_public_numbers_and_lies_in_zero_one(data, units):
    batch = data.draw(st.integers(1, units))
    plan = DpSgdPlan(**(PLAN | {"units": units, "expected_batch": batch, "delta": 0.1 / units}))
    assert plan.sampling_rate == batch / units
    assert 0 < plan.sampling_rate <= 1


CALIBRATED = {"epsilon": 1.0, "delta": 1e-5, "expected_batch": 64}


@needs_accounting
def test_t7_75_batches_an_epoch_for_3_epochs_are_225_steps_within_epsilon():
    from tasks.privacy.accounting import pld_epsilon

    plan = DpSgdPlan.calibrated(**CALIBRATED, units=75 * 64, epochs=3)
    assert plan.steps == 225
    assert plan.mechanisms[-1].steps == 225
    assert pld_epsilon(mechanisms=plan.mechanisms, delta=1e-5) <= 1.0


@needs_accounting
@pytest.mark.parametrize(
    ("units", "epochs", "steps"), [(93 * 64, 1, 93), (6400, 0.5, 50), (75 * 64, 3, 225), (101 * 64, 4, 404)]
)
def test_t7_steps_are_counted_in_integers_and_calibrated_as_they_run(monkeypatch, units, epochs, steps):
    asked = {}
    monkeypatch.setattr("tasks.privacy.accounting.calibrate_noise", lambda **keys: asked.update(keys) or 1.25)
    plan = DpSgdPlan.calibrated(**CALIBRATED, units=units, epochs=epochs, moments_noise_multiplier=8.0)
    assert plan.steps == steps == asked["steps"]
    assert plan.noise_multiplier == 1.25
    assert asked["sampling_rate"] == plan.sampling_rate == 64 / units
    assert asked["others"] == (Gaussian(noise_multiplier=8.0),)


@pytest.mark.parametrize("epochs", [0, -1, float("nan"), float("inf")])
def test_a_number_of_epochs_that_is_none_is_refused(epochs):
    with pytest.raises(ConfigurationError, match="epochs"):
        DpSgdPlan.calibrated(**CALIBRATED, units=6400, epochs=epochs)
