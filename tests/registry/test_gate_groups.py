"""The gate on groups, the policies that it takes, and evidence that survives the ledger."""

import dataclasses
import json
import math

import pytest

from configs.errors import ConfigurationError
from tasks.registry.evidence import Attacked, Decision, Gap, Interval, Judged, Missing, evidence_of
from tasks.registry.gate import judge
from tasks.registry.limits import check_policy
from tests.registry.test_gate import GOOD, POLICY, decide, reason

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


def test_a_first_model_is_judged_by_its_groups_where_only_these_have_an_absolute_limit():
    decision = by_group({"min_group": 0.55}, champion_version=None)
    assert decision.verdict == "promoted"
    assert "(min_group)" in reason(decision, "champion").words


def test_a_first_model_that_only_relative_limits_on_groups_judge_is_not_waved_through():
    relative = by_group({"max_privacy_loss": 0.05, "max_gap": 0.1}, champion_version=None)
    assert (relative.verdict, reason(relative, "champion").outcome) == ("insufficient", "insufficient")
