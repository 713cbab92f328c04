"""Names as parts of metric keys: what MLflow accepts, and never one part for two names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.fairness.slugs import LONGEST, slugs

ACCEPTED = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("65+", "65_"),
        ("O'Neil", "O_Neil"),
        ("[70-80)", "_70-80_"),
        ("<30", "_30"),
        ("Zürich", "Z_rich"),
        ("日本", "__"),
        (".", "_"),
        ("..", "_."),
        (".hidden", "_hidden"),
        ("a/b", "a_b"),
        ("a b", "a_b"),
        ("a:b", "a_b"),
        ("", "_"),
        ("30-79", "30-79"),
        ("f × m", "f___m"),
    ],
)
def test_a_name_alone_keeps_what_may_stand_in_a_key(name, part):
    assert slugs([name]) == {name: part}


def test_names_that_would_collide_are_told_apart_whatever_their_order():
    one = slugs(["<30", ">30", "plain"])
    assert one == slugs(["plain", ">30", "<30"])
    assert one["plain"] == "plain"
    assert all(re.fullmatch(r"_30-[0-9a-f]{8}", one[name]) for name in ("<30", ">30"))
    assert one["<30"] != one[">30"]


def test_names_that_differ_in_case_only_are_told_apart():
    found = slugs(["Other", "other"])
    assert len({part.casefold() for part in found.values()}) == 2


def test_a_name_of_three_hundred_characters_is_cut_and_marked():
    long = ["x" * 300, "x" * 299 + "y"]
    found = slugs(long)
    assert all(len(part) == LONGEST for part in found.values())
    assert found[long[0]] != found[long[1]]
    assert len("fairness/" + 2 * (LONGEST * "x" + "/") + "privacy_loss_upper") <= 250


def test_a_name_that_imitates_a_marked_one_gives_way():
    marked = slugs(["<30", ">30"])["<30"]
    found = slugs(["<30", ">30", marked])
    assert len(set(found.values())) == 3


@given(st.sets(st.text(max_size=12) | st.sampled_from(["<30", ">30", "..", ".", "a/b", "a b"]), max_size=12))
def test_parts_are_accepted_and_distinct(names):
    found = slugs(names)
    assert set(found) == names
    assert len({part.casefold() for part in found.values()}) == len(names)
    assert all(ACCEPTED.fullmatch(part) and len(part) <= LONGEST for part in found.values())
