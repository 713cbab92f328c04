"""The baseline without a model: catches a split that is no random one, clears a random one."""

import numpy as np
import pytest
from scipy.stats import binom

from configs.errors import InternalError
from tasks.membership.blind import blind
from tasks.membership.verdict import BLIND_TOLERANCE
from tasks.statistics.roc import AucEstimate, Undefined

LIMIT = 0.5 + BLIND_TOLERANCE


def found(members, non_members, seed=0) -> AucEstimate:
    estimate = blind(members=members, non_members=non_members, seed=seed)
    assert isinstance(estimate, AucEstimate)
    return estimate


def test_a_hold_out_with_a_shifted_feature_is_caught():
    generator = np.random.default_rng(1)
    members, others = generator.normal(size=(1500, 8)), generator.normal(size=(1500, 8))
    others[:, 3] += 0.5
    assert found(members, others).lower > LIMIT


def test_a_hold_out_that_differs_in_how_features_go_together_is_caught():
    generator = np.random.default_rng(2)
    members, others = generator.normal(size=(3000, 4)), generator.normal(size=(3000, 4))
    members[:, 1] = np.abs(members[:, 1]) * np.sign(members[:, 0])  # each column alone looks the same
    assert found(members, others).lower > LIMIT


def test_a_hold_out_with_other_missing_values_is_caught():
    generator = np.random.default_rng(3)
    members, others = generator.normal(size=(1500, 4)), generator.normal(size=(1500, 4))
    others[generator.random(1500) < 0.3, 0] = np.nan
    assert found(members, others).lower > LIMIT


@pytest.mark.statistical
def test_a_random_split_is_cleared():
    """False alarm below 1e-6: the limit is .02 + 1.96 · .0091 above one half, 4.15 standard errors, once."""
    generator = np.random.default_rng(4)
    records = generator.normal(size=(8000, 8))
    records[:, 1] = records[:, 0] ** 2
    estimate = found(records[::2], records[1::2])
    assert estimate.lower <= LIMIT
    assert (estimate.positives, estimate.negatives) == (2000, 2000)  # judged on the half that taught nothing


@pytest.mark.statistical
def test_the_interval_of_a_random_split_covers_one_half():
    """False alarm below 1e-6: more misses than Bin(100, .05) has."""
    missed = 0
    for seed in range(100):
        records = np.random.default_rng([5, seed]).normal(size=(600, 5))
        estimate = found(records[:300], records[300:], seed)
        missed += not estimate.lower <= 0.5 <= estimate.upper
    assert missed <= binom.isf(1e-6, 100, 0.05)


@pytest.mark.statistical
def test_judging_the_units_that_taught_is_caught_by_the_same_test():
    """Negative control: each unit stands in both halves, and the trees know it again in every single run."""
    missed = 0
    for seed in range(40):
        records = np.random.default_rng([6, seed]).normal(size=(300, 5))
        twice = np.concatenate([records, records])
        estimate = found(twice[np.arange(600) % 300 < 150], twice[np.arange(600) % 300 >= 150], seed)
        missed += not estimate.lower <= 0.5 <= estimate.upper
    assert missed > binom.isf(1e-6, 40, 0.05)


def test_the_result_is_a_function_of_records_and_seed():
    records = np.random.default_rng(7).normal(size=(600, 5))
    assert found(records[:300], records[300:], 1) == found(records[:300], records[300:], 1)
    assert found(records[:300], records[300:], 1) != found(records[:300], records[300:], 2)


def test_no_more_than_twenty_thousand_units_a_side_are_looked_at():
    constant = np.zeros((50_000, 1))
    estimate = found(constant, constant[:300])
    assert (estimate.positives, estimate.negatives) == (10_000, 150)
    assert estimate.auc == 0.5


def test_what_cannot_be_judged_is_undefined():
    records = np.random.default_rng(8).normal(size=(400, 3))
    infinite = records.copy()
    infinite[0, 0] = np.inf
    assert isinstance(blind(members=records[:99], non_members=records, seed=0), Undefined)
    assert isinstance(blind(members=infinite, non_members=records, seed=0), Undefined)


@pytest.mark.parametrize("shape", [(400,), (400, 2), (400, 0)])
def test_matrices_that_do_not_fit_are_refused(shape):
    with pytest.raises(InternalError):
        blind(members=np.zeros((400, 3)), non_members=np.zeros(shape), seed=0)
