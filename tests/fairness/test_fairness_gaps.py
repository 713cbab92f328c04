"""The largest difference between groups and its interval over all pairs."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from tasks.fairness.gaps import Ends, difference, gap, pair_level
from tasks.statistics.proportions import RateEstimate, clopper_pearson, rate
from tasks.statistics.roc import Undefined


def ends(value, lower, upper):
    return Ends(value=value, lower=lower, upper=upper)


def test_a_difference_squares_and_adds_by_hand():
    # .6 [.5, .8] less .3 [.2, .7]: down by sqrt(.1² + .4²), up by sqrt(.2² + .1²)
    lower, upper = difference(ends(0.6, 0.5, 0.8), ends(0.3, 0.2, 0.7))
    assert lower == pytest.approx(0.3 - math.sqrt(0.17), abs=1e-12)
    assert upper == pytest.approx(0.3 + math.sqrt(0.05), abs=1e-12)


def test_the_published_example_of_newcombe_is_met():
    # Newcombe (1998), table II, example (a), method 10: 56/70 - 48/80 from Wilson's intervals: .0524 to .3339
    def wilson(hits, rows, z=1.959963985):
        centre = (hits + z * z / 2) / (rows + z * z)
        half = z / (rows + z * z) * math.sqrt(hits * (rows - hits) / rows + z * z / 4)
        return ends(hits / rows, centre - half, centre + half)

    lower, upper = difference(wilson(56, 70), wilson(48, 80))
    assert (round(lower, 4), round(upper, 4)) == (0.0524, 0.3339)


def test_the_gap_is_the_widest_pair_and_its_bounds_are_those_of_all_pairs():
    groups = [ends(0.5, 0.4, 0.6), ends(0.9, 0.85, 0.95), ends(0.7, 0.6, 0.8)]
    found = gap(groups)
    assert isinstance(found, Ends)
    lower, upper = difference(groups[1], groups[0])
    assert found.value == pytest.approx(0.4, abs=1e-12)
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=1e-12)
    assert found == gap(groups[::-1])


def test_the_gaps_upper_bound_may_come_from_a_pair_that_is_not_the_widest():
    narrow, vague = [ends(0.5, 0.49, 0.51), ends(0.6, 0.59, 0.61)], ends(0.55, 0.1, 0.95)
    found = gap([*narrow, vague])
    assert isinstance(found, Ends)
    assert found.value == pytest.approx(0.1, abs=1e-12)
    assert found.upper > 0.4
    assert found.lower == pytest.approx(0.1 - math.hypot(0.01, 0.01), abs=1e-12)


def test_fewer_than_two_groups_have_no_gap_and_none_is_dropped():
    one = ends(0.5, 0.4, 0.6)
    for groups in ([], [one]):
        assert isinstance(gap(groups), Undefined)
    dropped = gap([one, one, Undefined(reason="no row is positive")])
    assert isinstance(dropped, Undefined)
    assert "no estimate" in dropped.reason


@pytest.mark.parametrize(("groups", "pairs"), [(0, 1), (1, 1), (2, 1), (3, 3), (10, 45)])
def test_the_level_of_a_pair_shares_the_error_among_all(groups, pairs):
    assert pair_level(groups, 0.95) == pytest.approx(1 - 0.05 / pairs, abs=1e-15)


@pytest.mark.statistical
def test_equal_groups_are_seldom_found_to_differ():
    # 300 draws of ten groups with equal rates: a lower bound above 0 happens in at most 5 % of them, so more
    # than `most` times with probability below 1e-6. Without the share among 45 pairs it happens far more often.
    generator = np.random.default_rng(5)
    most = int(binom.isf(1e-6, 300, 0.05))
    wrong = {pair_level(10, 0.95): 0, 0.95: 0}
    for _ in range(300):
        found = [rate(hits=generator.random(100) < 0.8) for _ in range(10)]
        for level in wrong:
            intervals = [
                ends(one.rate, *clopper_pearson(share=one.rate, size=one.effective, level=level))
                for one in found
                if isinstance(one, RateEstimate)
            ]
            bounds = gap(intervals)
            assert isinstance(bounds, Ends)
            wrong[level] += bounds.lower > 0
    shared, alone = wrong.values()
    assert shared <= most < alone
