"""Shares and observed over expected: closed forms, an exact oracle, and coverage with persons of several rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from scipy.stats import t as student

from configs.errors import InternalError
from tasks.statistics.proportions import (
    RateEstimate,
    RatioEstimate,
    clopper_pearson,
    observed_over_expected,
    rate,
)
from tasks.statistics.roc import Undefined


def share(hits, clusters=None, level=0.95) -> RateEstimate:
    found = rate(hits=hits, clusters=clusters, level=level)
    assert isinstance(found, RateEstimate)
    return found


def ratio(labels, predicted, clusters=None, level=0.95) -> RatioEstimate:
    found = observed_over_expected(labels=labels, predicted=predicted, clusters=clusters, level=level)
    assert isinstance(found, RatioEstimate)
    return found


@given(st.integers(1, 60), st.data(), st.sampled_from([0.8, 0.95, 0.999]))
def test_without_clusters_the_interval_is_the_exact_binomial_one(rows, data, level):
    hits = data.draw(st.integers(0, rows))
    found = share(np.arange(rows) < hits, level=level)
    exact = binomtest(hits, rows).proportion_ci(level, method="exact")
    assert (found.rate, found.hits, found.rows, found.effective) == (hits / rows, hits, rows, rows)
    assert (found.lower, found.upper) == pytest.approx((exact.low, exact.high), abs=1e-10)


def test_no_hit_in_five_rows_by_hand():
    found = share([0, 0, 0, 0, 0])
    assert (found.rate, found.lower) == (0.0, 0.0)
    assert found.upper == pytest.approx(1 - 0.025 ** (1 / 5), abs=1e-12)
    mirrored = share([1, 1, 1, 1, 1])
    assert (mirrored.lower, mirrored.upper) == (pytest.approx(1 - found.upper, abs=1e-12), 1.0)


def test_one_row_a_person_is_the_same_as_no_clusters():
    hits = np.random.default_rng(0).integers(0, 2, 40)
    assert share(hits, clusters=np.arange(40)) == share(hits)


def test_rows_that_repeat_a_person_add_next_to_nothing():
    # 20 persons x 5 equal rows: variance p(1-p)/19 between persons against p(1-p)/99 between rows, so the
    # design effect is 99/19 and 100 rows count as 100 x 19/99, less the two t quantiles' ratio squared.
    hits = np.arange(20) % 2
    found = share(np.repeat(hits, 5), clusters=np.repeat(np.arange(20), 5))
    shrink = (student.ppf(0.975, 99) / student.ppf(0.975, 19)) ** 2
    assert found.effective == pytest.approx(100 * 19 / 99 * shrink, rel=1e-12)
    assert found.rate == 0.5
    assert (found.lower, found.upper) == clopper_pearson(share=0.5, size=found.effective, level=0.95)


def test_without_spread_the_persons_count_and_not_their_rows():
    found = share(np.zeros(50), clusters=np.repeat(np.arange(5), 10))
    assert found.effective == 5
    assert found.upper == share(np.zeros(5)).upper


@given(st.integers(0, 10_000))
def test_the_effective_size_is_never_above_the_rows_and_the_interval_holds_the_rate(seed):
    generator = np.random.default_rng(seed)
    rows = int(generator.integers(2, 60))
    hits, people = generator.integers(0, 2, rows), generator.integers(0, rows, rows)
    found = rate(hits=hits, clusters=people)
    if isinstance(found, Undefined):
        assert len(set(people)) == 1
        return
    assert 0 < found.effective <= rows
    assert 0 <= found.lower <= found.rate <= found.upper <= 1
    order = generator.permutation(rows)
    shuffled = share(hits[order], clusters=people[order])
    assert (shuffled.lower, shuffled.upper) == pytest.approx((found.lower, found.upper), abs=1e-12)


def test_undefined_is_a_state_with_a_reason():
    assert rate(hits=[]) == Undefined(reason="there are no rows")
    one = rate(hits=[0, 1, 1], clusters=["a", "a", "a"])
    assert isinstance(one, Undefined)
    assert "one person" in one.reason
    assert isinstance(observed_over_expected(labels=[], predicted=[]), Undefined)
    assert isinstance(observed_over_expected(labels=[0, 1], predicted=[0.5, math.nan]), Undefined)
    assert isinstance(observed_over_expected(labels=[0, 1], predicted=[0.0, 0.0]), Undefined)


@pytest.mark.parametrize("hits", [[0, 2], [[0, 1]], [0.5]])
def test_what_is_no_vector_of_hits_is_refused(hits):
    with pytest.raises(InternalError):
        rate(hits=hits)


def test_lengths_and_ranges_are_checked():
    with pytest.raises(InternalError):
        rate(hits=[0, 1], clusters=["a"])
    with pytest.raises(InternalError):
        observed_over_expected(labels=[0, 1], predicted=[0.5])
    with pytest.raises(InternalError):
        observed_over_expected(labels=[0, 1], predicted=[0.5, 1.5])


def test_observed_over_expected_by_hand():
    # 2 observed, 1.6 expected: ratio 1.25. Contributions y - 1.25 p: .5, -.25, .25, -.5, squares summing to .625;
    # error of the logarithm sqrt(4/3 x .625) / 2.
    found = ratio([1, 0, 1, 0], [0.4, 0.2, 0.6, 0.4])
    error = math.sqrt(4 / 3 * 0.625) / 2
    factor = math.exp(student.ppf(0.975, 3) * error)
    assert found.ratio == pytest.approx(1.25, abs=1e-15)
    assert (found.lower, found.upper) == pytest.approx((1.25 / factor, 1.25 * factor), rel=1e-12)


def test_repeated_rows_leave_the_ratio_and_its_interval_at_the_persons():
    generator = np.random.default_rng(3)
    predicted = generator.random(60)
    labels = (generator.random(60) < predicted).astype(int)
    once = ratio(labels, predicted)
    five = ratio(np.repeat(labels, 5), np.repeat(predicted, 5), clusters=np.repeat(np.arange(60), 5))
    assert (five.ratio, five.lower, five.upper) == pytest.approx((once.ratio, once.lower, once.upper), rel=1e-12)


def test_without_any_positive_the_ratio_is_zero_below_the_shares_own_bound():
    found = ratio([0, 0, 0, 0], [0.25] * 4)
    assert (found.ratio, found.lower) == (0.0, 0.0)
    assert found.upper == pytest.approx((1 - 0.025 ** (1 / 4)) / 0.25, rel=1e-12)


def test_predictions_that_explain_every_person_do_not_make_the_ratio_certain():
    # Each person has one positive in two rows predicted at one half, so no contribution is left to judge by.
    found = ratio([1, 0] * 10, [0.5] * 20, clusters=np.repeat(np.arange(10), 2))
    assert found.ratio == 1.0
    assert found.lower < 0.9 < 1.1 < found.upper


def _alike(generator, persons, rows):
    """Rows of a person share a chance, drawn around .3: intraclass correlation 1/3, so a design effect near 2."""
    chances = np.repeat(generator.beta(0.6, 1.4, persons), rows)
    return (generator.random(chances.size) < chances).astype(int), chances, np.repeat(np.arange(persons), rows)


@pytest.mark.statistical
def test_shares_of_persons_with_several_rows_are_covered():
    # 400 intervals at 90 % miss more than `most` times with probability below 1e-6; blind to persons they do.
    generator = np.random.default_rng(11)
    most = int(binom.isf(1e-6, 400, 0.1))
    missed = {True: 0, False: 0}
    for _ in range(400):
        hits, _, people = _alike(generator, 60, 4)
        for clustered in missed:
            found = share(hits, clusters=people if clustered else None, level=0.9)
            missed[clustered] += not found.lower <= 0.3 <= found.upper
    assert missed[True] <= most < missed[False]


@pytest.mark.statistical
def test_calibration_of_persons_with_several_rows_is_covered():
    # As above, for predictions of .3 throughout: calibrated over persons, however alike a person's rows are.
    generator = np.random.default_rng(12)
    most = int(binom.isf(1e-6, 400, 0.1))
    missed = {True: 0, False: 0}
    for _ in range(400):
        labels, _, people = _alike(generator, 80, 6)
        for clustered in missed:
            found = ratio(labels, np.full(labels.size, 0.3), clusters=people if clustered else None, level=0.9)
            missed[clustered] += not found.lower <= 1 <= found.upper
    assert missed[True] <= most < missed[False]
