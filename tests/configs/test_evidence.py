"""Attack, groups and their limits: what a file may ask for, and what it may not."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from configs.evidence_schema import attribute_names, group_names, number_pairs
from configs.schema import Config
from tests.configs.test_limits import GOOD

GROUPS: dict[str, Any] = {
    "sex": "sex",
    "age_band": {"column": "age", "bands": {"young": ["0", "30"], "old": ["80", "111"]}, "other": "between"},
    "race": {"column": "race", "values": ["A", "B"]},
}


def config(fairness: Any = None, **changes: Any) -> Config:
    raw = copy.deepcopy(GOOD) | ({} if fairness is None else {"fairness": fairness}) | changes
    return Config.model_validate(raw)


def faults(fairness: Any = None, **changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        config(fairness, **changes)
    return str(caught.value)


def test_an_attack_runs_with_its_defaults_when_the_file_names_none() -> None:
    attack = config().attack
    assert (attack.level, attack.max_advantage) == (0, 0.05)
    assert (attack.control.units, attack.control.epochs, attack.control.labels) == (5000, 40, "random")


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("level", [0], [-1, 1]),
        ("max_advantage", [1e-9, 0.999], [0, 1, float("nan"), None]),
    ],
)
def test_an_attack_has_limits(key: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        assert getattr(config(attack={key: value}).attack, key) == value
    for value in wrong:
        assert f"attack.{key}" in faults(attack={key: value})


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("units", [500, 1_000_000], [499, 1_000_001]),
        ("epochs", [1, 10_000], [0, 10_001]),
        ("labels", ["random"], ["given"]),
    ],
)
def test_a_control_has_limits(key: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        assert getattr(config(attack={"control": {key: value}}).attack.control, key) == value
    for value in wrong:
        assert f"attack.control.{key}" in faults(attack={"control": {key: value}})


def test_shadow_models_that_do_not_exist_yet_are_refused_and_not_ignored() -> None:
    assert "shadow_models" in faults(attack={"shadow_models": 16})


def test_a_group_is_a_column_a_code_book_or_bands_and_every_name_is_known_beforehand() -> None:
    found = config({"groups": GROUPS, "intersections": [["sex", "race"]]})
    fairness, books = found.fairness, found.data.code_books()
    assert fairness is not None
    assert attribute_names(fairness) == ("sex", "age_band", "race", "sex × race")
    assert group_names("sex", fairness, books) == ("F", "M", "other", "unknown")
    assert group_names("age_band", fairness, books) == ("young", "old", "between", "unknown")
    assert group_names("race", fairness, books) == ("A", "B", "other", "unknown")
    assert group_names("sex × race", fairness, books)[:3] == ("F × A", "F × B", "F × other")
    assert len(group_names("sex × race", fairness, books)) == 16


def test_what_lies_in_no_band_is_other_and_a_value_unknown_means_missing() -> None:
    found = config(
        {"groups": {"a": {"column": "x", "bands": {"b": ["1", "2"]}}, "s": {"column": "y", "values": ["unknown", "k"]}}}
    )
    assert found.fairness is not None
    assert group_names("a", found.fairness, {}) == ("b", "other", "unknown")
    assert group_names("s", found.fairness, {}) == ("unknown", "k", "other")


def test_a_value_that_no_book_lists_is_told_from_an_other_that_the_book_lists() -> None:
    raw = {
        "groups": {"race": {"column": "x", "values": ["A", "Other"]}, "sex": "sex"},
        "intersections": [["race", "sex"]],
    }
    found = config(raw).fairness
    assert found is not None
    assert group_names("race", found, {}) == ("A", "Other", "other, not listed", "unknown")
    names = group_names("race × sex", found, {"sex": ("F",)})
    assert names[:3] == ("A × F", "A × other, not listed", "A × unknown")


def test_the_columns_that_are_read_are_those_of_data_and_of_groups_each_once() -> None:
    assert config({"groups": GROUPS}).columns() == [*config().data.columns(), "race"]
    assert config().columns() == config().data.columns()


@pytest.mark.parametrize(
    ("group", "part"),
    [
        ("ward", "ward needs `values` or `bands`: ward is no category feature"),
        ("nowhere", "needs `values` or `bands`"),
        ("patient", "must tell a group, not the person or the label"),
        ("readmitted", "must tell a group, not the person or the label"),
        ({"column": "sex", "values": []}, "at least 1 item"),
        ({"column": "sex", "values": ["F", "F"]}, "must not repeat a value"),
        ({"column": "sex", "bands": {}}, "at least 1 item"),
        ({"column": "sex", "values": ["F"], "bands": {"f": ["F"]}}, "and `values` exclude each other"),
        ({"column": "sex", "bands": {"f": ["F"], "x": ["X"]}}, "names `X`, which the code book of sex lacks"),
        ({"column": "sex", "bands": {"f": ["F"], "g": ["F", "M"]}}, "F is in two bands"),
        ({"column": "age", "bands": {"a": ["x", "y"]}}, "must be pairs of numbers [low, high): age is a number"),
        ({"column": "age", "bands": {"a": ["1", "2", "3"]}}, "must be pairs of numbers"),
        ({"column": "age", "bands": {"a": ["3", "2"]}}, "a low and a higher number"),
        ({"column": "age", "bands": {"a": ["0", "30"], "b": ["40", "35"]}}, "a low and a higher number"),
        ({"column": "age", "bands": {"a": ["0", "30"], "b": ["40", "40.0"]}}, "a low and a higher number"),
        ({"column": "age", "bands": {"a": ["0", "30"], "b": ["29", "40"]}}, "do not overlap"),
        ({"column": "age", "bands": {"a": ["0", "30"], "b": ["29", "40"], "c": ["40", "50"]}}, "do not overlap"),
        ({"column": "age", "other": "rest"}, "needs `bands`"),
        ({"column": "age", "bands": {"a": ["0", "30"]}, "other": "a"}, "must differ from the bands' names"),
        ({"column": "age", "bands": {"a": ["0", "30"]}, "other": "unknown"}, "must differ from the bands' names"),
        ({"colum": "age"}, "colum"),
    ],
)
def test_a_group_that_is_none_is_refused(group: Any, part: str) -> None:
    text = faults({"groups": {"ward" if group == "ward" else "g": group}})
    assert part in text
    assert "fairness" in text


def test_bands_may_touch() -> None:
    found = config({"groups": {"g": {"column": "age", "bands": {"a": ["0", "30"], "b": ["30", "40"]}}}}).fairness
    assert found is not None
    assert number_pairs(found.groups["g"].bands or {}) == {"a": (0, 30), "b": (30, 40)}
    assert number_pairs({"a": ("1", "2"), "b": ("x", "3")}) is None


@pytest.mark.parametrize(
    ("intersections", "part"),
    [
        ([["sex"]], "at least 2 items"),
        ([["sex", "race", "age_band", "sex"]], "at most 3 items"),
        ([["sex", "rase"]], "names `rase`, which is no group (sex, age_band, race)"),
        ([["sex", "sex"]], "must not name an attribute twice"),
        ([["sex", "race"], ["race", "sex"]], "must not hold the same attributes twice"),
    ],
)
def test_an_intersection_that_is_none_is_refused(intersections: Any, part: str) -> None:
    assert part in faults({"groups": GROUPS, "intersections": intersections})


def test_intersections_are_not_judged_while_the_groups_themselves_are_wrong() -> None:
    text = faults({"groups": {"g": {"colum": "x"}}, "intersections": [["sex", "race"]]})
    assert "which is no group" not in text


def test_no_group_at_all_is_refused() -> None:
    assert "fairness.groups" in faults({"groups": {}})


@pytest.mark.parametrize("key", ["max_privacy_loss", "min_group", "max_gap"])
def test_a_limit_on_groups_needs_groups(key: str) -> None:
    gates = {"min_auc": 0.6, key: 0.5}
    assert f"sets {key}, which need `fairness.groups`" in faults(gates=gates)
    assert config({"groups": GROUPS}, gates=gates).gates.limits() == gates


def test_settings_alone_are_no_limit() -> None:
    text = faults({"groups": GROUPS}, gates={"min_count": 50, "required": ["sex/F"]})
    assert "must set at least one limit" in text


@pytest.mark.parametrize(
    ("name", "known"),
    [("sex/F", True), ("age_band/between", True), ("sex × race/F × B", True), ("sex/X", False), ("F", False)],
)
def test_a_required_group_must_be_one_that_can_exist(name: str, known: bool) -> None:
    gates = {"min_group": 0.6, "required": [name]}
    fairness = {"groups": GROUPS, "intersections": [["sex", "race"]]}
    if known:
        assert config(fairness, gates=gates).gates.policy() == gates
    else:
        assert f"required names `{name}`, which is no group; known: sex/F, sex/M" in faults(fairness, gates=gates)


def test_a_required_group_is_named_once() -> None:
    gates = {"min_group": 0.6, "required": ["sex/F", "sex/F"]}
    assert "must not repeat a value (sex/F appears more than once)" in faults({"groups": GROUPS}, gates=gates)


def test_a_floor_under_groups_starts_at_eleven() -> None:
    fairness = {"groups": GROUPS}
    assert config(fairness, gates={"min_group": 0.6, "min_count": 11}).gates.min_count == 11
    assert "min_count" in faults(fairness, gates={"min_group": 0.6, "min_count": 10})


def test_gates_are_not_judged_against_groups_that_are_wrong_themselves() -> None:
    text = faults({"groups": {}}, gates={"min_group": 0.6})
    assert "which need `fairness.groups`" not in text


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("max_privacy_loss", [0, 0.5], [-0.001, 0.501]),
        ("min_group", [0.5, 0.999], [0.499, 1]),
        ("max_gap", [0, 0.5], [-0.001, 0.501]),
    ],
)
def test_limits_on_groups_lie_where_they_are_written(key: str, right: list[float], wrong: list[float]) -> None:
    for value in right:
        assert config({"groups": GROUPS}, gates={key: value}).gates.limits() == {key: value}
    for value in wrong:
        assert f"gates.{key}" in faults({"groups": GROUPS}, gates={key: value})
