"""AUC and its interval against closed forms, a quadratic oracle and the reference values."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from configs.errors import InternalError
from tasks.statistics.roc import AucEstimate, Undefined, auc

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "values.json"


def estimate(labels, scores, clusters=None, level=0.95) -> AucEstimate:
    result = auc(labels=labels, scores=scores, clusters=clusters, level=level)
    assert isinstance(result, AucEstimate)
    return result


def split(positive, negative):
    return np.r_[np.ones(len(positive)), np.zeros(len(negative))], np.r_[positive, negative]


def kernel(positive, negative):
    """Pair by pair: 1 where the positive is above, half at a tie. [positives, negatives]"""
    difference = np.subtract.outer(positive, negative)
    return (difference > 0) + 0.5 * (difference == 0)


def clustered_oracle(labels, scores, clusters):
    """Obuchowski (1997) written out with loops over persons and the quadratic kernel."""
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)
    pairs = kernel(scores[labels == 1], scores[labels == 0])
    theta, m, n = pairs.mean(), *pairs.shape
    v10, v01 = pairs.mean(axis=1), pairs.mean(axis=0)
    owner10, owner01 = np.asarray(clusters)[labels == 1], np.asarray(clusters)[labels == 0]
    people = sorted(set(clusters))
    s10 = s01 = s11 = 0.0
    for person in people:
        a = v10[owner10 == person].sum() - (owner10 == person).sum() * theta
        b = v01[owner01 == person].sum() - (owner01 == person).sum() * theta
        s10, s01, s11 = s10 + a * a, s01 + b * b, s11 + a * b
    i10, i01, i = len(set(owner10)), len(set(owner01)), len(people)
    s10, s01, s11 = i10 / ((i10 - 1) * m) * s10, i01 / ((i01 - 1) * n) * s01, i / (i - 1) * s11
    return theta, s10 / m + s01 / n + 2 * s11 / (m * n)


def test_the_reference_vector_is_met_to_its_last_digit():
    if not REFERENCE.exists():
        pytest.skip("the reference values lie beside the project, not in it")
    expected = json.loads(REFERENCE.read_text())["attack"]["delong"]
    found = estimate(*split(expected["pos"], expected["neg"]))
    assert round(found.auc, 6) == expected["auc"]
    assert round(found.standard_error, 6) == expected["se"]
    assert [round(found.lower, 6), round(found.upper, 6)] == expected["ci"]
    assert (found.positives, found.negatives) == (7, 8)


def test_a_sample_of_a_thousand_meets_the_published_figures():
    generator = np.random.default_rng(0)
    found = estimate(*split(generator.normal(0.5, 1, 500), generator.normal(0, 1, 500)))
    assert (round(found.auc, 6), round(found.standard_error, 6)) == (0.655828, 0.017125)
    assert (round(found.lower, 6), round(found.upper, 6)) == (0.621532, 0.688573)


def test_three_rows_by_hand():
    # positives .9, .4; negatives .5, .1: pairs 1, 1, 0, 1 -> 3/4; V10 = (1, .5), V01 = (.5, 1):
    # each variance is .125 (ddof 1), so se = sqrt(.125/2 + .125/2) = .353553
    found = estimate(*split([0.9, 0.4], [0.5, 0.1]))
    assert found.auc == 0.75
    assert found.standard_error == pytest.approx(math.sqrt(0.125), abs=1e-15)


tied = st.integers(0, 5)


@given(st.lists(tied, min_size=2, max_size=25), st.lists(tied, min_size=2, max_size=25))
@settings(deadline=None, max_examples=150, derandomize=True)
def test_midranks_equal_the_quadratic_definition_under_ties(positive, negative):
    pairs = kernel(np.array(positive), np.array(negative))
    variance = pairs.mean(1).var(ddof=1) / len(positive) + pairs.mean(0).var(ddof=1) / len(negative)
    found = estimate(*split(positive, negative))
    assert found.auc == pytest.approx(pairs.mean(), abs=1e-12)
    assert found.standard_error == pytest.approx(math.sqrt(variance), abs=1e-9)
    statistic = mannwhitneyu(positive, negative).statistic
    assert found.auc == pytest.approx(statistic / (len(positive) * len(negative)), abs=1e-12)


rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 7)), min_size=12, max_size=60)


@given(rows)
@settings(deadline=None, max_examples=150, derandomize=True)
def test_the_clustered_error_equals_obuchowski_written_out(rows):
    labels, scores, people = (np.array(column) for column in zip(*rows, strict=True))
    result = auc(labels=labels, scores=scores, clusters=people)
    if isinstance(result, Undefined):
        return
    theta, variance = clustered_oracle(labels, scores, list(people))
    assert result.auc == pytest.approx(theta, abs=1e-12)
    assert result.standard_error == pytest.approx(math.sqrt(max(variance, 0)), abs=1e-9)


def test_one_row_a_person_is_plain_delong():
    generator = np.random.default_rng(1)
    labels, scores = split(generator.normal(1, 1, 80), generator.normal(0, 1, 120))
    plain, clustered = (
        estimate(labels, scores),
        estimate(labels, scores, [f"person {i}" for i in range(200)]),
    )
    assert clustered.standard_error == pytest.approx(plain.standard_error, rel=1e-12)
    assert clustered.lower == pytest.approx(plain.lower, rel=1e-12)


def test_five_identical_rows_a_person_keep_the_interval_of_the_person():
    """Case C12: about .041, where an interval over rows would say .018."""
    generator = np.random.default_rng(3)
    labels, scores = split(generator.normal(0.5, 1, 100), generator.normal(0, 1, 100))
    people = np.arange(200)
    once = estimate(labels, scores, people)
    five = [np.repeat(column, 5) for column in (labels, scores, people)]
    clustered, by_row = estimate(*five), estimate(*five[:2])
    assert clustered.standard_error == pytest.approx(once.standard_error, rel=1e-9)
    assert (clustered.lower, clustered.upper) == pytest.approx((once.lower, once.upper), rel=1e-9)
    assert clustered.standard_error == pytest.approx(0.041, abs=0.001)
    assert by_row.standard_error == pytest.approx(0.018, abs=0.0005)  # the wrong answer differs visibly


def test_constant_scores_give_one_half_and_a_wide_interval():
    found = estimate(*split(np.zeros(100), np.zeros(150)))
    assert (found.auc, found.standard_error) == (0.5, 0.0)
    assert found.lower == pytest.approx(0.5 - math.sqrt(math.log(40) / 200), abs=1e-12)


@pytest.mark.parametrize(("size", "lower"), [(100, 0.864190), (1000, 0.957053)])
def test_a_perfect_ranking_falls_back_to_hoeffding(size, lower):
    found = estimate(*split(np.ones(size), np.zeros(size)))
    assert (found.auc, found.upper) == (1.0, 1.0)
    assert found.lower == pytest.approx(lower, abs=1e-6)
    worst = estimate(*split(np.zeros(size), np.ones(size)))
    assert (worst.lower, worst.upper) == (0.0, pytest.approx(1 - lower, abs=1e-6))


def test_the_fallback_counts_persons_not_rows_and_widens_where_one_person_weighs_more():
    labels, scores = split(np.ones(100), np.zeros(100))
    alone = estimate(labels, scores)
    five = estimate(np.repeat(labels, 5), np.repeat(scores, 5), np.repeat(np.arange(200), 5))
    assert five.lower == pytest.approx(alone.lower, abs=1e-12)
    heavy = np.r_[np.zeros(50), np.arange(1, 151)]  # one person owns half of the positives
    assert estimate(labels, scores, heavy).lower < alone.lower
    both = np.r_[np.arange(100), np.arange(100)]  # every person has a row of each class
    assert estimate(labels, scores, both).lower < alone.lower


@pytest.mark.parametrize(
    ("labels", "scores", "clusters", "why"),
    [
        ([], [], None, "no rows"),
        ([1, 1], [0.1, 0.2], None, "every row is positive"),
        ([0, 0], [0.1, 0.2], None, "no row is positive"),
        ([1, 0, 1, 0], [0.1, math.nan, 0.2, 0.3], None, "not finite"),
        ([1, 0, 1, 0], [0.1, math.inf, 0.2, 0.3], None, "not finite"),
        ([1, 0, 0], [0.1, 0.3, 0.2], None, "one person only"),
        ([1, 1, 0, 0], [0.1, 0.3, 0.2, 0.4], ["a", "a", "b", "c"], "one person only"),
    ],
)
def test_what_the_rows_do_not_define_is_a_state_with_a_reason(labels, scores, clusters, why):
    result = auc(labels=labels, scores=scores, clusters=clusters)
    assert isinstance(result, Undefined)
    assert why in result.reason


@pytest.mark.parametrize(
    ("labels", "scores", "clusters"),
    [
        ([1, 0], [0.1], None),
        ([1, 2], [0.1, 0.2], None),
        ([1, 0], [0.1, 0.2], ["a"]),
        ([[1, 0]], [[1, 2]], None),
    ],
)
def test_a_call_that_makes_no_sense_is_an_error_of_ours(labels, scores, clusters):
    with pytest.raises(InternalError):
        auc(labels=labels, scores=scores, clusters=clusters)


@given(st.floats(0.5, 0.999))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_a_higher_level_widens_the_interval_and_it_stays_in_the_unit_interval(level):
    labels, scores = split([0.9, 0.8, 0.7, 0.4], [0.85, 0.5, 0.3, 0.2])
    narrow, wide = estimate(labels, scores, level=level), estimate(labels, scores, level=(1 + level) / 2)
    assert 0 <= wide.lower < narrow.lower < narrow.auc < narrow.upper < wide.upper <= 1


@pytest.mark.statistical
@pytest.mark.parametrize(("by_person", "covers"), [(True, True), (False, False)])
def test_the_interval_covers_the_truth_when_persons_have_several_rows(by_person, covers):
    """2,000 samples of 60 + 60 persons with 4 equal rows, true AUC P(N(1, 2) > 0) = .760250.

    Coverage of a 95 % interval must be above .90: a true coverage of .93 would fall to it with probability
    below 1e-6 (binomial, 2,000 draws, sd .0057, distance 5.2 sd). Negative control: intervals over rows,
    whose error is half the true one, cover about 67 %.
    """
    generator, truth, hits, rounds = np.random.default_rng(11), 0.7602499389065233, 0, 2000
    labels, people = np.repeat(np.r_[np.ones(60), np.zeros(60)], 4), np.repeat(np.arange(120), 4)
    for _ in range(rounds):
        scores = np.repeat(np.r_[generator.normal(1, 1, 60), generator.normal(0, 1, 60)], 4)
        found = estimate(labels, scores, people if by_person else None)
        hits += found.lower <= truth <= found.upper
    assert (hits / rounds > 0.90) is covers


def test_a_million_rows_are_judged_without_building_the_pairs():
    """The quadratic kernel would hold 2.5e11 pairs, two terabytes; midranks take half a second."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 2, 1_000_000)
    scores = labels * 0.5 + generator.normal(size=labels.size)
    people = generator.integers(0, 400_000, labels.size)
    found = estimate(labels, scores, people)
    assert found.auc == pytest.approx(0.638, abs=0.01)
