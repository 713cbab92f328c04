"""The noise that steps really get is measured, and held against what epsilon was computed for."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from configs.errors import NotPrivateError
from tasks.dpsgd.csprng import SystemKeystream
from tasks.dpsgd.loop import train
from tasks.dpsgd.networks import build
from tasks.dpsgd.noise import NoiseMeter, NoisyMean
from tasks.dpsgd.plan import DpSgdPlan


def plan_of(**changes):
    fields = {"units": 300, "expected_batch": 30, "steps": 7, "noise_multiplier": 1.5, "clipping_norm": 2.0}
    return DpSgdPlan(**(fields | {"delta": 1e-5} | changes))


def metered(squares, values):
    """A meter that took in one step whose noise has this sum of squares."""
    meter = NoiseMeter()
    noise = torch.full((values,), math.sqrt(squares / values), dtype=torch.float64)
    meter.add(sums=[torch.zeros(values)], gradients=[noise], divisor=1.0)
    return meter


@pytest.mark.parametrize("values", [1, 6, 200, 20_000, 2_000_000])
def test_the_limits_are_the_tails_of_chi_square(values):
    plan = plan_of()
    least, most = stats.chi2.ppf(1e-12, values), stats.chi2.isf(1e-12, values)
    for inside in (least * 1.0001, values, most * 0.9999):
        metered(inside * 9.0, values).check(plan)
    for outside in (least * 0.9999, most * 1.0001):
        with pytest.raises(NotPrivateError, match="the noise of the steps has the standard deviation"):
            metered(outside * 9.0, values).check(plan)


def test_noise_that_is_no_number_agrees_with_nothing():
    for bad in (math.nan, math.inf):
        with pytest.raises(NotPrivateError):
            metered(bad, 10).check(plan_of())
    with pytest.raises(NotPrivateError):
        NoiseMeter().check(plan_of())


@pytest.mark.statistical
def test_the_right_noise_agrees_also_beneath_large_sums():
    """False alarms have probability 2e-12 each; sums are 2e7 times the noise, where float32 rounds it away."""
    plan = plan_of(noise_multiplier=0.3, units=10**7, expected_batch=10**7, delta=1e-8)
    release, meter = NoisyMean(plan=plan, keystream=SystemKeystream()), NoiseMeter()
    for _ in range(20):
        sums = [torch.full((500,), 1e7), torch.zeros(100)]
        meter.add(sums=sums, gradients=release(sums), divisor=plan.expected_batch)
    meter.check(plan)
    assert meter._squares > 0.6**2 * stats.chi2.isf(1e-12, 12_000), "rounding alone would look like wrong noise"


def test_a_recipe_without_noise_agrees_with_none_and_any_noise_with_one_alone():
    quiet = plan_of().without_noise()
    sums = [torch.linspace(-1e4, 1e4, 999)]
    meter = NoiseMeter()
    meter.add(sums=sums, gradients=NoisyMean(plan=quiet, keystream=SystemKeystream())(sums), divisor=30)
    meter.check(quiet)
    with pytest.raises(NotPrivateError):
        meter.check(plan_of())
    with pytest.raises(NotPrivateError):
        metered(9.0 * 999, 999).check(quiet)


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.9, 1.1, 4.0])
def test_noise_that_changes_after_the_self_test_ends_the_run(make_records, monkeypatch, factor):
    steps, since = [], 40  # the self-test's own calls are fewer

    class Drifting(NoisyMean):
        def __call__(self, sums):
            steps.append(1)
            if len(steps) == since:
                self._deviation *= factor
            return super().__call__(sums)

    records, network = make_records(300, features=5), build({"kind": "linear"}, 5)
    monkeypatch.setattr("tasks.dpsgd.loop.NoisyMean", Drifting)
    plan = plan_of(steps=4000)
    with pytest.raises(NotPrivateError, match=r"standard deviation [\d.]+, and epsilon was computed for 3"):
        train(plan=plan, network=network, records=records, learning_rate=0.1, claim=lambda upto: None)
    assert len(steps) > 4000


def test_a_run_s_noise_is_held_against_another_plan(make_records):
    records, network = make_records(300, features=5), build({"kind": "linear"}, 5)
    plan = plan_of(steps=200)
    result = train(plan=plan, network=network, records=records, learning_rate=0.1, claim=lambda upto: None)
    result.noise.check(plan)
    for factor in (0.5, 2):
        with pytest.raises(NotPrivateError):
            result.noise.check(plan_of(steps=200, noise_multiplier=1.5 * factor))
    assert np.isfinite(result.noise._squares)
