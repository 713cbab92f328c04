"""Which groups a file may make: all are judged at once, by names that mean nothing else."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from configs.evidence_schema import MOST_GROUPS
from configs.schema import Config
from tests.configs.test_evidence import config, faults
from tests.configs.test_limits import GOOD


def values(count: int, length: int = 0) -> list[str]:
    return [f"{number:03}{'x' * length}" for number in range(count)]


def groups(**sizes: int) -> dict[str, Any]:
    return {name: {"column": "age", "values": values(count)} for name, count in sizes.items()}


def test_as_many_groups_as_can_be_judged_are_taken_and_one_more_is_refused() -> None:
    # with each attribute come two groups: what is unknown, and what no value lists
    assert config({"groups": groups(a=MOST_GROUPS - 2)}).fairness is not None
    assert f"makes {MOST_GROUPS + 1} groups" in faults({"groups": groups(a=MOST_GROUPS - 1)})
    assert config({"groups": groups(a=100, b=MOST_GROUPS - 104)}).fairness is not None
    assert "102 of them of a" in faults({"groups": groups(a=100, b=MOST_GROUPS - 153, c=50)})


def test_an_intersection_counts_with_all_of_its_groups() -> None:
    assert config({"groups": groups(a=8, b=19), "intersections": [["a", "b"]]}).fairness is not None
    text = faults({"groups": groups(a=8, b=20), "intersections": [["a", "b"]]})
    assert "makes 252 groups, 220 of them of a × b, and at most 250" in text


def test_a_vast_intersection_is_refused_without_being_laid_out() -> None:
    assert "at most 250" in faults({"groups": groups(a=900, b=900, c=900), "intersections": [["a", "b", "c"]]})


@pytest.mark.parametrize(("length", "right"), [(200 - 3, True), (201 - 3, False)])
def test_a_name_is_as_long_as_a_card_can_show(length: int, right: bool) -> None:
    fairness = {"groups": {"a": {"column": "age", "values": values(2, length)}}}
    if right:
        assert config(fairness).fairness is not None
    else:
        assert "whose name has 201 characters, at most 200" in faults(fairness)


@pytest.mark.parametrize("value", ["F × M", "×", "__other__", "other, not listed"])
def test_a_name_with_a_meaning_of_its_own_is_refused_before_anything_is_spent(value: str) -> None:
    text = faults({"groups": {"a": {"column": "age", "values": ["ok", value]}}})
    assert f"makes a group of a named `{value}`" in text
    assert "fairness" in text


@pytest.mark.parametrize(
    ("bands", "other", "part"),
    [
        ({"other": ["0", "30"]}, None, "must differ from the bands' names"),
        ({"unknown": ["0", "30"]}, None, "must not name a band `unknown`"),
        ({"a": ["nan", "5"]}, None, "a low and a higher number"),
        ({"a": ["0", "nan"]}, None, "a low and a higher number"),
    ],
)
def test_bands_that_would_merge_with_others_or_hold_nobody_are_refused(bands: Any, other: Any, part: str) -> None:
    assert part in faults({"groups": {"g": {"column": "age", "bands": bands, "other": other}}})


def test_codes_of_a_category_that_look_like_numbers_are_codes() -> None:
    from tasks.fairness.groups import Bands
    from tasks.planning import groups_of

    raw = copy.deepcopy(GOOD)
    raw["data"]["features"]["ward"] = {"kind": "category", "values": ["1", "2", "3", "4"]}
    crossed = {"low": ["1", "3"], "high": ["2", "4"]}
    found = Config.model_validate(raw | {"fairness": {"groups": {"w": {"column": "ward", "bands": crossed}}}})
    assert groups_of(found)["w"] == ("ward", Bands(bands={"low": ("1", "3"), "high": ("2", "4")}, other="other"))
    twice = raw | {"fairness": {"groups": {"w": {"column": "ward", "bands": {"a": ["1", "2"], "b": ["2", "3"]}}}}}
    with pytest.raises(ValidationError, match=r"w\.bands puts `2` into two bands"):
        Config.model_validate(twice)
    assert "do not overlap" in faults({"groups": {"g": {"column": "age", "bands": crossed}}})
