"""A refusal says how much is missing and what would fit, and what it says is true."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from configs.errors import AccountingError, BudgetError
from tasks.privacy import refusal as refusals
from tasks.privacy.accounting import calibrate_noise, pld_epsilon
from tasks.privacy.budget import added
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian
from tasks.privacy.refusal import amount, largest_epsilon, mend

MOMENTS = Gaussian(noise_multiplier=8.0)
TRAINING = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
RUN: tuple[Mechanism, ...] = (MOMENTS, TRAINING)  # 1001 claims


def noise_of(run: Sequence[Mechanism]) -> float:
    return run[-1].noise_multiplier


def spend_all(desk: Any) -> None:
    while desk.balance().fits(RUN):
        held = desk.reserve(f"spend-{len(desk.ledger.entries())}")
        desk.claim(held, 1001)
        desk.commit(held, 1001)


def test_a_run_over_budget_is_refused_with_requested_remaining_and_difference(desk: Any) -> None:
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
    assert "two named approvers" in text
    assert "run.epsilon" not in text, "without the run's delta no epsilon can be named"
    assert (desk.balance(), desk.ledger.head()) == before


def test_a_refusal_names_the_largest_run_epsilon_that_fits_and_no_noise_multiplier(desk: Any) -> None:
    spend_all(desk)
    with pytest.raises(BudgetError) as refusal:
        desk.reserve(delta=1e-7)
    text = str(refusal.value)
    assert "noise" not in text, "it is no key of the configuration"
    found = re.search(r"largest privacy\.run\.epsilon that would fit is ([\d.]+), at delta 1e-07\.", text)
    assert found is not None
    epsilon = float(found[1])
    last_digit = 10.0 ** -(2 - math.floor(math.log10(epsilon)))

    def recalibrated(epsilon: float) -> tuple[Mechanism, ...]:
        sigma = calibrate_noise(epsilon=epsilon, delta=1e-7, sampling_rate=0.01, steps=1000, others=[MOMENTS])
        return (MOMENTS, SampledGaussian(sampling_rate=0.01, noise_multiplier=sigma, steps=1000))

    assert desk.balance().fits(recalibrated(epsilon)) == 1
    assert desk.balance().fits(recalibrated(epsilon + 1.5 * last_digit)) == 0


def test_where_only_the_moments_are_in_the_way_the_refusal_says_so() -> None:
    said = mend(mechanisms=RUN, delta=1e-6, admits=lambda run: len(run) == 1 and noise_of(run) >= 2.0)
    found = re.search(r"With privacy\.moments no such run fits .* fit is ([\d.]+), at delta 1e-06\. $", said)
    assert found is not None
    at_two = pld_epsilon(mechanisms=[replace(TRAINING, noise_multiplier=2.0)], delta=1e-6)
    assert at_two - 2e-3 < float(found[1]) <= at_two


@pytest.mark.parametrize("run", [RUN, RUN[1:]])
def test_where_no_epsilon_would_fit_the_refusal_says_so(run: tuple[Mechanism, ...]) -> None:
    nothing = "No privacy.run.epsilon of 0.01 or more would fit. "
    assert mend(mechanisms=run, delta=1e-6, admits=lambda run: False) == nothing
    # What fits is below 0.01, or below what the moments alone cost: neither can be written.
    assert mend(mechanisms=run, delta=1e-6, admits=lambda run: noise_of(run) >= 5000) == nothing


def test_a_run_that_no_file_describes_has_no_mend() -> None:
    assert mend(mechanisms=(TRAINING, MOMENTS), delta=1e-6, admits=lambda run: True) == ""


def test_what_cannot_be_accounted_is_no_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> float:
        raise AccountingError("too slow")

    monkeypatch.setattr(refusals, "calibrate_noise", fails)
    assert mend(mechanisms=RUN, delta=1e-6, admits=lambda run: noise_of(run) >= 2.0) == ""


def test_an_epsilon_is_named_only_if_the_noise_that_it_would_get_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "calibrate_noise", lambda **_: 1.9)
    options = {"others": [], "training": TRAINING, "delta": 1e-6}
    assert largest_epsilon(**options, admits=lambda run: noise_of(run) >= 2.0) is None
    assert largest_epsilon(**options, admits=lambda run: noise_of(run) >= 1.9) is not None


@pytest.mark.parametrize(("epsilon", "named"), [(0.01, 0.01), (0.0100999, 0.01), (0.00999, None)])
def test_the_least_epsilon_that_is_named_is_a_hundredth(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, named: float | None
) -> None:
    monkeypatch.setattr(refusals, "pld_epsilon", lambda **_: epsilon)
    monkeypatch.setattr(refusals, "calibrate_noise", lambda **_: 2.0)
    found = largest_epsilon(others=[], training=TRAINING, delta=1e-6, admits=lambda run: noise_of(run) >= 2.0)
    assert found == named


def test_tiny_amounts_are_shown_as_what_they_are() -> None:
    assert [amount(x) for x in (0.0, 0.5, 4e-7, -4e-7)] == ["0.0000", "0.5000", "4.000e-07", "-4.000e-07"]


def test_concurrent_runs_count_at_their_worst_case(desk: Any) -> None:
    held = [desk.reserve(f"attempt-{number}") for number in range(6)]
    desk.claim(held[1], 1)  # five are reserved and one is running
    with pytest.raises(BudgetError, match="6 other runs not finished"):
        desk.reserve("attempt-7")
    desk.abandon(held[0], reason="not needed")
    desk.reserve("attempt-8")


@pytest.mark.parametrize("least", [1.0, 1.00005, 1.5, 37.0, 9_999.0, 10_000.0])
def test_the_noise_that_would_do_is_at_most_a_ten_thousandth_above_the_least(least: float) -> None:
    found = refusals._least_noise(lambda sigma: sigma >= least, 1.0)
    assert found is not None
    assert least <= found <= least * 1.0001 * 1.0001


def test_where_the_most_noise_is_not_enough_none_is_named() -> None:
    assert refusals._least_noise(lambda sigma: sigma > 10_000.0, 1.0) is None
    assert refusals._least_noise(lambda sigma: sigma >= 20_000.0, 20_000.0) == 20_000.0


@pytest.mark.parametrize(
    ("epsilon", "down"), [(1.23999, 1.23), (0.012399, 0.0123), (0.29, 0.29), (12.99, 12.9), (0.0, 0.0), (1e-9, 1e-9)]
)
def test_an_epsilon_is_rounded_down_to_three_digits(epsilon: float, down: float) -> None:
    assert refusals._rounded_down(epsilon) == pytest.approx(down, rel=1e-12)
    assert refusals._rounded_down(epsilon) <= epsilon


@pytest.mark.parametrize(("epsilon", "shown"), [(0.001, "0.0010"), (-0.001, "-0.0010"), (0.00099, "9.900e-04")])
def test_an_amount_changes_its_spelling_at_a_thousandth(epsilon: float, shown: str) -> None:
    assert amount(epsilon) == shown
