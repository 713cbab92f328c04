"""The gate: what passes, what blocks, what is not enough, and which policies are none."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import ConfigurationError
from tasks.registry.evidence import (
    EXIT_CODES,
    Attacked,
    Decision,
    Evidence,
    Interval,
    Missing,
    Reason,
)
from tasks.registry.gate import judge
from tasks.registry.limits import check_policy
from tasks.registry.standing import under

ADVANTAGE = Interval(estimate=0.004, lower=-0.006, upper=0.014)
GOOD = Evidence(
    self_test_passed=True,
    executed_steps=251,
    planned_steps=251,
    claimed_steps=251,
    run_epsilon=2.9997,
    run_epsilon_limit=3.0,
    ledger_epsilon_used=5.9,
    ledger_epsilon_cap=8.0,
    delta=1e-6,
    ledger_delta=1e-5,
    unit="person",
    validation_passed=True,
    auc=Interval(estimate=0.66, lower=0.64, upper=0.68),
    champion_version="3",
    auc_drop=Interval(estimate=0.002, lower=-0.004, upper=0.008),
    attack=Attacked(verdict="PASS", words="members cannot be told from others", advantage=ADVANTAGE, limit=0.05),
    groups=(),
    gaps=(),
    min_count=100,
)
POLICY = {"min_auc": 0.6, "max_auc_drop": 0.02}


def decide(policy=None, **changes) -> Decision:
    return judge(policy=policy or POLICY, evidence=dataclasses.replace(GOOD, **changes))


def reason(decision: Decision, gate: str) -> Reason:
    (found,) = [r for r in decision.reasons if r.gate == gate]
    return found


def test_a_model_inside_every_limit_is_promoted_and_every_gate_says_why():
    decision = decide()
    assert decision.verdict == "promoted"
    assert {r.outcome for r in decision.reasons} == {"passed"}
    assert [r.gate for r in decision.reasons] == [
        "run_epsilon",
        "ledger_epsilon",
        "delta",
        "self_test",
        "steps",
        "validation",
        "attack",
        "min_auc",
        "max_auc_drop",
    ]


def test_the_exit_codes_are_those_of_the_command_line():
    assert dict(EXIT_CODES) == {"promoted": 0, "blocked": 40, "insufficient": 41, "awaiting_approval": 42}
    assert [decide().exit_code, decide(self_test_passed=False).exit_code] == [0, 40]


NEVER = [
    ({"self_test_passed": False}, "self_test"),
    ({"self_test_passed": None}, "self_test"),
    ({"validation_passed": False}, "validation"),
    ({"executed_steps": 250}, "steps"),
    ({"planned_steps": 252}, "steps"),
    ({"claimed_steps": 260}, "steps"),
    ({"executed_steps": 0, "planned_steps": 0, "claimed_steps": 0}, "steps"),
    ({"run_epsilon": 3.0000001}, "run_epsilon"),
    ({"run_epsilon": math.inf}, "run_epsilon"),
    ({"run_epsilon": math.nan}, "run_epsilon"),
    ({"run_epsilon": 0.0}, "run_epsilon"),
    ({"run_epsilon_limit": math.nan}, "run_epsilon"),
    ({"run_epsilon_limit": math.inf, "run_epsilon": math.inf}, "run_epsilon"),
    ({"ledger_epsilon_used": 8.01}, "ledger_epsilon"),
    ({"ledger_epsilon_used": math.nan}, "ledger_epsilon"),
    ({"ledger_epsilon_cap": math.inf}, "ledger_epsilon"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"delta": math.nan}, "delta"),
    ({"ledger_delta": 0.0}, "delta"),
    ({"ledger_delta": 1.0}, "delta"),
    ({"ledger_delta": math.nan}, "delta"),
    ({"auc": Missing(why="every row is positive")}, "min_auc"),
    ({"auc": Interval(estimate=math.nan, lower=math.nan, upper=math.nan)}, "min_auc"),
    ({"auc": Interval(estimate=0.7, lower=0.65, upper=math.inf)}, "min_auc"),
    ({"auc": Interval(estimate=0.7, lower=0.65, upper=math.nan)}, "min_auc"),
    ({"auc": Interval(estimate=0.7, lower=0.75, upper=0.8)}, "min_auc"),
    ({"auc": Interval(estimate=70.0, lower=65.0, upper=75.0)}, "min_auc"),
    ({"auc": Interval(estimate=0.5, lower=0.4, upper=0.5999)}, "min_auc"),
    ({"auc_drop": Missing(why="the champion was judged on other rows")}, "max_auc_drop"),
    ({"auc_drop": Interval(estimate=0.05, lower=0.0201, upper=0.08)}, "max_auc_drop"),
    ({"auc_drop": Interval(estimate=-math.inf, lower=-math.inf, upper=0.0)}, "max_auc_drop"),
]


@pytest.mark.parametrize(("change", "gate"), NEVER)
def test_each_of_these_alone_blocks_and_is_named(change, gate):
    decision = decide(**change)
    assert decision.verdict == "blocked"
    assert [r.gate for r in decision.reasons if r.outcome == "blocked"] == [gate]
    assert decision.reasons[0].gate == gate  # what stands in the way comes first


@pytest.mark.parametrize(("change", "gate"), NEVER)
def test_a_decision_is_plain_json_without_nan_or_infinity(change, gate):
    decision = decide(**change)
    plain = json.loads(json.dumps(decision.to_json(), allow_nan=False))
    assert plain["verdict"] == decision.verdict
    assert [Reason(**found) for found in plain["reasons"]] == list(decision.reasons)


def test_all_reasons_come_at_once():
    decision = decide(self_test_passed=False, run_epsilon=math.inf, auc=Interval(estimate=0.61, lower=0.59, upper=0.63))
    blocking = {r.gate: r.outcome for r in decision.reasons if r.outcome != "passed"}
    assert blocking == {"self_test": "blocked", "run_epsilon": "blocked", "min_auc": "insufficient"}
    assert decision.verdict == "blocked"
    assert len(decision.reasons) == 9


def test_an_interval_astride_the_limit_is_insufficient_and_says_number_and_limit():
    decision = decide(auc=Interval(estimate=0.61, lower=0.5812, upper=0.6388))
    assert (decision.verdict, decision.exit_code) == ("insufficient", 41)
    found = reason(decision, "min_auc")
    assert (found.number, found.limit) == (0.61, 0.6)
    for part in ("0.61", "0.5812", "0.6388", "0.6", "too wide"):
        assert part in found.words
    drop = decide(auc_drop=Interval(estimate=0.015, lower=0.01, upper=0.0201))
    assert (drop.verdict, reason(drop, "max_auc_drop").outcome) == ("insufficient", "insufficient")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"auc": Interval(estimate=0.6, lower=0.6, upper=0.6)}, "promoted"),
        ({"auc": Interval(estimate=0.6, lower=math.nextafter(0.6, 0), upper=0.6)}, "insufficient"),
        ({"auc": Interval(estimate=0.59, lower=0.5, upper=math.nextafter(0.6, 0))}, "blocked"),
        ({"auc_drop": Interval(estimate=0.02, lower=0.02, upper=0.02)}, "promoted"),
        ({"auc_drop": Interval(estimate=0.02, lower=0.02, upper=math.nextafter(0.02, 1))}, "insufficient"),
        ({"auc_drop": Interval(estimate=0.03, lower=math.nextafter(0.02, 1), upper=0.04)}, "blocked"),
        ({"run_epsilon": 3.0}, "promoted"),
        ({"run_epsilon": math.nextafter(3.0, 4)}, "blocked"),
    ],
)
def test_limits_include_themselves_and_nothing_beyond(change, verdict):
    assert decide(**change).verdict == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"run_epsilon": 0.4, "run_epsilon_limit": 0.5},
        {"ledger_epsilon_used": 1e-6, "ledger_epsilon_cap": 0.01},
        {"executed_steps": 1, "planned_steps": 1, "claimed_steps": 1},
    ],
)
def test_a_small_budget_and_a_single_step_are_enough(change):
    assert decide(**change).verdict == "promoted"


@pytest.mark.parametrize("limit", [0.0, -0.5, math.inf, math.nan])
def test_a_budget_without_a_finite_limit_above_0_is_named_as_such(limit):
    found = reason(decide(run_epsilon_limit=limit), "run_epsilon")
    assert (found.outcome, found.limit, found.number) == ("blocked", None, 2.9997)
    assert "no finite limit" in found.words


@pytest.mark.parametrize(
    ("change", "gate", "words"),
    [
        ({}, "min_auc", "its lower bound 0.64 reaches the limit of 0.6"),
        ({}, "max_auc_drop", "its upper bound 0.008 is within the limit of 0.02"),
        ({"ledger_epsilon_used": 5.912345}, "ledger_epsilon", "is 5.912, within its limit of 8"),
        ({"auc": Interval(estimate=0.5, lower=0.4, upper=0.59)}, "min_auc", "its upper bound 0.59 misses the"),
        (
            {"auc_drop": Interval(estimate=0.05, lower=0.03, upper=0.08)},
            "max_auc_drop",
            "its lower bound 0.03 exceeds the limit of 0.02",
        ),
    ],
)
def test_the_words_name_the_bound_that_decided(change, gate, words):
    assert words in reason(decide(**change), gate).words


@pytest.mark.parametrize(("run", "ledger"), [(1e-7, 1e-6), (1e-6, 1e-7)])
def test_of_two_deltas_the_larger_is_the_number_that_is_judged(run, ledger):
    assert reason(decide(delta=run, ledger_delta=ledger), "delta").number == 1e-6


@pytest.mark.parametrize("policy", [{"min_auc": 0.5}, {"min_auc": 0.999}, {"max_auc_drop": 0}, {"max_auc_drop": 0.5}])
def test_the_bounds_of_a_limit_are_limits_themselves(policy):
    assert dict(check_policy(policy).limits) == policy


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(3.00000001, "3.00000001"), (3.000000012, "3.00000001"), (math.nextafter(3.0, 4), "3.0000000000000004")],
)
def test_a_number_just_beyond_its_limit_is_printed_with_as_many_digits_as_tell_them_apart(epsilon, shown):
    words = reason(decide(run_epsilon=epsilon), "run_epsilon").words
    assert f"is {shown}, above its limit of 3" in words


def test_a_first_model_is_judged_by_absolute_limits_and_that_is_recorded():
    decision = decide(champion_version=None, auc_drop=Missing(why="no champion"))
    assert decision.verdict == "promoted"
    assert "max_auc_drop" not in {found.gate for found in decision.reasons}  # one line says it, not two
    assert reason(decision, "champion").outcome == "noted"
    assert "first model" in reason(decision, "champion").words
    assert "min_auc" in reason(decision, "champion").words


def test_a_first_model_that_no_absolute_limit_judges_is_not_waved_through():
    decision = decide({"max_auc_drop": 0.02}, champion_version=None)
    assert decision.verdict == "insufficient"
    assert "set one of: min_auc, min_group" in reason(decision, "champion").words


def test_a_comparison_that_was_refused_blocks_with_the_reason():
    decision = decide(auc_drop=Missing(why="the champion's split was drawn with another key"))
    assert decision.verdict == "blocked"
    assert "another key" in reason(decision, "max_auc_drop").words
    assert decide({"min_auc": 0.6}, auc_drop=Missing(why="not asked for")).verdict == "promoted"


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        ({}, ["no limit", "min_auc", "max_auc_drop"]),
        ({"min_acu": 0.6}, ["min_acu", "did you mean min_auc?"]),
        ({"zebra": 0.6}, ["zebra", "known limits: min_auc, max_auc_drop"]),
        ({"min_auc": None}, ["min_auc", "null", "0.5 to 0.999"]),
        ({"min_auc": math.nan}, ["min_auc", "nan", "finite"]),
        ({"max_auc_drop": math.inf}, ["max_auc_drop", "inf", "finite"]),
        ({"min_auc": True}, ["min_auc", "True", "number"]),
        ({"min_auc": "0.6"}, ["min_auc", "'0.6'", "number"]),
        ({"min_auc": 60}, ["min_auc = 60", "0.5 to 0.999"]),
        ({"min_auc": 0.0}, ["min_auc = 0", "0.5 to 0.999"]),
        ({"max_auc_drop": -0.01}, ["max_auc_drop = -0.01", "0 to 0.5"]),
    ],
)
def test_a_policy_that_is_none_is_refused(policy, parts):
    """Case G5."""
    with pytest.raises(ConfigurationError) as caught:
        judge(policy=policy, evidence=GOOD)
    assert all(part in str(caught.value) for part in parts)


def test_every_fault_of_a_policy_is_told_at_once_with_its_file():
    with pytest.raises(ConfigurationError, match=r"policy.yaml: 3 faults") as caught:
        check_policy({"min_auc": None, "min_acu": 1, "max_auc_drop": 9}, source="policy.yaml")
    assert all(key in str(caught.value) for key in ("min_auc", "min_acu", "max_auc_drop"))


bound = st.floats(-0.5, 1.5) | st.sampled_from([math.nan, math.inf, -math.inf, 0.6, 0.02])


@given(st.tuples(bound, bound, bound), st.tuples(bound, bound, bound), st.booleans())
@settings(deadline=None, max_examples=500, derandomize=True)
def test_a_promotion_implies_that_both_bounds_are_finite_and_inside(auc, drop, champion):
    decision = decide(
        auc=Interval(lower=auc[0], estimate=auc[1], upper=auc[2]),
        auc_drop=Interval(lower=drop[0], estimate=drop[1], upper=drop[2]),
        champion_version="1" if champion else None,
    )
    if decision.verdict == "promoted":
        assert all(map(math.isfinite, auc))
        assert auc[0] >= 0.6
        assert not champion or (all(map(math.isfinite, drop)) and drop[2] <= 0.02)


def test_the_gate_imports_nothing_but_the_standard_library_and_our_errors():
    import ast
    import sys
    from pathlib import Path

    from tasks.registry import bounds, evidence, gate, limits, standing

    modules = (gate, limits, standing, bounds, evidence)
    allowed = {"configs.errors", *(module.__name__ for module in modules)}
    for module in modules:
        tree = ast.parse(Path(str(module.__file__)).read_text())
        froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        plain = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        found = {name for name in froms | plain if name.split(".")[0] not in sys.stdlib_module_names}
        assert found <= allowed


def test_no_epsilon_is_told_without_its_delta_and_its_unit():
    words = {reason.gate: reason.words for reason in decide().reasons}
    assert words["run_epsilon"].startswith("epsilon of the run for one person at delta 1e-06 is ")
    assert words["ledger_epsilon"].startswith(
        "epsilon over all runs on the population for one person at delta 1e-05 is "
    )
    assert words["delta"] == "the deltas, 1e-06 of the run and 1e-05 of the population, lie in (0, 1)"


def test_what_is_only_noted_stands_last():
    outcomes = [reason.outcome for reason in decide(champion_version=None, self_test_passed=False).reasons]
    assert outcomes == sorted(outcomes, key=("blocked", "insufficient", "passed", "noted").index)
    assert {"blocked", "passed", "noted"} <= set(outcomes)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("PASS", "promoted"),
        ("INCONCLUSIVE", "insufficient"),
        ("ATTACK_BROKEN", "insufficient"),
        ("INVALID_SPLIT", "insufficient"),
        ("FAIL", "blocked"),
        ("CONTRADICTION", "blocked"),
        ("VETO", "blocked"),
        ("no such verdict", "blocked"),
    ],
)
def test_an_attack_s_verdict_decides_as_the_design_maps_it_and_no_policy_switches_it_off(verdict, outcome):
    decision = decide(attack=Attacked(verdict=verdict, words="why", advantage=ADVANTAGE, limit=0.05))
    assert decision.verdict == outcome
    found = reason(decision, "attack")
    assert (found.number, found.limit, found.words) == (0.004, 0.05, f"{verdict}: why")


@pytest.mark.parametrize("number", [None, math.nan, math.inf])
def test_an_attack_that_passes_without_a_number_does_not_pass(number):
    advantage = None if number is None else Interval(estimate=number, lower=0.0, upper=0.01)
    assert decide(attack=Attacked(verdict="PASS", words="", advantage=advantage, limit=0.05)).verdict == "blocked"


@pytest.mark.parametrize(
    ("was", "limit", "verdict"),
    [
        ("PASS", 0.05, "PASS"),
        ("PASS", 0.014, "PASS"),
        ("PASS", 0.0139, "INCONCLUSIVE"),
        ("INCONCLUSIVE", 0.02, "PASS"),
        ("FAIL", 0.012, "INCONCLUSIVE"),
        ("FAIL", 0.01, "INCONCLUSIVE"),
        ("PASS", 0.0099, "FAIL"),
    ],
)
def test_an_attack_is_held_against_the_limit_of_today(was, limit, verdict):
    advantage = Interval(estimate=0.012, lower=0.01, upper=0.014)
    found = under(Attacked(verdict=was, words="then", advantage=advantage, limit=0.05), limit)
    assert (found.verdict, found.limit, found.advantage) == (verdict, limit, advantage)
    if limit != 0.05:
        assert f"between 0.010 and 0.014 (95 % interval), {ENDS[verdict]} the limit of {limit:g}. " in found.words
        assert f"It was judged by 0.05 when the attack ran, which was: {was}." in found.words


ENDS = {"PASS": "within", "INCONCLUSIVE": "on both sides of", "FAIL": "above"}


@pytest.mark.parametrize("verdict", ["VETO", "CONTRADICTION", "INVALID_SPLIT", "ATTACK_BROKEN", "anything"])
def test_no_limit_of_today_lifts_a_verdict_that_none_decided(verdict):
    found = Attacked(verdict=verdict, words="then", advantage=ADVANTAGE, limit=0.0)
    assert under(found, 1.0) == dataclasses.replace(found, limit=1.0)


def test_an_attack_without_a_number_is_never_held_against_a_limit():
    found = Attacked(verdict="FAIL", words="then", advantage=None, limit=0.01)
    assert under(found, 1.0) == dataclasses.replace(found, limit=1.0)
    blurred = Interval(estimate=0.01, lower=math.nan, upper=math.nan)
    assert under(dataclasses.replace(found, advantage=blurred), 1.0).verdict == "INCONCLUSIVE"


def test_an_attack_that_did_not_run_blocks_with_the_reason():
    decision = decide(attack=Missing(why="there is no hold-out"))
    assert decision.verdict == "blocked"
    assert "there is no hold-out" in reason(decision, "attack").words
