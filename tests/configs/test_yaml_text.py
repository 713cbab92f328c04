"""YAML as text: its limits are exact, its faults name the line, and it is YAML 1.2."""

import pytest

from configs.errors import ConfigurationError
from configs.yaml_text import read_text


def read(text: str) -> dict[str, object]:
    raw, _, faults = read_text(source="m.yaml", text=text, environment={})
    assert faults == []
    return raw


def test_a_file_holds_at_most_a_hundred_thousand_values_however_often_an_alias_repeats_them() -> None:
    # 1 mapping, 99 in l0 (a list of 98), 1 list l1 with 1009 times the 99 of l0 and 8 more: 100 000.
    text = f"l0: &l0 [{', '.join('x' * 98)}]\nl1: [{'*l0, ' * 1009}" + "{}]"
    assert len(read(text.format("1, 2, 3, 4, 5, 6, 7, 8"))) == 2
    with pytest.raises(ConfigurationError, match="more than 100000 values"):
        read(text.format("1, 2, 3, 4, 5, 6, 7, 8, 9"))


def test_a_file_nests_at_most_fifty_deep() -> None:
    assert read("a: " + "[" * 49 + "x" + "]" * 49)
    with pytest.raises(ConfigurationError, match="nests deeper than 50"):
        read("a: " + "[" * 50 + "x" + "]" * 50)


def test_a_fault_of_the_syntax_is_told_with_the_line_where_it_shows() -> None:
    with pytest.raises(ConfigurationError, match="line 3: is not valid YAML"):
        read("a: [1,\nb: 2\nc: }")


def test_it_is_yaml_1_2_where_a_question_mark_may_stand_in_a_word() -> None:
    assert read("values: [unknown?, a?b, :x]") == {"values": ["unknown?", "a?b", ":x"]}
