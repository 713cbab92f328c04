import re
from contextlib import suppress

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from configs.errors import ConfigurationError, DataError
from configs.load import load
from tasks.data import dictionary

HEADER = ["stay", "who", "age", "sex", "ward", "diagnosis", "no", "back"]
ROWS = """column,kind,min,max,values,meaning
who,person,,,,patient number
age,number,18,104,,age in years
sex,category,,,f|m,
ward,category,,,?,the ward
diagnosis,icd9,,,,main diagnosis: coded
no,number,0,,,number # of visits
back,label,,,yes|no,readmitted
"""
ANSWERS = {
    'model: "?"': "model: back-again",
    'positive: "?", negative: "?"': 'positive: ["yes"], negative: ["no"]',
    'ward: {kind: category, values: "?"}': "ward: {kind: category, values: [a, b]}",
    'max: "?"': "max: 30",
    'population: "?"': "population: hospital",
    'epsilon: "?", delta: "?", planned_runs: "?"': "epsilon: 8, delta: 1e-6, planned_runs: 3",
    'run: {epsilon: "?", delta: "?"}': "run: {epsilon: 3, delta: 1e-6}",
    'units: "?"': "units: 50000",
    'expected_batch: "?"': "expected_batch: 4000",
    'prior_rate: "?", threshold: "?"': "prior_rate: 0.2, threshold: 0.3",
    'min_auc: "?"': "min_auc: 0.6",
}


def rows_of(tmp_path, text: str = ROWS):
    path = tmp_path / "dictionary.csv"
    path.write_text(text)
    return dictionary.read_dictionary(path)


def draft(tmp_path, text: str = ROWS, **options) -> str:
    return dictionary.draft_configuration(
        header=HEADER, dictionary_rows=rows_of(tmp_path, text), data_path="records.csv", **options
    )


def loaded(tmp_path, text: str):
    path = tmp_path / "draft.yaml"
    path.write_text(text)
    return load(path).config


def test_a_draft_is_refused_until_every_question_is_answered(tmp_path):
    text = draft(tmp_path)
    for question in ANSWERS:
        unanswered = text
        for other, answer in ANSWERS.items():
            assert text.count(other) == 1, other
            unanswered = unanswered if other == question else unanswered.replace(other, answer)
        with pytest.raises(ConfigurationError):
            loaded(tmp_path, unanswered)


def test_an_answered_draft_is_a_configuration(tmp_path):
    text = draft(tmp_path)
    for question, answer in ANSWERS.items():
        text = text.replace(question, answer)
    config = loaded(tmp_path, text)
    assert list(config.data.features) == ["age", "sex", "ward", "diagnosis", "no"]
    assert (config.data.features["age"].min, config.data.features["age"].max) == (18, 104)
    assert config.data.features["sex"].values == ("f", "m")
    assert (config.data.person, config.privacy.unit) == ("who", "person")
    assert "number # of visits" in text
    assert "# stay: left out, not in the dictionary" in text


def test_a_draft_from_the_header_alone_asks_for_every_bound(tmp_path):
    text = dictionary.draft_configuration(header=HEADER, dictionary_rows=None, data_path="records.csv")
    for name in HEADER:
        key = '"no"' if name == "no" else name
        assert re.search(rf'^    {key}: {{kind: number, min: "\?", max: "\?"}}$', text, re.M)
    assert "not from the records" in text
    with pytest.raises(ConfigurationError):
        loaded(tmp_path, text)


def test_without_a_person_only_rows_are_protected(tmp_path):
    text = draft(tmp_path, ROWS.replace("who,person", "who,ignore"))
    for question, answer in ANSWERS.items():
        text = text.replace(question, answer)
    config = loaded(tmp_path, text)
    assert (config.data.person, config.privacy.unit) == (None, "row")
    assert "# who: left out, ignored" in text


@pytest.mark.parametrize("name", ["a: b", "no", "größe", '"q"', "#x", "- a", "{x}", "null", "1", "a\nb", "a'b", "{0}"])
def test_any_column_name_survives_the_yaml(tmp_path, name):
    text = dictionary.draft_configuration(
        header=[name, "back"],
        dictionary_rows=[
            {
                "column": name,
                "kind": "number",
                "min": "0",
                "max": "1",
                "values": "",
                "meaning": "a\n- {b}: #c",
            },
            {"column": "back", "kind": "label", "min": "", "max": "", "values": "", "meaning": ""},
        ],
        data_path="records.csv",
    )
    for question, answer in ANSWERS.items():
        text = text.replace(question, answer)
    assert list(loaded(tmp_path, text).data.features) == [name]


def test_every_fault_of_a_dictionary_is_told_at_once(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        draft(
            tmp_path,
            "column,kind,min,max\nagee,number,1,2\nage,numbr,,\nsex,number,5,1\nward,number,one,inf\nwho,person,,\n"
            "who,person,,\nback,ignore,,\n",
            dictionary_name="dictionary.csv",
        )
    said = str(caught.value)
    assert said.startswith("dictionary.csv: 8 faults")
    for part in (
        "line 2, agee: the data has no such column (column 3 is named much like it)",
        "line 3, age: kind = 'numbr' is none of",
        "line 4, sex: min = 5 must be below max = 1",
        "line 5, ward: min = 'one' is no finite number",
        "line 5, ward: max = 'inf' is no finite number",
        "line 7, who: described twice",
        "0 columns have kind label",
        "2 columns have kind person",
    ):
        assert part in said


def test_a_name_in_the_data_is_told_by_its_place_and_not_quoted():
    row = dict.fromkeys(dictionary.FIELDS, "") | {"column": "age", "kind": "number"}
    with pytest.raises(ConfigurationError) as caught:
        dictionary.draft_configuration(header=["", "x", "x", "agee"], dictionary_rows=[row], data_path="x.csv")
    assert "line 2, age: the data has no such column (column 4 is named much like it)" in str(caught.value)
    assert "agee" not in str(caught.value)


def test_control_characters_of_a_dictionary_reach_neither_the_draft_nor_an_error(tmp_path):
    odd = "\x1b[2J\x7f\x9b"
    text = draft(tmp_path, ROWS.replace("age in years", f"age{odd}"))
    assert all(line.isprintable() for line in text.splitlines())
    assert r"age\x1b[2J\x7f\x9b" in text
    with pytest.raises(ConfigurationError) as caught:
        draft(tmp_path, ROWS.replace("ward,category", f"wa{odd}rd,ca{odd}tegory"))
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize("text", ["", "name,kind\na,number\n", "a;b\n1;2\n"])
def test_a_dictionary_without_its_columns_is_refused(tmp_path, text):
    with pytest.raises(ConfigurationError, match="lacks column"):
        rows_of(tmp_path, text)


def test_a_dictionary_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        dictionary.read_dictionary(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"column,kind\n\xfc,number\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        dictionary.read_dictionary(tmp_path / "latin.csv")


def test_a_header_is_read_from_the_first_line_alone_and_its_delimiter_recognised(tmp_path):
    path = tmp_path / "records.csv"
    path.write_bytes(b"a;b;c\n\xff\xff,,,,\n")
    assert dictionary.header_of(path) == (["a", "b", "c"], ";")
    pd.DataFrame({"x": ["1"], "y": ["2"]}).to_parquet(tmp_path / "records.parquet")
    assert dictionary.header_of(tmp_path / "records.parquet") == (["x", "y"], ",")
    (tmp_path / "broken.parquet").write_text("x")
    with pytest.raises(DataError, match="cannot be read"):
        dictionary.header_of(tmp_path / "broken.parquet")


@pytest.mark.parametrize("value", ["41", "-4,5", "1e3", "0.5", "2026-12-01", "1.2.1950", "2026-12-01T03:00:00", " 7 "])
def test_a_first_line_with_a_number_or_a_date_is_a_record_and_is_not_shown(tmp_path, value):
    path = tmp_path / "records.csv"
    path.write_text(f"Jane;{value};yes\nJoe;42;no\n")
    with pytest.raises(DataError, match=r"first line holds a number or a date \(column 2\)") as caught:
        dictionary.header_of(path)
    told = str(caught.value).replace(str(path), "")
    assert "Jane" not in told
    assert value.strip() not in told
    assert dictionary.header_of(path, known=["Jane", value, "yes"]) == (["Jane", value, "yes"], ";")


@pytest.mark.parametrize("name", ["age", "x1", "1st_visit", "2024-Q1", "icd-10", "e5", "-", "", "nan", "3.a"])
def test_a_name_with_digits_is_a_name(tmp_path, name):
    path = tmp_path / "records.csv"
    path.write_text(f"patient;{name};back\n")
    assert dictionary.header_of(path) == (["patient", name, "back"], ";")


def test_columns_without_a_name_and_repeated_ones_are_drafted_once_or_not_at_all():
    text = dictionary.draft_configuration(header=["a", "", "a", ""], dictionary_rows=None, data_path="x.csv")
    assert text.count("{kind: number") == 1


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_dictionary_is_read_or_refused(tmp_path, content):
    path = tmp_path / "dictionary.csv"
    path.write_bytes(b"column,kind,min,max,values\n" + content)
    text = ""
    with suppress(ConfigurationError):
        text = dictionary.draft_configuration(
            header=HEADER, dictionary_rows=dictionary.read_dictionary(path), data_path="x.csv"
        )
    assert not text or {"model", "data", "privacy"} <= set(YAML(typ="safe").load(text)), "a draft is YAML"


def test_the_source_is_written_as_it_must_be_read(tmp_path):
    assert 'source: {kind: csv, path: "a b.csv", delimiter: ";"}' in dictionary.draft_configuration(
        header=["a"], dictionary_rows=None, data_path="a b.csv", delimiter=";"
    )
    assert 'source: {kind: parquet, path: "a.parquet"}' in dictionary.draft_configuration(
        header=["a"], dictionary_rows=None, data_path="a.parquet"
    )
    assert 'member: "b.csv"' in dictionary.draft_configuration(
        header=["a"], dictionary_rows=None, data_path="a.zip", member="b.csv"
    )
