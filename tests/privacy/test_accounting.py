"""Epsilon agrees with independent figures, and whatever cannot be computed counts as over budget."""

import json
import logging
import math
import threading
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from configs.errors import AccountingError, BudgetError, ConfigurationError
from tasks.privacy import accounting, guard, losses
from tasks.privacy.accounting import (
    UNITS_LIMIT,
    accountant_version,
    epsilon_path,
    person_epsilon,
    pld_epsilon,
    rdp_epsilon,
    rdp_units,
)
from tasks.privacy.events import Gaussian, SampledGaussian

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "values.json"
VALUES: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
needs_values = pytest.mark.skipif(not VALUES, reason="the reference values are not beside this checkout")
ROWS = VALUES.get("dpsgd_epsilon", [])


def sampled(rate: float = 0.01, sigma: float = 1.0, steps: int = 1000) -> SampledGaussian:
    return SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)


@needs_values
@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['sampling_rate']}-{r['noise_multiplier']}-{r['steps']}")
def test_pld_and_rdp_agree_with_the_table_and_pld_is_never_above_rdp(row: dict[str, float]) -> None:
    run = sampled(row["sampling_rate"], row["noise_multiplier"], int(row["steps"]))
    pld = pld_epsilon(mechanisms=[run], delta=row["delta"])
    rdp = rdp_epsilon(mechanisms=[run], delta=row["delta"])
    assert pld == pytest.approx(row["pld"], abs=2e-3)
    assert rdp == pytest.approx(row["rdp"], rel=1e-4)
    assert pld <= rdp


@needs_values
@pytest.mark.parametrize(("delta", "exact"), VALUES.get("delta_sweep_q.01_sigma1_T1000", []))
def test_pld_is_above_the_exact_value_at_every_delta(delta: float, exact: float) -> None:
    value = pld_epsilon(mechanisms=[sampled()], delta=delta)
    assert exact - 1e-5 <= value <= exact + 0.01


@given(st.floats(0.3, 30), st.floats(1e-9, 1e-3))
@settings(max_examples=10, deadline=None)
def test_one_gaussian_release_agrees_with_its_closed_form(sigma: float, delta: float) -> None:
    exact = gaussian_mechanism.get_epsilon_gaussian(sigma, delta)
    value = pld_epsilon(mechanisms=[Gaussian(noise_multiplier=sigma)], delta=delta)
    assert exact - 1e-6 <= value <= exact + 1e-3


def test_composition_agrees_with_the_librarys_accountant_on_self_composed_events() -> None:
    moments, run = Gaussian(noise_multiplier=8.0), sampled(0.157, 4.0907, 254)
    sampled_event = dp_accounting.PoissonSampledDpEvent(0.157, dp_accounting.GaussianDpEvent(4.0907))
    accountant = PLDAccountant().compose(dp_accounting.GaussianDpEvent(8.0))
    accountant.compose(dp_accounting.SelfComposedDpEvent(sampled_event, 254))
    ours = pld_epsilon(mechanisms=[moments, run], delta=1e-6)
    assert ours == pytest.approx(accountant.get_epsilon(1e-6), abs=1e-9)


def test_no_mechanism_costs_exactly_nothing() -> None:
    assert pld_epsilon(mechanisms=[], delta=1e-6) == 0
    assert rdp_epsilon(mechanisms=[], delta=1e-6) == 0
    assert epsilon_path(mechanisms=[sampled()], delta=1e-6, steps=[0]) == [0]


def test_full_batch_steps_are_one_gaussian_of_less_noise() -> None:
    many = pld_epsilon(mechanisms=[sampled(1.0, 10.0, 100)], delta=1e-5)
    assert many == pytest.approx(pld_epsilon(mechanisms=[Gaussian(noise_multiplier=1.0)], delta=1e-5), abs=1e-9)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 1.5, math.nan, math.inf, None, True, "1e-6"])
def test_a_delta_outside_its_range_is_a_typed_error_at_once(delta: Any) -> None:
    for compute in (
        lambda: pld_epsilon(mechanisms=[sampled()], delta=delta),
        lambda: rdp_epsilon(mechanisms=[], delta=delta),
        lambda: epsilon_path(mechanisms=[sampled()], delta=delta, steps=[1]),
        lambda: person_epsilon(mechanism=sampled(), rows=1, delta=delta),
    ):
        with pytest.raises(AccountingError, match="delta"):
            compute()


def test_a_delta_too_small_for_the_figure_reads_as_over_budget() -> None:
    with pytest.raises(BudgetError, match="larger delta"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-16)


@pytest.mark.parametrize("interval", [0, -1e-4, math.nan, 0.1000001, 1.0])
def test_a_grid_outside_its_range_is_refused(interval: float) -> None:
    with pytest.raises(AccountingError, match="interval"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5, interval=interval)


def test_what_is_no_mechanism_is_refused_before_any_accountant_sees_it() -> None:
    event = dp_accounting.GaussianDpEvent(float("nan"))  # the library's RDP accountant says epsilon 0 to this
    for compute in (pld_epsilon, rdp_epsilon):
        with pytest.raises(AccountingError, match="GaussianDpEvent"):
            compute(mechanisms=[event], delta=1e-5)
    with pytest.raises(AccountingError, match="GaussianDpEvent"):
        rdp_units([event], [2.0])  # type: ignore[list-item]


def test_a_coarser_grid_is_larger_and_still_below_rdp() -> None:
    fine, coarse = (pld_epsilon(mechanisms=[sampled()], delta=1e-5, interval=h) for h in (1e-4, 1e-2))
    assert fine < coarse < rdp_epsilon(mechanisms=[sampled()], delta=1e-5)


def test_a_figure_that_only_the_grid_made_too_large_is_refined() -> None:
    run = sampled(0.05, 100.0, 100_000)
    assert losses.epsilon_on_grid([run], delta=1e-5, interval=0.1) > 2 * rdp_epsilon(mechanisms=[run], delta=1e-5)
    assert pld_epsilon(mechanisms=[run], delta=1e-5, interval=0.1) == pytest.approx(
        pld_epsilon(mechanisms=[run], delta=1e-5), rel=0.01
    )


def test_accountants_that_disagree_give_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "epsilon_on_grid", lambda *_, **__: 9.9)
    with pytest.raises(AccountingError, match="disagree"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5)
    monkeypatch.setattr(accounting, "epsilon_on_grid", lambda *_, **__: 0.9)
    with pytest.raises(AccountingError, match="disagree"):
        pld_epsilon(mechanisms=[sampled(0.001, 100.0, 1)], delta=1e-5)


def test_pld_may_exceed_rdp_by_one_cell_of_the_grid_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2.0 * (1 + 1e-6) + 1e-3
    monkeypatch.setattr(accounting, "_rdp_epsilon", lambda *_: 2.0)
    monkeypatch.setattr(accounting, "epsilon_on_grid", lambda *_, **__: most)
    assert pld_epsilon(mechanisms=[sampled()], delta=1e-5, interval=1e-3) == most
    monkeypatch.setattr(accounting, "epsilon_on_grid", lambda *_, **__: math.nextafter(most, 3))
    with pytest.raises(AccountingError, match="disagree"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5, interval=1e-3)


def test_a_figure_is_refined_up_to_an_rdp_epsilon_of_1_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    grids: list[float] = []

    def figure(*_: object, delta: float, interval: float) -> float:
        grids.append(interval)
        return 1.0 if interval <= 1e-5 else 9.9

    monkeypatch.setattr(accounting, "_rdp_epsilon", lambda *_: 1.0)
    monkeypatch.setattr(accounting, "epsilon_on_grid", figure)
    assert pld_epsilon(mechanisms=[sampled()], delta=1e-5) == 1.0
    monkeypatch.setattr(accounting, "_rdp_epsilon", lambda *_: 0.5)
    with pytest.raises(AccountingError, match="disagree"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5)
    assert grids == [1e-4, 1e-5] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, None])
def test_a_figure_that_is_no_epsilon_reads_as_over_budget(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(accounting, "epsilon_on_grid", lambda *_, **__: value)
    with pytest.raises(BudgetError):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5)


def test_an_exception_while_accounting_reads_as_over_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> float:
        raise MemoryError

    monkeypatch.setattr(accounting, "epsilon_on_grid", fail)
    with pytest.raises(BudgetError, match="MemoryError"):
        pld_epsilon(mechanisms=[sampled()], delta=1e-5)


def test_a_computation_that_hangs_reads_as_over_budget() -> None:
    release = threading.Event()
    try:
        with pytest.raises(AccountingError, match="within"):
            guard.guarded(what="epsilon", compute=release.wait, time_limit_seconds=0.01)
        (left,) = [thread for thread in threading.enumerate() if thread.name == "privacy-accounting"]
        assert left.daemon  # so that it cannot keep the process alive
    finally:
        release.set()


def test_an_error_of_ours_passes_the_guard_unchanged() -> None:
    def fail() -> None:
        raise ConfigurationError("as it was")

    with pytest.raises(ConfigurationError, match="as it was"):
        guard.guarded(what="epsilon", compute=fail)


def test_invalid_input_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "guarded", lambda **_: pytest.fail("an accountant was asked"))
    for broken in ({"sigma": math.nan}, {"sigma": math.inf}, {"rate": 1.5}, {"steps": 0}):
        with pytest.raises(ConfigurationError):
            sampled(**broken)  # type: ignore[arg-type]
    for delta in (0.0, 1.0):
        with pytest.raises(AccountingError):
            pld_epsilon(mechanisms=[sampled()], delta=delta)


@given(st.floats(0.005, 0.3), st.floats(0.7, 5), st.integers(1, 300))
@settings(max_examples=4, deadline=None)
def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise(rate: float, sigma: float, steps: int) -> None:
    def at(rate: float, sigma: float, steps: int) -> float:
        return pld_epsilon(mechanisms=[sampled(rate, sigma, steps)], delta=1e-5, interval=1e-3)

    base = at(rate, sigma, steps)
    slack = 1e-9  # of floating-point composition
    assert base <= at(rate, sigma, 2 * steps) + slack
    assert base <= at(rate * 1.5, sigma, steps) + slack
    assert base >= at(rate, sigma * 1.5, steps) - slack


def test_the_path_ends_at_the_figure_of_the_run_and_only_rises() -> None:
    moments, run = Gaussian(noise_multiplier=8.0), sampled(0.05, 1.2, 100)
    path = epsilon_path(mechanisms=[moments, run], delta=1e-6, steps=[0, 1, 50, 100])
    assert path == sorted(path)
    assert path[0] == pytest.approx(pld_epsilon(mechanisms=[moments], delta=1e-6), abs=1e-12)
    assert path[-1] == pytest.approx(pld_epsilon(mechanisms=[moments, run], delta=1e-6), abs=1e-12)


def test_a_run_without_steps_has_a_path_of_its_releases_alone() -> None:
    release = Gaussian(noise_multiplier=8.0)
    path = epsilon_path(mechanisms=[release], delta=1e-6, steps=[0])
    assert path == [pytest.approx(pld_epsilon(mechanisms=[release], delta=1e-6), abs=1e-12)]


def test_a_path_outside_the_run_is_refused() -> None:
    release = Gaussian(noise_multiplier=8.0)
    for mechanisms, steps in (
        ([sampled()], [1001]),
        ([sampled()], [-1]),
        ([sampled()], [1, 1001]),
        ([sampled(), sampled()], [1]),
        ([release], [1]),
    ):
        with pytest.raises(ConfigurationError, match="steps in"):
            epsilon_path(mechanisms=mechanisms, delta=1e-5, steps=steps)


@needs_values
@pytest.mark.parametrize("rows", [1, 5])
def test_a_person_with_several_rows_gets_the_published_epsilon_never_the_rows(rows: int) -> None:
    expected = VALUES["rows_per_unit_q.01_sigma1_T1000_delta1e-5_pld"][str(rows)]
    value = person_epsilon(mechanism=sampled(), rows=rows, delta=1e-5)
    assert value == pytest.approx(expected, abs=2e-3)


@needs_values
@pytest.mark.proof
@pytest.mark.parametrize("rows", [2, 3, 10])
def test_a_person_with_many_rows_gets_the_published_epsilon(rows: int) -> None:
    expected = VALUES["rows_per_unit_q.01_sigma1_T1000_delta1e-5_pld"][str(rows)]
    assert person_epsilon(mechanism=sampled(), rows=rows, delta=1e-5) == pytest.approx(expected, abs=2e-3)


def test_one_step_over_a_person_s_rows_is_the_mixture_that_its_formula_says() -> None:
    # The rows move the sum by Binomial(3, 0.3) clipping norms: δ at ε = 0.2 by integration, in both directions.
    x, width = np.linspace(-48, 51, 100_001, retstep=True)
    without = norm.pdf(x, scale=4.0)
    within = sum(binom.pmf(count, 3, 0.3) * norm.pdf(x - count, scale=4.0) for count in range(4))
    delta = max(
        float(np.maximum(one - math.exp(0.2) * other, 0).sum() * width)
        for one, other in ((within, without), (without, within))
    )
    value = person_epsilon(mechanism=sampled(0.3, 4.0, 1), rows=3, delta=delta)
    assert 0.2 - 1e-6 <= value <= 0.2 + 1e-4


def test_a_release_over_all_rows_moves_by_all_of_a_persons_rows() -> None:
    # q = 1: the mixture is one point, so the person's run is T Gaussians at σ / rows, and the moments one.
    run, moments = sampled(1.0, 40.0, 4), Gaussian(noise_multiplier=20.0)
    value = person_epsilon(mechanism=run, others=[moments], rows=4, delta=1e-5)
    alone = Gaussian(noise_multiplier=5.0)  # 40 / √4 / 4 = 20 / 4 = 5
    assert value == pytest.approx(pld_epsilon(mechanisms=[alone, alone], delta=1e-5), abs=2e-3)


def test_the_grid_of_a_persons_figure_is_laid_out_for_all_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def grid(mechanisms: Any, interval: float) -> float:
        asked.extend(mechanism.noise_multiplier for mechanism in mechanisms)
        return losses.interval_for(mechanisms, interval)

    monkeypatch.setattr(accounting, "interval_for", grid)
    person_epsilon(mechanism=sampled(1.0, 40.0, 4), others=[Gaussian(noise_multiplier=20.0)], rows=4, delta=1e-5)
    assert asked == [10.0, 5.0]


@pytest.mark.parametrize("rows", [0, -1, 1.5, True])
def test_a_row_cap_that_is_no_positive_integer_is_refused(rows: Any) -> None:
    with pytest.raises(ConfigurationError, match="rows"):
        person_epsilon(mechanism=sampled(), rows=rows, delta=1e-5)


@needs_values
def test_ledger_units_agree_to_the_digit() -> None:
    units = VALUES["ledger_run_q.01_sigma1_T1000_delta1e-6"]["units_1e-12_at_order_4.25"]
    assert rdp_units([sampled()], [4.25]) == (units["one_run"],)
    assert rdp_units([sampled(steps=300)], [4.25]) == (units["steps_300"],)


def test_ledger_units_of_a_gaussian_are_its_closed_form_rounded_up() -> None:
    # order / (2 σ²) = 3 / 18 = 1/6, which has no finite decimal expansion.
    assert rdp_units([Gaussian(noise_multiplier=3.0)], [3.0]) == (166_666_666_667,)


def test_ledger_units_are_integers_that_add_up_to_at_least_the_whole() -> None:
    orders = [2.0, 4.25, 64.0]
    parts = [rdp_units([sampled(steps=steps)], orders) for steps in (1, 299, 700)]
    whole = rdp_units([sampled()], orders)
    assert all(sum(part) >= total for part, total in zip(zip(*parts, strict=True), whole, strict=True))
    assert all(type(unit) is int for unit in whole)


def test_an_order_that_does_not_converge_or_overflows_is_used_up_not_free() -> None:
    assert rdp_units([sampled(0.5, 1e-3, 10**6)], [2.0]) == (UNITS_LIMIT,)
    # Fractional orders next to 1 do not converge here, and the library drops them.
    assert rdp_units([sampled(0.05, 0.8, 60)], [1.1])[0] == UNITS_LIMIT


def test_an_order_that_one_mechanism_uses_up_is_used_up_for_the_run() -> None:
    assert rdp_units([Gaussian(noise_multiplier=3.0), sampled(0.05, 0.8, 60)], [1.1]) == (UNITS_LIMIT,)


def test_a_divergence_that_is_negative_by_rounding_alone_is_charged_as_the_least() -> None:
    assert accounting._resolved(-1e-14) == accounting._resolved(0.0) == 1e-14
    with pytest.raises(AccountingError):
        accounting._resolved(math.nextafter(-1e-14, -1))


def test_an_order_that_does_not_converge_is_no_warning_and_other_warnings_are_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        rdp_units([sampled(0.05, 0.8, 60)], [1.1])
        assert [record for record in caplog.records if record.name == "absl"] == []
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


def test_a_cost_below_double_precision_is_charged_upwards() -> None:
    units = rdp_units([sampled(1e-12, 1.0, 10**6)], [2.0])
    assert units == (10_000,)  # 1e-14 a step, times a million steps


@pytest.mark.parametrize("value", [math.nan, -1.0, -math.inf])
def test_a_curve_that_is_no_divergence_reads_as_over_budget(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    def spoil(self: Any, *_: object) -> Any:
        self._rdp = np.array([value])
        return self

    monkeypatch.setattr(rdp.RdpAccountant, "compose", spoil)
    with pytest.raises(BudgetError, match="divergence"):
        rdp_units([sampled()], [2.0])


def test_tiny_noise_is_laid_out_on_a_coarser_grid_instead_of_filling_the_memory() -> None:
    run = Gaussian(noise_multiplier=0.004)
    assert losses.interval_for([run], 1e-4) > 1e-3
    assert pld_epsilon(mechanisms=[run], delta=1e-5) >= gaussian_mechanism.get_epsilon_gaussian(0.004, 1e-5)


def test_the_grid_holds_eleven_sigmas_of_the_widest_loss_in_two_million_points() -> None:
    narrow, wide = Gaussian(noise_multiplier=0.01), Gaussian(noise_multiplier=0.004)
    exact = 2 * (0.5 + 11 * 0.004) / 0.004**2 / 2**21
    assert losses.interval_for([narrow, wide], 1e-4) == pytest.approx(exact, rel=1e-12)
    assert losses.interval_for([sampled(1.0, 0.04, 100)], 1e-4) == pytest.approx(exact, rel=1e-12)  # 0.04 / √100
    assert losses.interval_for([sampled(0.5, 0.004, 100)], 1e-4) == pytest.approx(exact, rel=1e-12)
    assert losses.interval_for([Gaussian(noise_multiplier=1.0)], 1e-4) == 1e-4


def test_the_units_that_ledgers_hold_never_change_their_meaning() -> None:
    assert (accounting.UNITS_PER_RDP, UNITS_LIMIT) == (1_000_000_000_000, 2_305_843_009_213_693_952)
    assert 2 * UNITS_LIMIT < 2**63  # a sum of two still is a database's integer


def test_the_statement_names_the_library_and_its_version() -> None:
    assert accountant_version() == "dp-accounting 0.6.0"
