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
    Gap,
    Interval,
    Judged,
    Missing,
    Reason,
    evidence_of,
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
    relative = by_group({"max_privacy_loss": 0.05, "max_gap": 0.1}, champion_version=None)
    assert (relative.verdict, reason(relative, "champion").outcome) == ("insufficient", "insufficient")


def test_a_first_model_is_judged_by_its_groups_where_only_these_have_an_absolute_limit():
    decision = by_group({"min_group": 0.55}, champion_version=None)
    assert decision.verdict == "promoted"
    assert "(min_group)" in reason(decision, "champion").words


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


OLD = Judged(
    attribute="age",
    group="80+",
    why_not="",
    auc=Interval(estimate=0.62, lower=0.58, upper=0.66),
    loss=Interval(estimate=0.004, lower=-0.01, upper=0.02),
)
YOUNG = dataclasses.replace(
    OLD,
    group="30-79",
    auc=Interval(estimate=0.66, lower=0.64, upper=0.68),
    loss=Interval(estimate=0.01, lower=0.002, upper=0.018),
)
FEW = dataclasses.replace(OLD, group="<30", why_not="fewer than 100 with the outcome", auc=Missing(why="few"))
GROUPS = (OLD, YOUNG, FEW)
BY_GROUP = {"max_privacy_loss": 0.05, "min_group": 0.55, "max_gap": 0.1}
GAPS = (Gap(attribute="age", auc=Interval(estimate=0.04, lower=0.0, upper=0.08)),)


def by_group(policy=None, groups=GROUPS, **changes) -> Decision:
    return decide(policy or {"min_auc": 0.6, **BY_GROUP}, **{"groups": groups, "gaps": GAPS, **changes})


def test_groups_inside_every_limit_pass_and_the_worst_of_them_is_named():
    decision = by_group()
    assert decision.verdict == "promoted"
    loss, least = reason(decision, "max_privacy_loss"), reason(decision, "min_group")
    assert (loss.group, loss.number, loss.limit) == ("age/80+", 0.004, 0.05)  # by its bound, not by its estimate
    assert "upper bound 0.02 is within the limit of 0.05 (2 groups judged at once)" in loss.words
    assert (least.group, least.number, least.limit) == ("age/80+", 0.62, 0.55)
    assert "lower bound 0.58 reaches the limit of 0.55" in least.words


def test_groups_with_too_few_people_are_named_and_never_count_as_passed():
    found = reason(by_group(), "groups")
    assert (found.outcome, found.words) == ("noted", "not gated, for they hold too few people: age/<30")
    alone = by_group(groups=(FEW,))
    assert alone.verdict == "insufficient"
    assert {r.gate for r in alone.reasons if r.outcome == "insufficient"} == {"max_privacy_loss", "min_group"}
    assert "no group has the people it takes" in reason(alone, "min_group").words


def test_every_group_beyond_a_limit_gets_its_own_reason():
    worse = dataclasses.replace(YOUNG, loss=Interval(estimate=0.08, lower=0.051, upper=0.1))
    unsure = dataclasses.replace(OLD, loss=Interval(estimate=0.04, lower=0.02, upper=0.06))
    decision = by_group(groups=(worse, unsure))
    assert decision.verdict == "blocked"
    found = {r.group: r.outcome for r in decision.reasons if r.gate == "max_privacy_loss"}
    assert found == {"age/30-79": "blocked", "age/80+": "insufficient"}
    assert by_group(groups=(unsure,)).verdict == "insufficient"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"auc": Interval(estimate=0.5, lower=0.45, upper=0.549)}, "blocked"),
        ({"auc": Interval(estimate=0.56, lower=0.549, upper=0.6)}, "insufficient"),
        ({"auc": Interval(estimate=math.nan, lower=math.nan, upper=math.nan)}, "blocked"),
        ({"auc": Missing(why="no row is positive")}, "blocked"),
        ({"loss": Interval(estimate=0.06, lower=0.0501, upper=0.1)}, "blocked"),
        ({"loss": Interval(estimate=0.06, lower=0.05, upper=0.1)}, "insufficient"),
        ({"loss": Interval(estimate=-0.3, lower=-0.4, upper=-0.2)}, "promoted"),
        ({"loss": Interval(estimate=0.01, lower=math.nan, upper=0.02)}, "blocked"),
        ({"loss": Missing(why="the recipe without noise did not train")}, "blocked"),
    ],
)
def test_one_group_alone_decides_for_the_model(change, outcome):
    decision = by_group(groups=(YOUNG, dataclasses.replace(OLD, **change)))
    assert decision.verdict == outcome
    if outcome != "promoted":
        assert [r.group for r in decision.reasons if r.outcome == outcome] == ["age/80+"]


def test_a_fairness_report_that_is_missing_blocks_every_limit_on_groups():
    decision = by_group(groups=Missing(why="the report failed"), gaps=())
    assert decision.verdict == "blocked"
    assert {r.gate for r in decision.reasons if r.outcome == "blocked"} == set(BY_GROUP)
    assert "the report failed" in reason(decision, "max_privacy_loss").words
    assert decide(groups=Missing(why="the report failed")).verdict == "promoted"  # a policy that looks at no group


def test_a_required_group_without_evidence_makes_the_outcome_insufficient():
    policy = {"min_auc": 0.6, **BY_GROUP, "required": ["age/80+", "age/<30", "age/none"]}
    decision = by_group(policy)
    assert decision.verdict == "insufficient"
    found = {r.group: r.words for r in decision.reasons if r.gate == "required"}
    assert found == {
        "age/<30": "age/<30 is required and cannot be judged: fewer than 100 with the outcome",
        "age/none": "age/none is required and cannot be judged: there is no such group",
    }
    assert "groups" not in {r.gate for r in decision.reasons}  # named once


@pytest.mark.parametrize("asked", [50, 200])
def test_groups_judged_from_another_floor_are_not_enough(asked):
    decision = by_group({"min_group": 0.55, "min_count": asked})
    assert decision.verdict == "insufficient"
    assert f"the policy asks for {asked}: assess again" in reason(decision, "min_count").words
    assert by_group({"min_group": 0.55, "min_count": asked}, min_count=asked).verdict == "promoted"
    for name, limit in BY_GROUP.items():  # any limit on groups, also beside one on all
        beside = by_group({"min_auc": 0.6, name: limit, "min_count": asked})
        assert reason(beside, "min_count").outcome == "insufficient"
    assert decide({"min_auc": 0.6, "min_count": asked}).verdict == "promoted"  # no limit on groups


@pytest.mark.parametrize(
    ("gap", "outcome"),
    [
        (Interval(estimate=0.05, lower=0.01, upper=0.1), "promoted"),
        (Interval(estimate=0.05, lower=0.01, upper=0.11), "insufficient"),
        (Interval(estimate=0.2, lower=0.11, upper=0.3), "blocked"),
        (Missing(why="fewer than two groups can be estimated"), "insufficient"),
        (Interval(estimate=math.nan, lower=0.0, upper=0.05), "blocked"),
    ],
)
def test_a_gap_is_judged_by_its_bounds_and_names_its_attribute(gap, outcome):
    decision = by_group(gaps=(*GAPS, Gap(attribute="sex", auc=gap)))
    assert decision.verdict == outcome
    assert [r.group for r in decision.reasons if r.gate == "max_gap" and r.outcome != "passed"] == (
        [] if outcome == "promoted" else ["sex"]
    )


SPANS = [  # (gate, lowest and highest value of its metric, where its evidence lies)
    ("min_auc", (0, 1), lambda found: {"auc": found}),
    ("max_auc_drop", (-1, 1), lambda found: {"auc_drop": found}),
    ("max_privacy_loss", (-1, 1), lambda found: {"groups": (dataclasses.replace(OLD, loss=found),)}),
    ("min_group", (0, 1), lambda found: {"groups": (dataclasses.replace(OLD, auc=found),)}),
    ("max_gap", (0, 1), lambda found: {"gaps": (Gap(attribute="sex", auc=found),)}),
]


@pytest.mark.parametrize(("gate", "span", "change"), SPANS, ids=[gate for gate, *_ in SPANS])
def test_an_interval_that_leaves_the_range_of_its_metric_is_a_fault_and_blocks(gate, span, change):
    low, high = span
    policy = {**POLICY, **BY_GROUP}

    def outcome(lower: float, upper: float) -> str:
        found = Interval(estimate=0.5 * (lower + upper), lower=lower, upper=upper)
        return reason(by_group(policy, **change(found)), gate).outcome

    assert outcome(low, high) == "insufficient"
    assert outcome(math.nextafter(low, -2), high) == "blocked"
    assert outcome(low, math.nextafter(high, 2)) == "blocked"


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        ({"min_count": 100}, ["no limit"]),
        ({"required": ["a/b"]}, ["no limit"]),
        ({"min_auc": 0.6, "min_count": 10}, ["min_count = 10", "at least 11"]),
        ({"min_auc": 0.6, "min_count": True}, ["min_count = True"]),
        ({"min_auc": 0.6, "min_count": 99.5}, ["min_count = 99.5"]),
        ({"min_auc": 0.6, "required": "age/80+"}, ["required = 'age/80+'", "list"]),
        ({"min_auc": 0.6, "required": [1]}, ["required = [1]", "attribute/group"]),
        ({"min_auc": 0.6, "required": ["age/80+", 1]}, ["required = ['age/80+', 1]", "attribute/group"]),
        ({"max_privacy_loss": None}, ["max_privacy_loss", "null"]),
        ({"max_privacy_los": 0.1}, ["did you mean max_privacy_loss?"]),
    ],
)
def test_settings_alone_are_no_policy_and_wrong_ones_are_refused(policy, parts):
    with pytest.raises(ConfigurationError) as caught:
        check_policy(policy)
    assert all(part in str(caught.value) for part in parts)


def test_the_smallest_floor_is_eleven_and_the_default_a_hundred():
    assert check_policy({"min_auc": 0.6, "min_count": 11}).min_count == 11
    assert check_policy({"min_auc": 0.6}).min_count == 100
    assert check_policy({"min_auc": 0.6, "required": ["a/b"]}).required == ("a/b",)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"groups": GROUPS, "gaps": GAPS},
        {"groups": Missing(why="gone"), "gaps": (Gap(attribute="sex", auc=Missing(why="one group")),)},
        {"attack": Missing(why="gone"), "auc": Missing(why="one class"), "champion_version": None},
        {"run_epsilon": math.inf, "auc": Interval(estimate=0.5, lower=-math.inf, upper=math.inf)},
        {"attack": Attacked(verdict="ATTACK_BROKEN", words="w", advantage=None, limit=0.05)},
    ],
)
def test_evidence_survives_json_and_judges_alike(change):
    evidence = dataclasses.replace(GOOD, **change)
    restored = evidence_of(json.loads(json.dumps(evidence.to_json(), allow_nan=False)))
    assert restored == evidence
    policy = {"min_auc": 0.6, **BY_GROUP}
    assert judge(policy=policy, evidence=restored) == judge(policy=policy, evidence=evidence)


@pytest.mark.parametrize(
    ("count", "end"), [(40, ", g/39"), (41, ", g/39 and 1 more, see the groups on the model card")]
)
def test_a_sentence_names_forty_groups_that_are_not_gated_and_counts_the_rest(count, end):
    few = tuple(
        Judged(attribute="g", group=str(place), why_not="few", auc=Missing(why="few"), loss=Missing(why="few"))
        for place in range(count)
    )
    assert reason(decide(groups=few), "groups").words.endswith(f"g/38{end}")


def test_a_configuration_allows_exactly_the_limits_that_the_gate_takes():
    from pydantic import TypeAdapter, ValidationError

    from configs.evidence_schema import Gates
    from tasks.registry.limits import LIMITS

    settings = {"min_count", "required"}
    assert set(Gates.model_fields) == set(LIMITS) | settings
    for name, limit in LIMITS.items():
        for value in (limit.low, limit.high):
            assert TypeAdapter(Gates).validate_python({name: value}).limits() == {name: value}
        for value in (limit.low - 1e-6, limit.high + 1e-6):
            with pytest.raises(ValidationError):
                TypeAdapter(Gates).validate_python({name: value})
