"""The verdict: each is reachable, in the order of the design, and nothing missing ever passes."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.membership.metrics import AttackResult, NotEstimable, Rate, evaluate
from tasks.membership.results import Floors
from tasks.membership.scores import gap_accuracy
from tasks.membership.verdict import AttackEvidence, Ceiling, judge
from tasks.statistics.roc import AucEstimate, Undefined


def area(lower: float, upper: float) -> AucEstimate:
    return AucEstimate(auc=(lower + upper) / 2, standard_error=0.01, lower=lower, upper=upper, positives=5000,
                       negatives=5000)  # fmt: skip


def attack(lower: float, upper: float, **changes: Any) -> AttackResult:
    """A result whose advantage has this interval, and whose floors lie a little lower."""
    middle = (lower + upper) / 2
    usual = AttackResult(
        auc=area(0.49, 0.51),
        accuracy=Rate(value=(1 + middle) / 2, lower=(1 + lower) / 2, upper=(1 + upper) / 2),
        advantage=Rate(value=middle, lower=lower, upper=upper),
        tpr_at_1pct=Rate(value=0.011, lower=0.008, upper=0.015),
        tpr_at_01pct=Rate(value=0.001, lower=0.0, upper=0.003),
        roc=((0.01, 0.011), (0.1, 0.105)),
        floors=Floors(auc=0.48, accuracy=0.48, advantage=lower - 0.01, tpr_at_1pct=0.007, tpr_at_01pct=0.0),
        members=12_000,
        non_members=11_000,
        attacks=1,
    )
    return dataclasses.replace(usual, **changes)


GOOD = AttackEvidence(
    target=attack(-0.01, 0.03),
    ceiling=Ceiling(auc=0.6, accuracy=0.58, advantage=0.16, tpr_at_1pct=0.03, tpr_at_01pct=0.004),
    control=attack(0.38, 0.42),
    blind=area(0.49, 0.51),
    gap_accuracy=0.505,
    max_advantage=0.05,
    vetoes=(),
)


def given_(**changes: Any) -> AttackEvidence:
    return dataclasses.replace(GOOD, **changes)


def floors(**changes: Any) -> Floors:
    return dataclasses.replace(attack(-0.01, 0.03).floors, **changes)


FAULTS = {
    "VETO": {"vetoes": ("The attacked weights are not the artifact's.",)},
    "CONTRADICTION": {"floors": {"auc": 0.62}},
    "INVALID_SPLIT": {"blind": area(0.53, 0.55)},
    "ATTACK_BROKEN": {"control": attack(0.18, 0.22)},
    "FAIL": {"advantage": (0.06, 0.10)},
    "INCONCLUSIVE": {"advantage": (0.02, 0.10)},
}


def faulty(names: tuple[str, ...]) -> AttackEvidence:
    """Evidence with these faults at once."""
    changes: dict[str, Any] = {}
    for name in reversed(names):
        changes |= FAULTS[name]
    lower, upper = changes.pop("advantage", (-0.01, 0.03))
    target = attack(lower, upper)
    target = dataclasses.replace(target, floors=dataclasses.replace(target.floors, **changes.pop("floors", {})))
    return given_(target=target, **changes)


def test_evidence_without_fault_passes_in_words_with_number_and_limit():
    found = judge(GOOD)
    assert found.verdict == "PASS"
    assert found.reasons == (found.words,)
    for part in ("at most 0.030", "limit of 0.05", "at least 0.690", "only epsilon bounds them all"):
        assert part in found.words


@pytest.mark.parametrize("names", [n for k in range(1, 7) for n in itertools.combinations(FAULTS, k)], ids="+".join)
def test_the_first_verdict_that_applies_is_given_and_every_reason_told(names):
    found = judge(faulty(names))
    assert found.verdict == names[0]
    assert found.words in found.reasons
    # FAIL and INCONCLUSIVE exclude each other; without either the advantage passes, which is told as well
    expected = len(names) - ({"FAIL", "INCONCLUSIVE"} <= {*names}) + (not {"FAIL", "INCONCLUSIVE"} & {*names})
    assert len(found.reasons) == expected


@pytest.mark.parametrize("figure", ["auc", "accuracy", "advantage", "tpr_at_1pct", "tpr_at_01pct"])
def test_every_figure_can_contradict_the_claim_and_equality_does_not(figure):
    most = getattr(GOOD.ceiling, figure)
    at = given_(target=attack(-0.01, 0.03, floors=floors(**{figure: most})))
    above = given_(target=attack(-0.01, 0.03, floors=floors(**{figure: most + 0.001})))
    assert judge(at).verdict == "PASS"
    assert judge(above).verdict == "CONTRADICTION"
    assert f"allows no attack more than {most:.4g}" in judge(above).words
    assert "error rate 1%" in judge(above).words


def test_a_contradiction_shows_even_where_everything_else_is_missing():
    target = attack(-0.01, 0.03, floors=floors(auc=0.9))
    assert judge(given_(target=target, control=None, blind=None, gap_accuracy=None)).verdict == "CONTRADICTION"


def test_a_rate_that_is_not_estimable_is_not_missing():
    thin = attack(-0.01, 0.03, tpr_at_01pct=NotEstimable(needs=10_000), floors=floors(tpr_at_01pct=None))
    assert judge(given_(target=thin)).verdict == "PASS"


def test_an_attack_at_chance_on_a_model_with_a_wide_gap_is_broken():
    """Case C1: accuracy .996 in training and .5535 in the test; the gap alone gives .721."""
    scores = np.random.default_rng(0).permutation(4000.0 + np.arange(4000))
    at_chance = evaluate(members=scores[:2000], non_members=scores[2000:])
    found = judge(given_(target=at_chance, gap_accuracy=gap_accuracy(train_accuracy=0.996, test_accuracy=0.5535)))
    assert found.verdict == "ATTACK_BROKEN"
    assert "accuracy alone gives 0.721" in found.words


@pytest.mark.parametrize(("gap", "verdict"), [(0.525, "PASS"), (0.526, "ATTACK_BROKEN")])
def test_the_gap_may_exceed_the_attack_by_its_tolerance_and_no_more(gap, verdict):
    assert judge(given_(gap_accuracy=gap)).verdict == verdict  # the attack's upper bound is .515


@pytest.mark.parametrize(("lower", "verdict"), [(0.2, "PASS"), (0.1999, "ATTACK_BROKEN")])
def test_the_control_is_caught_from_sixty_per_cent_and_rounding_does_not_help(lower, verdict):
    assert judge(given_(control=attack(lower, 0.3))).verdict == verdict


@pytest.mark.parametrize(("lower", "verdict"), [(0.52, "PASS"), (0.521, "INVALID_SPLIT")])
def test_the_split_is_invalid_from_above_its_tolerance(lower, verdict):
    assert judge(given_(blind=area(lower, 0.6))).verdict == verdict


@pytest.mark.parametrize(("upper", "verdict"), [(0.48, "PASS"), (0.479, "ATTACK_BROKEN")])
def test_an_attack_that_ranks_members_last_is_broken(upper, verdict):
    assert judge(given_(target=attack(-0.01, 0.03, auc=area(0.3, upper)))).verdict == verdict


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.0, 0.05, "PASS"),
        (0.0, 0.0501, "INCONCLUSIVE"),
        (0.05, 0.09, "INCONCLUSIVE"),
        (0.0509, 0.09, "INCONCLUSIVE"),  # rounds down to the limit
        (0.051, 0.09, "FAIL"),
    ],
)
def test_the_advantage_is_judged_by_its_rounded_bounds(lower, upper, verdict):
    assert judge(given_(target=attack(lower, upper), gap_accuracy=0.5)).verdict == verdict


def test_few_units_round_so_coarsely_that_they_cannot_pass_a_narrow_limit():
    few = attack(-0.01, 0.041, members=300, non_members=300)  # a step of .01: published as .05
    assert judge(given_(target=few)).verdict == "PASS"
    assert judge(given_(target=few, max_advantage=0.045)).verdict == "INCONCLUSIVE"


def leaves(part: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every number within dataclasses and tuples."""
    if isinstance(part, int | float):
        yield path
    elif isinstance(part, tuple):
        for place, inner in enumerate(part):
            yield from leaves(inner, (*path, place))
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from leaves(getattr(part, field.name), (*path, field.name))


def with_leaf(part: Any, path: tuple, value: Any) -> Any:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(part, tuple):
        return (*part[:first], with_leaf(part[first], rest, value), *part[first + 1 :])
    return dataclasses.replace(part, **{first: with_leaf(getattr(part, first), rest, value)})


ALL = list(leaves(GOOD))


def test_the_search_for_numbers_finds_them_all():
    # three groups of a result: auc 6, four rates 12, roc 4, floors 5, counts 3; twice; ceiling 5; blind 6; gap; limit
    assert len(ALL) == 2 * 30 + 5 + 6 + 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("path", ALL, ids=lambda path: ".".join(map(str, path)))
def test_no_number_that_is_not_finite_ever_passes(path, value):
    found = judge(with_leaf(GOOD, path, value))
    assert found.verdict in {"VETO", "CONTRADICTION", "INVALID_SPLIT", "ATTACK_BROKEN"}
    assert "nan" not in found.words.lower()


@pytest.mark.parametrize("field", ["target", "control", "blind", "gap_accuracy", "ceiling", "vetoes", "max_advantage"])
def test_nothing_missing_ever_passes(field):
    found = judge(given_(**{field: None}))
    assert found.verdict == ("VETO" if field == "vetoes" else "ATTACK_BROKEN")


@pytest.mark.parametrize("field", ["target", "control", "blind", "gap_accuracy", "ceiling", "max_advantage"])
def test_nothing_missing_is_ever_said_to_pass_either(field):
    assert not any("within the limit" in reason for reason in judge(given_(**{field: None})).reasons)


@pytest.mark.parametrize("field", ["target", "control", "blind", "gap_accuracy"])
def test_what_is_undefined_breaks_the_attack_for_its_reason(field):
    found = judge(given_(**{field: Undefined(reason="the score of a unit is not finite")}))
    assert found.verdict == "ATTACK_BROKEN"
    assert "the score of a unit is not finite" in found.words


@pytest.mark.parametrize("value", [-0.01, 1.01])
@pytest.mark.parametrize("field", ["gap_accuracy", "max_advantage"])
def test_a_share_outside_zero_to_one_is_no_share(field, value):
    assert judge(given_(**{field: value})).verdict == "ATTACK_BROKEN"


def test_several_vetoes_are_all_told():
    found = judge(given_(vetoes=("One.", "Two.")))
    assert found.words == "One. Two."
    assert found.reasons[:2] == ("One.", "Two.")


bounds = st.tuples(st.floats(-0.2, 0.4), st.floats(-0.2, 0.4)).map(sorted)


@given(bounds, st.floats(0, 1), st.floats(0.4, 0.8), st.floats(0.4, 0.6), st.floats(0, 1))
def test_a_pass_means_that_every_condition_held(target, limit, gap, blind, control):
    found = judge(
        given_(
            target=attack(*target),
            max_advantage=limit,
            gap_accuracy=gap,
            blind=area(blind, 0.9),
            control=attack(control, 1.0),
        )
    )
    holds = (
        target[1] <= limit,
        (1 + control) / 2 >= 0.6,
        blind <= 0.521,
        gap <= (1 + target[1]) / 2 + 0.01 + 0.002,
        target[0] - 0.01 <= 0.161,
    )
    if found.verdict == "PASS":
        assert all(holds)
    assert found.verdict != "INCONCLUSIVE" or target[0] - 0.001 <= limit <= target[1] + 0.001
    assert found.verdict != "FAIL" or target[0] > limit
