"""The paired difference of two AUCs on the same rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tasks.statistics.roc import AucDifference, AucEstimate, Undefined, auc, auc_difference


def difference(labels, a, b, clusters=None, level=0.95) -> AucDifference:
    result = auc_difference(labels=labels, scores_a=a, scores_b=b, clusters=clusters, level=level)
    assert isinstance(result, AucDifference)
    return result


def delong_covariance(labels, a, b):
    """DeLong's variance of a difference from the full covariance matrix of the quadratic kernels."""
    kernels = []
    for scores in (a, b):
        gap = np.subtract.outer(scores[labels == 1], scores[labels == 0])
        kernels.append((gap > 0) + 0.5 * (gap == 0))
    s10 = np.cov([k.mean(1) for k in kernels])
    s01 = np.cov([k.mean(0) for k in kernels])
    total = s10 / kernels[0].shape[0] + s01 / kernels[0].shape[1]
    return kernels[0].mean() - kernels[1].mean(), total[0, 0] + total[1, 1] - 2 * total[0, 1]


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=60, derandomize=True)
def test_the_paired_error_equals_delongs_covariance_matrix(seed):
    generator = np.random.default_rng(seed)
    labels = np.r_[1, 1, 0, 0, generator.integers(0, 2, 40)]
    a = generator.integers(0, 12, labels.size) + labels
    b = a + generator.integers(-2, 3, labels.size)
    value, variance = delong_covariance(labels, a, b)
    found = difference(labels, a, b)
    assert found.difference == pytest.approx(value, abs=1e-12)
    assert found.standard_error == pytest.approx(math.sqrt(variance), abs=1e-9)
    if found.standard_error > 0:
        half = norm.ppf(0.95) * found.standard_error
        assert found.upper == pytest.approx(min(1, value + half), abs=1e-9)
        assert found.lower == pytest.approx(max(-1, value - half), abs=1e-9)


def test_swapping_the_models_mirrors_the_difference():
    generator = np.random.default_rng(2)
    labels, a, b = generator.integers(0, 2, 200), generator.normal(size=200), generator.normal(size=200)
    people = generator.integers(0, 90, 200)
    there, back = difference(labels, a, b, people), difference(labels, b, a, people)
    assert there.difference == -back.difference
    assert (there.lower, there.upper) == pytest.approx((-back.upper, -back.lower), abs=1e-12)


def test_pairing_narrows_the_difference_of_two_similar_models():
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 2, 2000)
    a = labels + generator.normal(size=2000)
    b = a + 0.05 * generator.normal(size=2000)
    alone = auc(labels=labels, scores=a)
    assert isinstance(alone, AucEstimate)
    assert difference(labels, a, b).standard_error < alone.standard_error / 5


def test_repeated_rows_leave_the_paired_error_at_the_persons():
    generator = np.random.default_rng(6)
    labels, a, b = np.arange(200) % 2, generator.normal(size=200), generator.normal(size=200)
    once = difference(labels, a, b)
    five = difference(*(np.repeat(x, 5) for x in (labels, a, b, np.arange(200))))
    assert five.standard_error == pytest.approx(once.standard_error, rel=1e-9)


def test_the_same_ranking_is_certain_only_up_to_the_rule_of_three():
    labels, a = np.arange(200) % 2, np.random.default_rng(7).normal(size=200)
    found = difference(labels, a, np.exp(3 * a))  # a monotone rescaling ranks alike
    assert (found.difference, found.standard_error) == (0.0, 0.0)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-12)
    assert found.upper == pytest.approx(3 / 100, abs=0.001)
    assert found.lower == -found.upper


def test_opposite_perfect_rankings_get_the_distribution_free_bound():
    labels = np.r_[np.ones(1000), np.zeros(1000)]
    found = difference(labels, labels, -labels)
    assert (found.difference, found.standard_error, found.upper) == (1.0, 0.0, 1.0)
    assert found.lower == pytest.approx(1 - 2 * math.sqrt(math.log(20) / 2000), abs=1e-12)


def test_undefined_is_a_state():
    result = auc_difference(labels=[1, 1], scores_a=[1, 2], scores_b=[1, 2])
    assert isinstance(result, Undefined)
    broken = auc_difference(labels=[1, 0, 1, 0], scores_a=[1, 2, 3, 4], scores_b=[1, math.nan, 3, 4])
    assert isinstance(broken, Undefined)
