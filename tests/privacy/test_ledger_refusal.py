"""A refusal says how much is missing and what would fit, and what it says is true."""

import re
from typing import Any

import pytest

from configs.errors import BudgetError
from tasks.privacy import refusal as refusals
from tasks.privacy.budget import added
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian, prefix
from tasks.privacy.refusal import amount

MOMENTS = Gaussian(noise_multiplier=8.0)
TRAINING = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
RUN: tuple[Mechanism, ...] = (MOMENTS, TRAINING)  # 1001 claims


def spend_all(desk: Any) -> None:
    while desk.balance().fits(RUN):
        held = desk.reserve(f"spend-{len(desk.ledger.entries())}")
        desk.claim(held, 1001)
        desk.commit(held, 1001)


def test_a_run_over_budget_is_refused_with_requested_remaining_difference_and_mend(desk: Any) -> None:
    spend_all(desk)
    before = (desk.balance(), desk.ledger.head())
    with pytest.raises(BudgetError) as refusal:
        desk.reserve()
    text = str(refusal.value)
    requested, remaining, difference = (
        float(found) for found in re.findall(r"(?:Requested: epsilon|remaining:|difference:) ([\d.e-]+)", text)
    )
    with_it = before[0].rule.used_epsilon(added(before[0].spent, desk.cost(1001)))
    assert requested == pytest.approx(with_it - before[0].used_epsilon, abs=1e-4)
    assert remaining == pytest.approx(before[0].remaining_epsilon, abs=1e-4)
    assert difference == pytest.approx(requested - remaining, abs=2e-4)
    assert difference > 0
    assert "unit person, delta 1e-06" in text
    assert (desk.balance(), desk.ledger.head()) == before

    found = re.search(r"first (\d+) of 1001 .* noise multiplier of ([\d.]+)\.", text)
    assert found is not None
    most, sigma = int(found[1]), float(found[2])
    assert before[0].fits(prefix(RUN, most)) == 1
    assert before[0].fits(prefix(RUN, most + 1)) == 0

    def noisier(sigma: float) -> tuple[Mechanism, ...]:
        return (MOMENTS, SampledGaussian(sampling_rate=0.01, noise_multiplier=sigma, steps=1000))

    assert before[0].fits(noisier(sigma * 1.002)) >= 1
    assert before[0].fits(noisier(sigma * 0.99)) == 0


def test_a_refusal_says_when_nothing_more_is_possible(desk: Any) -> None:
    with pytest.raises(BudgetError, match="Not even its first step would fit"):
        desk.reserve(mechanisms=(Gaussian(noise_multiplier=0.1),))


def test_a_refusal_without_training_names_only_what_fits(desk: Any) -> None:
    weak = Gaussian(noise_multiplier=0.1)
    with pytest.raises(BudgetError, match=r"its first 1 of 2 releases and steps would fit\.$"):
        desk.reserve(mechanisms=(MOMENTS, weak))
    # Noise can be added to the training but not to the release after it, so no noise multiplier helps.
    with pytest.raises(BudgetError, match=r"its first 1000 of 1001 releases and steps would fit\.$"):
        desk.reserve(mechanisms=(TRAINING, weak))


def test_noise_as_a_mend_is_only_named_where_there_is_training(desk: Any) -> None:
    # 60 releases of the moments: some fit, all do not, and there is no training to add noise to.
    with pytest.raises(BudgetError, match=r"of 60 releases and steps would fit\.$"):
        desk.reserve(mechanisms=(Gaussian(noise_multiplier=2.0),) * 60)


def test_tiny_amounts_are_shown_as_what_they_are() -> None:
    assert [amount(x) for x in (0.0, 0.5, 4e-7, -4e-7)] == ["0.0000", "0.5000", "4.000e-07", "-4.000e-07"]


def test_concurrent_runs_count_at_their_worst_case(desk: Any) -> None:
    held = [desk.reserve(f"attempt-{number}") for number in range(6)]
    desk.claim(held[1], 1)  # five are reserved and one is running
    with pytest.raises(BudgetError, match="6 other runs not finished"):
        desk.reserve("attempt-7")
    desk.abandon(held[0], reason="not needed")
    desk.reserve("attempt-8")


@pytest.mark.parametrize("total", [1, 2, 7, 1001])
def test_the_number_of_steps_that_fit_is_exact(total: int) -> None:
    for most in {0, 1, total // 2, total - 1}:
        if most < total:
            assert refusals._most_claims(lambda claims, most=most: claims <= most, total) == most


@pytest.mark.parametrize("least", [1.0, 1.0005, 1.5, 37.0, 999.0, 1000.0])
def test_the_noise_that_would_do_is_at_most_a_thousandth_above_the_least(least: float) -> None:
    found = refusals._least_noise(lambda scale: scale >= least)
    assert found is not None
    assert least <= found <= least * 1.001 * 1.001


def test_where_a_thousand_times_the_noise_is_not_enough_none_is_named() -> None:
    assert refusals._least_noise(lambda scale: scale > 1000.0) is None


@pytest.mark.parametrize(("epsilon", "shown"), [(0.001, "0.0010"), (-0.001, "-0.0010"), (0.00099, "9.900e-04")])
def test_an_amount_changes_its_spelling_at_a_thousandth(epsilon: float, shown: str) -> None:
    assert amount(epsilon) == shown
