"""The admission rule: published figures to the digit, and soundness where the tempting rules fail."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.accounting import UNITS_LIMIT, UNITS_PER_RDP, rdp_epsilon, rdp_units
from tasks.privacy.budget import _CANDIDATES, PrivacyFilter, added, conversion
from tasks.privacy.events import Mechanism, SampledGaussian

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "values.json"
VALUES: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
LEDGER = VALUES.get("ledger_run_q.01_sigma1_T1000_delta1e-6", {})
needs_values = pytest.mark.skipif(not VALUES, reason="the reference values are not beside this checkout")

RUN = (SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000),)


def planned(epsilon: float = 8.5, runs: int = 12) -> PrivacyFilter:
    return PrivacyFilter.planned(epsilon=epsilon, delta=1e-6, planned_runs=runs, run=RUN)


def spent(rule: PrivacyFilter, runs: int) -> tuple[int, ...]:
    return tuple(runs * units for units in rdp_units(RUN, rule.orders))


@needs_values
@pytest.mark.parametrize(("cap", "runs"), LEDGER.get("admitted_runs_by_cap", {}).items())
def test_it_admits_the_published_number_of_runs(cap: str, runs: int) -> None:
    rule = planned(float(cap))
    charge = rdp_units(RUN, rule.orders)
    assert rule.fits(spent=spent(rule, 0), charge=charge) == runs
    admitted = 0
    while rule.admits(spent=spent(rule, admitted), charge=charge):
        admitted += 1
    assert admitted == runs


@needs_values
def test_caps_agree_to_the_digit_and_are_rounded_down() -> None:
    rule = planned(6.0)
    assert rule.orders[0] == 4.25
    assert rule.caps[0] == LEDGER["units_1e-12_at_order_4.25"]["cap_6"]
    exact = (6.0 - conversion(4.25, 0.9e-6)) * UNITS_PER_RDP
    assert exact - 1 <= rule.caps[0] <= exact


@pytest.mark.parametrize(("runs", "used"), [(1, 3.044), (2, 3.937), (6, 5.903), (12, 8.236), (24, 12.901)])
def test_used_epsilon_agrees_with_the_published_table(runs: int, used: float) -> None:
    rule = planned()
    assert rule.used_epsilon(spent(rule, runs)) == pytest.approx(used, abs=5e-4)


@pytest.mark.parametrize("runs", [1, 6, 12])
def test_used_epsilon_is_never_below_the_best_order_in_hindsight(runs: int) -> None:
    rule = planned()
    hindsight = rdp_epsilon(mechanisms=RUN * runs, delta=1e-6)
    assert hindsight <= rule.used_epsilon(spent(rule, runs))


def test_nothing_charged_is_exactly_nothing_used() -> None:
    rule = planned()
    assert rule.used_epsilon((0,) * len(rule.orders)) == 0


def test_an_order_that_is_still_free_does_not_make_the_rest_free() -> None:
    rule = PrivacyFilter(epsilon=5.0, delta=1e-6, orders=(4.0, 8.0), weights=(0.5, 0.5))
    assert rule.used_epsilon((0, 10**12)) == min(conversion(4.0, 0.5e-6), 1 + conversion(8.0, 0.5e-6)) > 0
    with pytest.raises(AccountingError, match="0 units"):
        rule.fits(spent=(0, 0), charge=(0, 10**12))


def test_nothing_fits_when_every_order_is_over_its_cap() -> None:
    assert RULE.fits(spent=tuple(max(cap, 0) + 1 for cap in RULE.caps), charge=(10**12,) * 8) == 0


def test_used_epsilon_is_never_negative() -> None:
    rule = PrivacyFilter(epsilon=1.0, delta=0.9, orders=(64.0,), weights=(1.0,))
    assert conversion(64.0, 0.9) < 0
    assert rule.used_epsilon((1,)) == 0


@given(st.integers(1, 60), st.floats(1e-9, 1e-3), st.floats(0.1, 50))
@settings(max_examples=25, deadline=None)
def test_the_weights_never_use_more_than_delta(runs: int, delta: float, epsilon: float) -> None:
    rule = PrivacyFilter.planned(epsilon=epsilon, delta=delta, planned_runs=runs, run=RUN)
    assert len(rule.orders) == 8
    assert math.fsum(rule.weights) <= 1
    assert rule.weights[0] == 0.9


def test_the_orders_to_choose_from_are_distinct_and_dense() -> None:
    quarters = [order / 4 for order in range(6, 45)]  # 1.5 … 11
    assert list(_CANDIDATES) == [*quarters, *range(12, 65), 80, 96, 128, 192, 256, 512]


amounts = st.lists(st.integers(0, 10**13), min_size=8, max_size=8)


@given(amounts, amounts)
@settings(max_examples=100, deadline=None)
def test_admission_is_exactly_one_order_below_its_cap_and_bounds_what_is_used(
    before: list[int], charge: list[int]
) -> None:
    rule = RULE
    total = added(before, charge)
    admitted = rule.admits(spent=before, charge=charge)
    assert admitted == any(amount <= cap for amount, cap in zip(total, rule.caps, strict=True))
    assert admitted == (rule.used_epsilon(total) <= rule.epsilon + 1e-12)


@given(amounts, st.lists(st.integers(1, 10**12), min_size=8, max_size=8))
@settings(max_examples=100, deadline=None)
def test_fits_is_the_last_number_of_runs_that_is_admitted(before: list[int], charge: list[int]) -> None:
    rule = RULE
    n = rule.fits(spent=before, charge=charge)

    def at(runs: int) -> list[int]:
        return [min(amount + runs * each, UNITS_LIMIT) for amount, each in zip(before, charge, strict=True)]

    assert n == 0 or rule.admits(spent=at(n - 1), charge=charge)
    assert not rule.admits(spent=at(n), charge=charge)


RULE = planned()


@pytest.mark.parametrize("tiny", [1, 10])
def test_the_smallest_charge_is_never_lost_in_an_addition(tiny: int) -> None:
    full = tuple(max(cap, 0) for cap in RULE.caps)
    assert not RULE.admits(spent=full, charge=(tiny,) * 8)
    assert RULE.admits(spent=(full[0] - tiny, *full[1:]), charge=(tiny,) * 8)


def test_an_order_that_is_used_up_stays_used_up() -> None:
    assert added((UNITS_LIMIT, 1), (5, 5)) == (UNITS_LIMIT, 6)
    assert all(cap < UNITS_LIMIT for cap in planned(1000.0).caps)


@pytest.mark.parametrize(
    "charge", [(-1,) * 8, (-1, *(1,) * 7), (1,) * 7, (1.0,) * 8, (math.nan,) * 8, (True,) * 8, (UNITS_LIMIT + 1,) * 8]
)
def test_an_amount_that_could_lower_a_counter_is_refused(charge: Any) -> None:
    rule = RULE
    zero = (0,) * 8
    with pytest.raises(AccountingError):
        rule.admits(spent=zero, charge=charge)
    with pytest.raises(AccountingError):
        rule.admits(spent=charge, charge=zero)
    with pytest.raises(AccountingError):
        rule.used_epsilon(charge)


def test_a_free_run_is_refused_because_no_mechanism_is_free() -> None:
    with pytest.raises(AccountingError, match="0 units"):
        RULE.fits(spent=(0,) * 8, charge=(0,) * 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": 1001.0},
        {"epsilon": True},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"orders": (), "weights": ()},
        {"orders": (2.0, 2.0)},
        {"orders": (1.0, 2.0)},
        {"orders": (2.0, math.inf)},
        {"orders": (2.0,)},
        {"weights": (0.6, 0.6)},
        {"weights": (0.0, 0.5)},
        {"weights": (math.nan, 0.5)},
    ],
)
def test_a_rule_that_would_not_hold_cannot_be_made(changes: dict[str, Any]) -> None:
    arguments = {"epsilon": 1.0, "delta": 1e-6, "orders": (2.0, 4.0), "weights": (0.5, 0.5)} | changes
    with pytest.raises(ConfigurationError):
        PrivacyFilter(**arguments)


@pytest.mark.parametrize("changes", [{"planned_runs": 0}, {"planned_runs": 1.0}, {"planned_runs": True}, {"run": ()}])
def test_a_plan_without_a_run_is_refused(changes: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "planned_runs": 1, "run": RUN} | changes
    with pytest.raises(ConfigurationError):
        PrivacyFilter.planned(**arguments)


# Soundness when the second mechanism is chosen for what the first has shown.
#
# First a Gaussian with μ = 1/σ. Its privacy loss L is N(μ²/2, μ²); at order a = b + 1 it costs a μ²/2. Then,
# depending on L, one mechanism with two outcomes: with probability p the loss is c, else next to nothing. It
# is the costliest that a rule still admits at order a: p e^(b c) = e^(b (cap_a - a μ²/2)) - 1. Where the
# conversion is tight, L + c = ε + log(a / (a - 1)), each order's delta at L is δ e^(b L) / E[e^(b L)], with
# mean δ; taking the better order at each L gives more. The exact delta is one integral, done here on a grid.

EPSILON, DELTA, MU, ORDERS = 8.0, 1e-6, 0.8, (3.0, 6.0)


def _adaptive_delta(caps: Sequence[float]) -> float:
    """The exact δ(ε) of the adversary that a rule with these caps (in nats) admits."""
    grid = MU**2 / 2 + MU * np.linspace(-12, 12, 200_001)
    density = stats.norm.pdf(grid, MU**2 / 2, MU)
    deltas = [np.maximum(-np.expm1(EPSILON - grid), 0)]  # stop after the first mechanism
    for order, cap in zip(ORDERS, caps, strict=True):
        b = order - 1
        left = cap - order * MU**2 / 2  # what the rule still admits at this order
        if left <= 0:
            continue
        loss = np.maximum(EPSILON + math.log(order / b) - grid, 1e-3)
        hit = np.minimum(np.expm1(b * left) * np.exp(-b * loss), 1 - 1e-12)
        miss = np.log1p(-hit) - np.log1p(-hit * np.exp(-loss))  # loss of the other outcome, ≤ 0
        cost = np.logaddexp(np.log(hit) + b * loss, np.log1p(-hit) + b * miss) / b
        assert np.all(cost <= left + 1e-9)  # the rule does admit it
        beyond = hit * np.maximum(-np.expm1(EPSILON - grid - loss), 0)
        deltas.append(beyond + (1 - hit) * np.maximum(-np.expm1(EPSILON - grid - miss), 0))
    return float(np.trapezoid(np.max(deltas, axis=0) * density, grid))


def test_the_best_order_in_hindsight_overspends_when_runs_depend_on_results() -> None:
    hindsight = [EPSILON - conversion(order, DELTA) for order in ORDERS]
    assert _adaptive_delta(hindsight) > 1.5 * DELTA


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.9, 0.1), (0.1, 0.9)])
def test_fixed_orders_with_split_delta_hold_against_the_same_adversary(weights: tuple[float, float]) -> None:
    rule = PrivacyFilter(epsilon=EPSILON, delta=DELTA, orders=ORDERS, weights=weights)
    spent_delta = _adaptive_delta([cap / UNITS_PER_RDP for cap in rule.caps])
    assert 0.05 * DELTA < spent_delta <= DELTA


@pytest.mark.parametrize("order", ORDERS)
def test_the_conversion_is_tight_at_a_single_order_so_the_adversary_above_is_a_strong_one(
    order: float,
) -> None:
    # c(a) e^((a-1)(x-ε)) touches (1 - e^(ε-x))_+ at x = ε + log(a / (a-1)) and is nowhere below it.
    x = np.linspace(-5, 30, 350_001)
    bound = (1 / order) * (1 - 1 / order) ** (order - 1) * np.exp((order - 1) * (x - EPSILON))
    gap = bound - np.maximum(-np.expm1(EPSILON - x), 0)
    assert gap.min() >= -1e-12
    assert gap[np.searchsorted(x, EPSILON + math.log(order / (order - 1)))] < 1e-7


def test_any_mechanism_can_be_planned_for() -> None:
    strong: tuple[Mechanism, ...] = (SampledGaussian(sampling_rate=0.02, noise_multiplier=20.0, steps=10),)
    weak: tuple[Mechanism, ...] = (SampledGaussian(sampling_rate=1.0, noise_multiplier=0.3, steps=10),)
    for run in (strong, weak):
        rule = PrivacyFilter.planned(epsilon=500.0, delta=1e-6, planned_runs=1, run=run)
        assert rule.admits(spent=(0,) * 8, charge=rdp_units(run, rule.orders))
