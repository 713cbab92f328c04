"""The figures of an attack and their intervals: rules by hand, coverage by simulation."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom, norm

from configs.errors import InternalError
from tasks.membership import rates
from tasks.membership.metrics import AttackResult, NotEstimable, Rate, evaluate, strongest, tpr_at_fpr
from tasks.membership.rates import Hits, advantage, allowed, best_threshold, hits_in_blocks, roc_points
from tasks.statistics.roc import Undefined


def result(members, non_members, **settings) -> AttackResult:
    found = evaluate(members=members, non_members=non_members, **settings)
    assert isinstance(found, AttackResult)
    return found


def rate(found: Rate | NotEstimable) -> Rate:
    assert isinstance(found, Rate)
    return found


def hits_of(tp, members, fp, non_members) -> Hits:
    return Hits(true_positives=tp, members=members, false_positives=fp, non_members=non_members)


def tpr(members, non_members, fpr) -> float:
    """The (k+1)-th rule alone, without the demand of ten false positives."""
    threshold = np.sort(non_members)[::-1][allowed(len(non_members), fpr)]
    return float(np.mean(np.asarray(members) > threshold))


# the rules, by hand


def test_the_threshold_rule_of_the_reference_counts_no_tie(monkeypatch):
    # members 1, 1, 1, 0 and non-members 1, 0, 0, 0: TPR 0 at FPR 0, .75 at FPR 25 %
    monkeypatch.setattr(rates, "_MIN_FALSE_POSITIVES", 0)
    members, others = [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]
    assert rate(tpr_at_fpr(members=members, non_members=others, fpr=1e-9)).value == 0
    assert rate(tpr_at_fpr(members=members, non_members=others, fpr=0.25)).value == 0.75


def test_one_in_a_hundred_of_a_thousand_is_the_eleventh_largest_non_member():
    others = np.arange(1000.0)  # the 11th largest is 989
    members = [988.0, 989.0, 989.5, 990.0, *np.zeros(96)]
    assert rate(tpr_at_fpr(members=members, non_members=others, fpr=0.01)).value == 0.02


@pytest.mark.parametrize(
    ("units", "fpr", "k"), [(100, 0.29, 29), (1000, 0.001, 1), (10_000, 0.001, 10), (999, 0.01, 9)]
)
def test_k_is_the_whole_number_that_is_meant(units, fpr, k):
    assert allowed(units, fpr) == k


def test_a_rate_that_would_rest_on_fewer_than_ten_false_positives_is_not_estimable():
    scores = np.arange(999.0)
    assert tpr_at_fpr(members=scores, non_members=scores, fpr=0.01) == NotEstimable(needs=1000)
    assert tpr_at_fpr(members=scores, non_members=scores, fpr=0.001) == NotEstimable(needs=10_000)
    assert isinstance(tpr_at_fpr(members=scores, non_members=np.arange(1000.0), fpr=0.01), Rate)
    assert "1,000 non-members" in NotEstimable(needs=1000).reason


def test_roc_points_stand_where_ten_false_positives_are_expected():
    scores = np.arange(1000.0)
    points = roc_points(scores, scores)
    assert [fpr for fpr, _ in points] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    assert [hit for _, hit in points] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    assert roc_points(scores, scores[:19]) == ()


def test_the_best_threshold_by_hand():
    # above 2: 2 of 3 members, no non-member; above 1: 2/3 less 1/2; above 4 nobody
    assert best_threshold(np.array([3.0, 4.0, 0.0]), np.array([1.0, 2.0])) == 2.0


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_the_best_threshold_is_the_one_that_trying_all_finds(members, others):
    inside, outside = np.array(members, float), np.array(others, float)

    def gain(threshold):
        return np.mean(inside > threshold) - np.mean(outside > threshold)

    found = best_threshold(inside, outside)
    assert gain(found) == pytest.approx(max(gain(t) for t in [*members, *others]), abs=1e-12)
    assert found in {*members, *others, np.inf}
    assert (found == np.inf) == (gain(found) == 0)


def test_a_score_at_the_threshold_is_no_hit():
    # in every block the best threshold is 1: every second member is above it, the others and all non-members at it
    hits = hits_in_blocks(np.tile([1.0, 2.0], 500), np.ones(1000), seed=0)
    assert hits.false_positives == 0
    assert 0.4 < hits.true_positives / hits.members < 0.6


@pytest.mark.parametrize(("units", "fpr"), [(1000, 0.01), (1000, 0.05), (20_000, 0.001)])
def test_the_bounds_of_the_tpr_use_the_thresholds_whose_fpr_is_beyond_doubt(units, fpr):
    """P(true FPR of the (k+1)-th largest > f) by its beta law, for every k, against the choice."""
    others = np.arange(float(units))
    members = np.concatenate([others[-300:] + 0.5, np.zeros(700)])  # k+1 of them above the (k+1)-th largest
    found = rate(tpr_at_fpr(members=members, non_members=others, fpr=fpr, tail=0.05))
    exceeds = beta.sf(fpr, np.arange(300) + 1, units - np.arange(300))
    strict, loose = np.flatnonzero(exceeds <= 0.025).max(), np.flatnonzero(exceeds >= 0.975).min()
    assert found.value == (allowed(units, fpr) + 1) / 1000
    assert found.lower == pytest.approx(beta.ppf(0.025, strict + 1, 1000 - strict), abs=1e-12)
    assert found.upper == pytest.approx(beta.isf(0.025, loose + 2, 999 - loose), abs=1e-12)


def test_newcombe_s_published_example():
    # Newcombe (1998), table II, (a): 56/70 - 48/80, method 10: .0524 to .3339
    found = advantage(hits_of(56, 70, 48, 80), tail=0.025)
    assert (round(found.value, 4), round(found.lower, 4), round(found.upper, 4)) == (0.2, 0.0524, 0.3339)


def test_an_attack_that_never_hits_still_has_an_interval():
    # Newcombe (1998), table II, (g): 0/10 - 0/10, method 10: -.2775 to .2775 (in the limit of no hit at all)
    found = advantage(hits_of(0, 10, 0, 10), tail=0.025)
    assert (found.value, round(found.lower, 4), round(found.upper, 4)) == (0.0, -0.2775, 0.2775)


# what no member and no order can change


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("value", [0.0, -0.3])
def test_constant_scores_are_chance_in_every_figure(value, seed):
    """Case C2."""
    found = result(np.full(20_000, value), np.full(10_000, value), seed=seed)
    assert (found.auc.auc, found.auc.standard_error) == (0.5, 0.0)
    assert (found.advantage.value, found.accuracy.value) == (0.0, 0.5)
    assert rate(found.tpr_at_1pct).value == rate(found.tpr_at_1pct).lower == 0.0
    assert rate(found.tpr_at_01pct).value == 0.0
    assert {hit for _, hit in found.roc} == {0.0}
    assert found.advantage.lower < 0 < found.advantage.upper < 0.001


def test_a_perfect_attack_is_one_in_every_figure():
    found = result(np.arange(1.0, 2001.0), -np.arange(10_000.0))
    assert found.auc.auc == 1.0
    assert found.advantage.value == pytest.approx(1.0, abs=1e-3)  # the largest non-member may come after the choice
    assert rate(found.tpr_at_01pct).value == 1.0
    assert found.auc.lower < 1  # Hoeffding's, where DeLong's interval is a point
    assert 0.99 < found.advantage.lower < 1


def test_an_attack_that_is_always_wrong_gains_nothing_and_shows_in_the_auc():
    found = result(-np.arange(200.0), np.arange(1.0, 201.0))
    assert found.auc.auc == 0.0
    assert found.advantage.value == 0.0  # flagging nobody is the best threshold


def test_only_the_order_of_the_scores_matters():
    generator = np.random.default_rng(3)
    members, others = generator.normal(0.4, 1, 1500), generator.normal(0, 1, 1200)
    assert result(members, others) == result(np.exp(members), np.exp(others))


def test_the_result_is_a_function_of_scores_and_seed():
    generator = np.random.default_rng(4)
    members, others = generator.normal(0.4, 1, 1500), generator.normal(0, 1, 1200)
    assert result(members, others, seed=1) == result(members, others, seed=1)
    assert result(members, others, seed=1).advantage != result(members, others, seed=2).advantage
    assert result(members, others, seed=1).auc == result(members, others, seed=2).auc


def test_no_unit_helps_to_choose_a_threshold_that_judges_it(monkeypatch):
    chosen_on, original = [], rates.best_threshold
    monkeypatch.setattr(rates, "best_threshold", lambda a, b: chosen_on.append((set(a), set(b))) or original(a, b))
    generator = np.random.default_rng(5)
    members, others = generator.normal(size=105), generator.normal(size=210)
    hits = hits_in_blocks(members, others, seed=0)
    assert len(chosen_on) == 9
    assert (hits.members, hits.non_members) == (105 - 11, 210 - 21)
    for earlier, later in itertools.pairwise(chosen_on):
        assert earlier[0] < later[0]
        assert earlier[1] < later[1]
    assert len(chosen_on[-1][0]) < 105  # the last block is in no choice


# states


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["members", "non_members"])
def test_a_score_that_is_not_finite_leaves_the_attack_undefined(bad, side):
    scores = {"members": np.arange(50.0), "non_members": np.arange(50.0)}
    scores[side][7] = bad
    found = evaluate(**scores)
    assert isinstance(found, Undefined)
    assert "finite" in found.reason


@pytest.mark.parametrize(("inside", "outside"), [(19, 50), (50, 19), (0, 50), (0, 0)])
def test_too_few_units_leave_the_attack_undefined(inside, outside):
    assert isinstance(evaluate(members=np.arange(float(inside)), non_members=np.arange(float(outside))), Undefined)
    assert isinstance(evaluate(members=np.arange(20.0), non_members=np.arange(20.0)), AttackResult)


def test_scores_that_are_no_vector_are_refused():
    with pytest.raises(InternalError):
        evaluate(members=np.zeros((50, 1)), non_members=np.zeros(50))
    with pytest.raises(InternalError):
        evaluate(members=np.zeros(50), non_members=np.zeros(50), attacks=0)


# reference values


def test_the_auc_is_that_of_the_reference(shared):
    expected = json.loads((shared / "reference" / "values.json").read_text())["attack"]["delong"]
    found = result(np.tile(expected["pos"], 3), np.tile(expected["neg"], 3))  # 20 units a side are the least
    assert round(found.auc.auc, 6) == expected["auc"]


def test_a_thousand_normal_scores_meet_the_published_interval():
    generator = np.random.default_rng(0)
    found = result(generator.normal(0.5, 1, 500), generator.normal(0, 1, 500))
    assert round(found.auc.auc, 6) == 0.655828
    assert (round(found.auc.lower, 6), round(found.auc.upper, 6)) == (0.621532, 0.688573)


# several attacks, and floors


def test_floors_lie_below_the_bounds_and_are_corrected_for_five_figures():
    generator = np.random.default_rng(6)
    found = result(generator.normal(1, 1, 10_000), generator.normal(0, 1, 10_000))
    assert found.floors.auc < found.auc.lower
    assert found.floors.advantage < found.advantage.lower
    assert found.floors.accuracy == pytest.approx((1 + found.floors.advantage) / 2, abs=1e-12)
    assert found.floors.tpr_at_1pct is not None
    assert found.floors.tpr_at_1pct < rate(found.tpr_at_1pct).lower
    # one-sided .01 / 5 = .002, z = 2.878 on the logit scale
    width = norm.isf(0.002) / norm.isf(0.025)
    logit = np.log(found.auc.auc / (1 - found.auc.auc))
    lower = logit - width * (logit - np.log(found.auc.lower / (1 - found.auc.lower)))
    assert found.floors.auc == pytest.approx(1 / (1 + np.exp(-lower)), abs=1e-9)


def test_the_strongest_of_two_attacks_takes_the_larger_of_every_figure():
    generator = np.random.default_rng(7)
    others = generator.normal(0, 1, 1000)
    weak = result(generator.normal(0.1, 1, 1000), others, attacks=2)
    strong = result(generator.normal(1.0, 1, 1000), others, attacks=2)
    found = strongest(results={"loss": weak, "class": strong})
    assert isinstance(found, AttackResult)
    assert found == strong
    alone = result(np.arange(1000.0), others)
    assert strongest(results={"loss": alone}) == alone


def test_correcting_for_two_attacks_widens_every_interval():
    generator = np.random.default_rng(8)
    members, others = generator.normal(0.5, 1, 1000), generator.normal(0, 1, 1000)
    one, two = result(members, others), result(members, others, attacks=2)
    for name in ("auc", "accuracy", "advantage", "tpr_at_1pct"):
        assert getattr(two, name).lower < getattr(one, name).lower
        assert getattr(two, name).upper > getattr(one, name).upper
        assert getattr(two.floors, name) < getattr(one.floors, name)


def test_a_choice_among_attacks_without_correction_is_refused():
    found = result(np.arange(50.0), np.arange(50.0))
    with pytest.raises(InternalError, match="corrected for 1"):
        strongest(results={"loss": found, "class": found})
    with pytest.raises(InternalError):
        strongest(results={})


def test_one_undefined_attack_leaves_the_strongest_undefined():
    found = result(np.arange(50.0), np.arange(50.0), attacks=2)
    combined = strongest(results={"loss": found, "class": Undefined(reason="no reference points")})
    assert isinstance(combined, Undefined)
    assert combined.reason == "attack class: no reference points"


# coverage


def true_advantage(thresholds, shift):
    return np.mean([norm.sf(t - shift) - norm.sf(t) for t in thresholds])


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
def test_the_interval_covers_the_advantage_of_the_thresholds_used(shift, monkeypatch):
    """False alarm below 1e-6: more misses than Bin(400, .05) has but for that probability."""
    used, original = [], rates.best_threshold
    monkeypatch.setattr(rates, "best_threshold", lambda a, b: used.append(original(a, b)) or used[-1])
    generator, missed, above_best = np.random.default_rng(11), 0, 0
    best = true_advantage([shift / 2], shift)
    for _ in range(400):
        used.clear()
        hits = hits_in_blocks(generator.normal(shift, 1, 200), generator.normal(0, 1, 200), seed=0)
        found = advantage(hits, tail=0.025)
        missed += not found.lower <= true_advantage(used, shift) <= found.upper
        above_best += found.lower > best
    assert missed <= binom.isf(1e-6, 400, 0.05)
    assert above_best <= binom.isf(1e-6, 400, 0.025)


@pytest.mark.statistical
def test_a_threshold_chosen_on_the_units_it_judges_is_caught_by_the_same_test():
    """Negative control. Nothing leaks, and the lower bound is above 0 far more often than it may be."""
    generator, above = np.random.default_rng(12), 0
    for _ in range(400):
        members, others = generator.normal(size=200), generator.normal(size=200)
        threshold = best_threshold(members, others)
        hits = hits_of(int(np.sum(members > threshold)), 200, int(np.sum(others > threshold)), 200)
        above += advantage(hits, tail=0.025).lower > 0
    assert above > binom.isf(1e-6, 400, 0.05)


def naive_interval(members, others, fpr):
    """Clopper-Pearson at the (k+1)-th largest, as if its false positive rate were known: too narrow."""
    hits = round(tpr(members, others, fpr) * len(members))
    return beta.ppf(0.025, hits, len(members) - hits + 1), beta.isf(0.025, hits + 1, len(members) - hits)


@pytest.mark.statistical
def test_the_interval_of_the_tpr_covers_the_true_roc_curve_and_the_naive_one_does_not():
    """False alarm below 1e-6: Bin(400, .05). The naive interval is the negative control."""
    truth, generator = norm.sf(norm.isf(0.02) - 1), np.random.default_rng(13)
    missed = naively_missed = 0
    for _ in range(400):
        members, others = generator.normal(1, 1, 5000), generator.normal(0, 1, 1000)
        found = rate(tpr_at_fpr(members=members, non_members=others, fpr=0.02))
        missed += not found.lower <= truth <= found.upper
        low, high = naive_interval(members, others, 0.02)
        naively_missed += not low <= truth <= high
        assert found.value == tpr(members, others, 0.02)
    assert missed <= binom.isf(1e-6, 400, 0.05) < naively_missed


@pytest.mark.statistical
def test_a_contradiction_is_found_by_error_in_at_most_one_of_a_hundred():
    """Floors against the true figures of the attack: false alarm below 1e-6, more than Bin(400, .01) allows."""
    generator, wrong = np.random.default_rng(14), 0
    truth = {
        "auc": norm.cdf(0.5 / np.sqrt(2)),
        "advantage": true_advantage([0.25], 0.5),
        "accuracy": (1 + true_advantage([0.25], 0.5)) / 2,
        "tpr_at_1pct": norm.sf(norm.isf(0.01) - 0.5),
    }
    for _ in range(400):
        floors = result(generator.normal(0.5, 1, 1000), generator.normal(0, 1, 1000)).floors
        wrong += any(getattr(floors, name) > value for name, value in truth.items())
    assert wrong <= binom.isf(1e-6, 400, 0.01)
