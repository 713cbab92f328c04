"""How many groups a file may make: all are judged at once, and their evidence is one entry of the ledger."""

from typing import Any

import pytest

from configs.evidence_schema import LONGEST_NAME, MOST_GROUPS
from tests.configs.test_evidence import config, faults


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


@pytest.mark.parametrize(("length", "right"), [(LONGEST_NAME - 3, True), (LONGEST_NAME - 2, False)])
def test_a_name_is_as_long_as_a_card_can_show(length: int, right: bool) -> None:
    fairness = {"groups": {"a": {"column": "age", "values": values(2, length)}}}
    if right:
        assert config(fairness).fairness is not None
    else:
        assert f"whose name has {LONGEST_NAME + 1} characters, at most {LONGEST_NAME}" in faults(fairness)
