"""The least noise for a target: on the private side, and least."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import AccountingError, BudgetError, ConfigurationError
from tasks.privacy import calibration
from tasks.privacy.accounting import calibrate_noise, pld_epsilon
from tasks.privacy.events import Gaussian, SampledGaussian


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps", "published"),
    [(1.0, 1e-5, 0.01, 1000, 1.4159), (3.0, 1e-5, 0.01, 1000, 0.8137), (1.0, 1e-6, 0.005, 2000, 1.2058)],
)
def test_noise_is_least_and_agrees_with_the_published_values(
    epsilon: float, delta: float, rate: float, steps: int, published: float
) -> None:
    sigma = calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=steps)

    def at(sigma: float) -> float:
        run = SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)
        return pld_epsilon(mechanisms=[run], delta=delta)

    assert at(sigma) <= epsilon < at(sigma - 1e-4)
    assert sigma == round(sigma, 4)
    assert sigma == pytest.approx(published, abs=3e-3)  # published on a grid ten times coarser


def test_other_releases_are_paid_from_the_same_target() -> None:
    moments = Gaussian(noise_multiplier=8.0)
    sigma = calibrate_noise(epsilon=3.0, delta=1e-6, sampling_rate=0.157, steps=254, others=(moments,))
    run = SampledGaussian(sampling_rate=0.157, noise_multiplier=sigma, steps=254)
    assert 2.999 < pld_epsilon(mechanisms=[moments, run], delta=1e-6) <= 3.0
    assert sigma > calibrate_noise(epsilon=3.0, delta=1e-6, sampling_rate=0.157, steps=254)


@given(st.floats(0.05, 8), st.floats(0.02, 1), st.integers(1, 300))
@settings(max_examples=3, deadline=None)
def test_noise_never_overshoots_the_target(epsilon: float, rate: float, steps: int) -> None:
    sigma = calibrate_noise(epsilon=epsilon, delta=1e-5, sampling_rate=rate, steps=steps)
    run = SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)
    assert pld_epsilon(mechanisms=[run], delta=1e-5) <= epsilon


def test_75_batches_times_3_epochs_stay_within_epsilon_1() -> None:
    sigma = calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=1 / 75, steps=225)
    run = SampledGaussian(sampling_rate=1 / 75, noise_multiplier=sigma, steps=225)
    assert pld_epsilon(mechanisms=[run], delta=1e-5) <= 1.0


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"epsilon": math.nan}, AccountingError, "target"),
        ({"epsilon": math.inf}, AccountingError, "target"),
        ({"epsilon": -1.0}, AccountingError, "target"),
        ({"epsilon": 0.0}, BudgetError, "epsilon = 0"),
        ({"delta": 0.0}, AccountingError, "delta"),
        ({"sampling_rate": 1.5}, ConfigurationError, "sampling_rate"),
        ({"steps": 0}, ConfigurationError, "steps"),
        ({"epsilon": 0.5, "others": (Gaussian(noise_multiplier=5.0),)}, BudgetError, "alone"),
        ({"epsilon": 1e-7, "steps": 1000}, BudgetError, "no noise multiplier"),
        ({"epsilon": 2000.0, "steps": 1}, AccountingError, "protects nothing"),
    ],
)
def test_an_impossible_target_is_refused_with_its_mend(
    changes: dict[str, Any], error: type[Exception], named: str
) -> None:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 10} | changes
    with pytest.raises(error, match=named):
        calibrate_noise(**arguments)


def test_a_wrong_rate_is_named_before_anything_is_computed() -> None:
    with pytest.raises(ConfigurationError, match="sampling_rate"):
        calibrate_noise(epsilon=0.5, delta=1e-5, sampling_rate=1.5, steps=10, others=(Gaussian(noise_multiplier=5.0),))


def test_releases_that_use_the_whole_target_leave_none_for_the_training() -> None:
    moments = Gaussian(noise_multiplier=8.0)
    whole = pld_epsilon(mechanisms=[moments], delta=1e-5)
    with pytest.raises(BudgetError, match="alone"):
        calibrate_noise(epsilon=whole, delta=1e-5, sampling_rate=0.1, steps=10, others=(moments,))


@pytest.mark.parametrize("guess", [0.5, 0.99, 1.0, 1.01, 2.0])
@pytest.mark.parametrize("power", [0.2, 1.0, 5.0])
def test_the_walk_ends_at_the_least_multiple_from_any_guess(guess: float, power: float) -> None:
    # ε(σ) = σ^-power with target 1 meets it at σ = 1 exactly; a wrong power only means a longer walk.
    least = calibration._least_on_grid(lambda index: (index / 10_000) ** -power, 1.0, guess, 1.0)
    assert least == 1.0


def test_the_walk_survives_a_curve_that_is_zero() -> None:
    assert calibration._least_on_grid(lambda index: 0.0 if index >= 3 else 2.0, 1.0, 0.0005, 1.0) == 0.0003


@pytest.mark.parametrize(
    ("target", "low", "high"), [(0.3, 2.0, 4.0), (1.0, 0.5, 1.0), (2.0, 0.25, 0.5), (0.5, 1.0, 2.0), (5.0, 0.125, 0.25)]
)
def test_the_search_starts_from_two_neighbouring_powers_of_two(target: float, low: float, high: float) -> None:
    assert calibration._bracket(lambda sigma: 1 / sigma, target) == (low, high)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_rough_search_finds_the_root_to_one_per_cent_and_the_power_at_it(power: float) -> None:
    root, found = calibration._rough(lambda sigma: (sigma / 3.3) ** -power, 1.0)
    assert root == pytest.approx(3.3, rel=0.011)
    assert found == pytest.approx(power, rel=1e-6)


@pytest.mark.parametrize("guess", [1.96, 2.0, 2.04])
def test_two_corrections_bring_a_guess_next_to_the_answer(guess: float) -> None:
    asked: list[int] = []

    def curve(index: int) -> float:
        asked.append(index)
        return (index / 10_000) ** -2.0

    assert calibration._least_on_grid(curve, 0.25, guess, 2.0) == 2.0
    assert len(asked) == len(set(asked)) <= 5
    assert all(abs(index - 20_000) <= 2 for index in asked[1:])


@pytest.mark.parametrize("least", [1, 2, 3, 1000, 100_000])
def test_the_walk_doubles_its_steps_so_that_a_far_answer_is_near(least: int) -> None:
    asked: list[int] = []

    def curve(index: int) -> float:  # flat, so that the corrections lead nowhere
        asked.append(index)
        return 1.0 if index >= least else 1.0000001

    assert calibration._least_on_grid(curve, 1.0, 0.1, 1.0) == least / 10_000
    assert len(set(asked)) <= 40


def test_a_tiny_guess_never_asks_what_no_noise_at_all_would_cost() -> None:
    asked: list[int] = []

    def curve(index: int) -> float:
        asked.append(index)
        return 1.0 if index >= 2 else 1.5

    assert calibration._least_on_grid(curve, 1.0, 1e-6, 1.0) == 0.0002
    assert min(asked) >= 1


@pytest.mark.parametrize("guess", [0.0001, 0.0002, 0.0003, 0.0007])
def test_the_walk_may_end_at_the_least_multiple_of_all(guess: float) -> None:
    asked: list[int] = []

    def curve(index: int) -> float:
        asked.append(index)
        return 1.0

    assert calibration._least_on_grid(curve, 1.0, guess, 1.0) == 0.0001
    assert min(asked) == 1
