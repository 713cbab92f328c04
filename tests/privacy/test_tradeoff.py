"""The ceiling that a run's privacy loss sets to every attack."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy import tradeoff
from tasks.privacy.events import Gaussian, SampledGaussian
from tasks.privacy.tradeoff import Ceiling, ceiling, person_ceiling

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "values.json"
VALUES: dict[str, Any] = json.loads(REFERENCE.read_text())["attack"] if REFERENCE.exists() else {}
needs_values = pytest.mark.skipif(not VALUES, reason="the reference values are not beside this checkout")


def point(epsilon: float, delta: float) -> Ceiling:
    return Ceiling(curve=((epsilon, delta),))


@needs_values
def test_a_single_epsilon_and_delta_give_the_reference_s_closed_forms() -> None:
    for row in VALUES["theory_delta1e-5"]:
        found = point(row["eps"], 1e-5)
        assert found.advantage == pytest.approx(row["adv"], abs=1e-6)
        assert found.accuracy == pytest.approx((1 + row["adv"]) / 2, abs=1e-6)
        assert found.true_positive_rate(0.01) == pytest.approx(row["tpr_at_1pct"], abs=1e-6)
        assert 0 <= found.auc - row["auc"] <= 1e-4


@needs_values
def test_the_curve_of_a_run_gives_the_reference_s_tighter_ceiling() -> None:
    for row in VALUES["pld_curve"]:
        run = SampledGaussian(
            sampling_rate=row["sampling_rate"], noise_multiplier=row["noise_multiplier"], steps=row["steps"]
        )
        found = ceiling(mechanisms=[run])
        # never below the reference, which is given to five digits, and hardly above
        assert -5e-6 <= found.advantage - row["adv"] <= 1e-4
        assert -2e-4 <= found.true_positive_rate(0.01) - row["tpr_at_1pct"] <= 1e-4
        assert -2e-4 <= found.true_positive_rate(0.001) - row["tpr_at_01pct"] <= 1e-4


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
def test_one_gaussian_release_meets_the_normal_trade_off_curve(sigma: float) -> None:
    mu = 1 / sigma
    found = ceiling(mechanisms=[Gaussian(noise_multiplier=sigma)])
    assert found.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=1e-4)
    assert norm.cdf(mu / math.sqrt(2)) <= found.auc <= norm.cdf(mu / math.sqrt(2)) + 5e-4
    for rate in (0.001, 0.01, 0.1, 0.5, 0.9):
        exact = norm.cdf(norm.ppf(rate) + mu)
        assert exact - 1e-9 <= found.true_positive_rate(rate) <= exact + 1e-3


def test_an_epsilon_of_log_3_allows_three_times_the_false_positives_and_three_quarters_in_all() -> None:
    found = point(math.log(3), 0.0)
    assert found.advantage == pytest.approx(0.5)  # (3 - 1) / (3 + 1)
    assert found.accuracy == pytest.approx(0.75)
    assert [found.true_positive_rate(rate) for rate in (0.0, 0.1, 0.25, 0.7, 1.0)] == pytest.approx(
        [0.0, 0.3, 0.75, 0.9, 1.0]
    )
    assert 0 <= found.auc - 0.75 <= 1e-4


def test_a_delta_of_a_fifth_allows_a_fifth_more() -> None:
    found = point(0.0, 0.2)
    assert found.advantage == pytest.approx(0.2)
    assert [found.true_positive_rate(rate) for rate in (0.0, 0.3, 0.9)] == pytest.approx([0.2, 0.5, 1.0])


def test_the_auc_is_summed_from_above_in_ten_thousand_steps() -> None:
    assert point(0.0, 0.0).auc == pytest.approx(0.5 + 1 / 20_000, rel=1e-12)


def test_a_curve_is_read_in_steps_of_a_fiftieth_up_to_10_and_of_a_quarter_up_to_100() -> None:
    epsilons = [epsilon for epsilon, _ in ceiling(mechanisms=[Gaussian(noise_multiplier=4.0)]).curve]
    assert epsilons == pytest.approx([*np.arange(0, 10, 0.02), *np.arange(10, 100.1, 0.25)], rel=1e-12)
    assert epsilons[-1] == 100


def test_no_run_at_all_allows_nothing_but_guessing() -> None:
    found = point(0.0, 0.0)
    assert found.advantage == 0
    assert found.true_positive_rate(0.3) == pytest.approx(0.3)
    assert found.auc == pytest.approx(0.5, abs=1e-4)


def test_a_delta_of_one_allows_everything() -> None:
    assert point(0.0, 1.0).true_positive_rate(0.0) == 1
    assert point(0.0, 1.0).advantage == 1


@given(epsilon=st.floats(0, 20), delta=st.floats(0, 1), rate=st.floats(0, 1))
def test_the_ceiling_lies_between_guessing_and_certainty_and_more_pairs_only_lower_it(epsilon, delta, rate) -> None:
    one = point(epsilon, delta)
    two = Ceiling(curve=((epsilon, delta), (1.0, 0.01)))
    assert rate - 1e-12 <= one.true_positive_rate(rate) <= 1
    assert two.true_positive_rate(rate) <= one.true_positive_rate(rate)
    assert two.advantage <= one.advantage


@given(epsilon=st.floats(0, 8), delta=st.floats(0, 0.5))
def test_the_advantage_is_the_envelope_s_largest_distance_from_the_diagonal(epsilon, delta) -> None:
    found = point(epsilon, delta)
    rates = np.linspace(0, 1, 2001)
    largest = max(found.true_positive_rate(rate) - rate for rate in rates)
    assert largest == pytest.approx(found.advantage, abs=2e-3)
    assert largest <= found.advantage + 1e-12


def test_a_person_with_one_row_has_the_row_s_ceiling_and_one_with_more_a_higher_one() -> None:
    run, other = SampledGaussian(sampling_rate=0.02, noise_multiplier=2.0, steps=100), Gaussian(noise_multiplier=8.0)
    row = ceiling(mechanisms=[other, run])
    one = person_ceiling(mechanism=run, others=[other], rows=1)
    three = person_ceiling(mechanism=run, others=[other], rows=3)
    assert one.advantage == pytest.approx(row.advantage, abs=2e-3)
    assert three.advantage > row.advantage * 2
    assert three.true_positive_rate(0.01) > row.true_positive_rate(0.01)


@pytest.mark.parametrize(
    "curve",
    [
        (),
        ((math.nan, 0.1),),
        ((math.inf, 0.1),),
        ((-0.1, 0.1),),
        ((1.0, -1e-9),),
        ((1.0, 1.1),),
        ((1.0, math.nan),),
        ((1.0, 0.1), (2.0, math.nan)),
    ],
)
def test_a_curve_that_is_none_is_refused(curve) -> None:
    with pytest.raises(AccountingError, match=r"a ceiling needs pairs of a finite ε ≥ 0 and a δ in \[0, 1\]"):
        Ceiling(curve=curve)


@pytest.mark.parametrize("rate", [-0.01, 1.01, math.nan])
def test_a_rate_outside_zero_and_one_is_refused(rate: float) -> None:
    with pytest.raises(AccountingError, match=r"false positive rate of .* is outside \[0, 1\]"):
        point(1.0, 0.0).true_positive_rate(rate)


def test_what_cannot_be_computed_is_an_accounting_error() -> None:
    with pytest.raises(AccountingError):
        ceiling(mechanisms=[])
    with pytest.raises(ConfigurationError, match="rows = 0"):
        person_ceiling(mechanism=SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=1), rows=0)


@pytest.mark.parametrize(("delta", "kept"), [(-1e-9, 0.0), (-1e-16, 0.0), (0.3, 0.3), (1 + 1e-9, 1.0)])
def test_a_delta_that_rounding_took_out_of_its_range_is_put_back(delta: float, kept: float) -> None:
    assert tradeoff._share(delta) == kept


@pytest.mark.parametrize("delta", [-1e-8, 1 + 1e-8, math.nan])
def test_a_delta_that_is_out_of_its_range_is_refused_and_not_put_back(monkeypatch: Any, delta: float) -> None:
    class Loss:
        def get_delta_for_epsilon(self, epsilon: list[float]) -> list[float]:
            return [delta for _ in epsilon]

    monkeypatch.setattr(tradeoff, "total_loss", lambda *_, **__: Loss())
    with pytest.raises(AccountingError, match="a ceiling needs pairs"):
        ceiling(mechanisms=[Gaussian(noise_multiplier=1.0)])
