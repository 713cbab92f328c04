"""From text to groups: missing is never `other`, and no record's value becomes a group's name."""

import numpy as np
import pandas as pd
import pytest

from configs.errors import ConfigurationError, InternalError
from tasks.fairness.groups import (
    OTHER,
    UNKNOWN,
    Bands,
    Values,
    assign,
    declared,
    intersect,
    intersect_names,
    is_known,
    shown,
)


def text(*cells):
    return pd.Series(list(cells), dtype=object)


def test_public_values_name_their_groups_and_the_rest_is_other():
    found = assign(column=text("f", "m", "x", "F"), spec=Values(values=("f", "m")))
    assert found.tolist() == ["f", "m", OTHER, OTHER]


@pytest.mark.parametrize("dtype", [object, "string", "str"])
def test_missing_is_unknown_and_never_other(dtype):
    column = pd.Series(["f", None, "?", "x"], dtype=dtype)
    for spec in (Values(values=("f",)), Bands(bands={"f": ("f",)}, other="rest")):
        found = assign(column=column, spec=spec, missing=("?", ""))
        assert found.tolist()[1:3] == [UNKNOWN, UNKNOWN]
        assert found[3] not in (UNKNOWN, "f")


def test_a_declared_missing_text_is_still_missing():
    assert assign(column=text("?"), spec=Values(values=("?", "f")), missing=("?",)).tolist() == [UNKNOWN]


def test_bands_of_text_values_collect_them():
    spec = Bands(bands={"<30": ("[0-10)", "[10-20)"), "80+": ("[80-90)",)}, other="30-79")
    column = text("[0-10)", "[10-20)", "[80-90)", "[40-50)", "[90-100)")
    assert assign(column=column, spec=spec).tolist() == ["<30", "<30", "80+", "30-79", "30-79"]


def test_bands_of_numbers_hold_their_low_end_and_not_their_high_one():
    spec = Bands(bands={"young": (0, 30), "old": (80, 200)}, other="between")
    column = text("0", "29.999", "30", "79.9", "80", "199", "200", "-1", "3e1", " 5 ")
    expected = ["young", "young", "between", "between", "old", "old", "between", "between", "between", "young"]
    assert assign(column=column, spec=spec).tolist() == expected


@pytest.mark.parametrize("cell", ["", "abc", "nan", "inf", "-inf", "1_0", "0x10", None, "True", "?"])
def test_what_is_no_finite_number_is_unknown_in_bands_of_numbers(cell):
    spec = Bands(bands={"young": (0, 30)}, other="rest")
    assert assign(column=text(cell, "5"), spec=spec, missing=("?",)).tolist() == [UNKNOWN, "young"]


def test_a_number_that_stands_for_missing_is_in_no_band():
    spec = Bands(bands={"old": (80, 1000)}, other="rest")
    assert assign(column=text("999", "85"), spec=spec, missing=("999",)).tolist() == [UNKNOWN, "old"]


def test_two_text_values_in_a_band_are_no_pair_of_numbers():
    spec = Bands(bands={"low": ("1", "3")}, other="rest")
    assert assign(column=text("1", "2", "3"), spec=spec).tolist() == ["low", "rest", "low"]


def test_kinds_of_bands_cannot_be_mixed():
    with pytest.raises(ConfigurationError):
        Bands(bands={"a": ("x",), "b": (0, 3)})


@pytest.mark.parametrize("name", [OTHER, "a × b", "×"])
def test_names_that_would_make_two_groups_one_are_refused(name):
    with pytest.raises(ConfigurationError):
        Values(values=("a", name))
    with pytest.raises(ConfigurationError):
        Bands(bands={name: ("a",)}, other="rest")
    if name != OTHER:
        with pytest.raises(ConfigurationError):
            Bands(bands={"a": ("a",)}, other=name)


def test_declared_groups_are_the_configurations():
    assert declared(Values(values=("f", "m"))) == ("f", "m")
    assert declared(Bands(bands={"a": ("x",), "b": ("y",)}, other="rest")) == ("a", "b", "rest")
    assert declared(Bands(bands={"a": ("x",)})) == ("a",)
    assert declared(Bands(bands={"a": ("x",), "b": ("y",)}, other="a")) == ("a", "b")


def test_an_intersection_names_both_parts_and_keeps_unknown_visible():
    one, two = np.array(["f", UNKNOWN], dtype=object), np.array([OTHER, "old"], dtype=object)
    assert intersect(one, two).tolist() == ["f × __other__", "unknown × old"]
    assert intersect(one, two, one).tolist() == ["f × __other__ × f", "unknown × old × unknown"]
    assert intersect_names(("f", "m"), ("old", "young")) == ("f × old", "f × young", "m × old", "m × young")


def test_an_intersection_of_one_or_of_unequal_lengths_is_refused():
    one = np.array(["f"], dtype=object)
    with pytest.raises(InternalError):
        intersect(one)
    with pytest.raises(InternalError):
        intersect(one, np.array(["a", "b"], dtype=object))


def test_only_names_of_the_configuration_are_known():
    names = intersect_names(("f", "m"), ("old", "young"))
    for name in ("f × old", "unknown × old", "m × __other__", "unknown × unknown"):
        assert is_known(name, names)
    for name in ("f", "old × f", "x × old", "f × old × old", "Jane × old"):
        assert not is_known(name, names)
    assert is_known(UNKNOWN, ("f",))
    assert is_known(OTHER, ("f",))
    assert not is_known("Jane Doe", ("f",))


def test_other_is_shown_as_a_word_that_no_group_has():
    assert shown(OTHER, ("white", "black")) == "other"
    assert shown(OTHER, ("white", "Other")) == "other, not listed"
    assert shown("white × __other__", ("white × other",)) == "white × other, not listed"
    assert shown("white", ("white",)) == "white"
