import json
import logging
import re
import tempfile
import warnings

import pandas as pd
import pytest

from configs.errors import InternalError
from tasks.data import suite, synthetic, validation

ADDRESS = "jane.doe@example.org"
FEATURES = {
    "age": {"kind": "number", "min": 0, "max": 120, "scale": "linear", "fill": 0},
    "sex": {"kind": "category", "values": ["f", "m"], "reference": "f"},
    "diagnosis": {"kind": "icd9"},
}
LABEL = {"column": "back", "positive": ["yes"], "negative": ["no"]}
CHECKS = {
    "max_missing": {"default": 0.05},
    "max_outside": 0.05,
    "unique": ["stay"],
    "min_rows": 100,
    "max_rows_of_one_person": 50,
    "label_rate": {"min": 0.1, "max": 0.9},
    "groups": {"columns": ["sex"], "min_rows": 50},
}


@pytest.fixture
def frame() -> pd.DataFrame:
    return synthetic.rows(features=FEATURES, label=LABEL, person="who", max_rows=3, n=1000, seed=1, unique=["stay"])


def validate(frame, *, person="who", **checks):
    return validation.validate(frame, features=FEATURES, label=LABEL, person=person, checks=CHECKS | checks)


def failed(frame, **checks) -> set[tuple[str, str | None]]:
    return {(check.name, check.column) for check in validate(frame, **checks).checks if not check.success}


def test_rows_made_from_the_schema_pass(frame):
    result = validate(frame)
    assert result.failures() == []
    assert result.success


def part(frame: pd.DataFrame, column: str, cell: str | None, share: float) -> pd.DataFrame:
    changed = frame.copy()
    changed.loc[: round(share * len(frame)) - 1, column] = cell
    return changed


# what is done to the records, and the one expectation that it breaks
FAULTS = {
    "missing numbers": (lambda f: part(f, "age", None, 0.1), ("missing", "age")),
    "missing categories": (lambda f: part(f, "sex", None, 0.1), ("missing", "sex")),
    "text for a number": (lambda f: part(f, "age", "old", 0.1), ("numbers", "age")),
    "a number out of range": (lambda f: part(f, "age", "1e30", 0.1), ("range", "age")),
    "an infinite number": (lambda f: part(f, "age", "-inf", 0.1), ("range", "age")),
    "a category never seen": (lambda f: part(f, "sex", "x", 0.1), ("code book", "sex")),
    "no diagnosis code": (lambda f: part(f, "diagnosis", "I50.9", 0.1), ("ICD-9 codes", "diagnosis")),
    "one label in neither list": (lambda f: part(f, "back", "maybe", 0.001), ("label values", "back")),
    "one missing label": (lambda f: part(f, "back", None, 0.001), ("missing", "back")),
    "one row without a person": (lambda f: part(f, "who", None, 0.001), ("missing", "who")),
    "an id twice": (lambda f: part(f, "stay", f.stay[999], 0.001), ("unique", "stay")),
    "a person with many rows": (lambda f: part(f, "who", "one", 0.1), ("rows of a person", "who")),
}


@pytest.mark.parametrize(("change", "expected"), FAULTS.values(), ids=FAULTS)
def test_each_fault_breaks_the_expectation_about_it(frame, change, expected):
    assert failed(change(frame)) == {expected}


def test_a_small_share_outside_is_allowed_and_not_told(frame):
    result = validate(part(part(frame, "sex", "x", 0.01), "age", "1e30", 0.01))
    assert result.success
    assert {check.count_outside for check in result.checks if check.column == "sex"} >= {"fewer than 11"}


@pytest.mark.parametrize("label", ["yes", "no"])
@pytest.mark.parametrize("rate", [{"min": 0.1, "max": 0.9}, {"min": 0.0, "max": 1.0}, {}])
def test_labels_that_are_all_equal_fail_whatever_the_rate(frame, label, rate):
    assert failed(frame.assign(back=label), label_rate=rate) == {("label rate", "back")}


def test_too_few_rows_and_too_small_groups_fail(frame):
    assert failed(frame, min_rows=1001) == {("rows", None)}
    assert failed(frame[:1]) >= {("rows", None), ("label rate", "back"), ("group size", "sex")}
    result = validate(frame[frame.sex != "m"])
    assert [check.words for check in result.checks if not check.success] == ["the group m has at least 50 rows"]


def test_a_limit_of_one_column_overrides_the_default(frame):
    assert failed(part(frame, "age", None, 0.1), max_missing={"default": 0.05, "age": 0.2}) == set()
    assert failed(frame, max_missing={"default": 0.5, "sex": 0.0}) == {("missing", "sex")}
    assert failed(part(frame, "stay", None, 0.1), max_missing={"stay": 0.05}) == {("missing", "stay")}


def test_a_share_at_the_limit_passes_and_one_above_it_fails(frame):
    whole = frame.assign(sex=["f", "m"] * 500)
    assert failed(part(whole, "sex", "x", 0.05)) == set()
    assert failed(part(whole, "sex", "x", 0.051)) == {("code book", "sex")}


@pytest.mark.parametrize(
    ("rows", "said"),
    [(0, "fewer than 11"), (10, "fewer than 11"), (11, "about 10"), (37, "about 40"), (123, "about 120")],
)
def test_counts_below_11_are_not_told_and_others_are_rounded(frame, rows, said):
    whole = frame.assign(sex=["f", "m"] * 500)
    check = next(c for c in validate(part(whole, "sex", "x", rows / 1000)).checks if c.name == "code book")
    assert check.count_outside == said
    assert check.share_outside == (None if rows < 11 else round(rows / 1000, 2))


def test_records_without_a_person_column_are_validated_too(frame):
    assert validate(frame.drop(columns="who"), person=None).success


def test_a_column_named_like_a_derived_one_hides_nothing(frame):
    assert failed(part(frame, "age", "1e30", 0.1).assign(**{"age:value": "5"})) == {("range", "age")}


@pytest.mark.parametrize("column", ["sex", "age", "diagnosis", "back", "who", "stay"])
@pytest.mark.parametrize("share", [0.001, 0.5])
def test_an_address_planted_in_a_column_stands_in_no_output(
    frame, column, share, caplog, capsys, tmp_path, monkeypatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = validate(part(frame, column, ADDRESS, share))
    streams = capsys.readouterr()
    everything = [
        validation.to_html(result),
        validation.to_json(result),
        repr(result),
        *result.failures(),
        caplog.text,
        streams.out,
        streams.err,
        *(str(warning.message) for warning in warned),
        *(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()),
    ]
    assert result.success == (share == 0.001 and column != "back")
    assert not any("jane.doe" in text or "example.org" in text for text in everything)
    assert streams.err == ""
    assert caplog.text == ""


def test_a_failure_inside_great_expectations_is_sealed(frame, monkeypatch):
    def fail(*_args, **_kwargs):
        raise RuntimeError(ADDRESS)

    monkeypatch.setattr(validation, "_run", fail)
    with pytest.raises(InternalError) as caught:
        validate(frame)
    assert ADDRESS not in str(caught.value)
    assert caught.value.__context__ is None


def test_an_expectation_that_cannot_be_computed_fails_in_our_words(frame):
    expected = suite.expectations(features=FEATURES, label=LABEL, person="who", checks=CHECKS)
    look = suite.derived(frame, features=FEATURES, label=LABEL, person="who", checks=CHECKS)
    with validation._silence():
        found = validation._run(look.drop(columns="sex"), name="records", expected=expected)
    outcome = next(validation._outcome(c, found[at]) for at, c in enumerate(expected) if c.name == "code book")
    assert not outcome.success
    assert (outcome.share_outside, outcome.count_outside) == (None, None)


def test_the_suite_is_a_great_expectations_suite_with_our_words(frame):
    expected = suite.expectations(features=FEATURES, label=LABEL, person="who", checks=CHECKS)
    built = suite.build("records", expected)
    assert type(built).__name__ == "ExpectationSuite"
    assert [expectation.description for expectation in built.expectations] == [check.words for check in expected]


def test_the_page_is_whole_without_network_or_script_and_escapes_what_it_shows(frame):
    result = validation.validate(
        frame.rename(columns={"sex": "<b>&sex"}),
        features={"<b>&sex": FEATURES["sex"]},
        label=LABEL,
        person="who",
        checks={"max_missing": {"default": 0.0}},
    )
    page = validation.to_html(result, title="<script>")
    assert "<b>&sex" not in page
    assert "&lt;b&gt;&amp;sex" in page
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|https?:|\son\w+=", page)
    assert "prefers-color-scheme: dark" in page
    assert page.count("<tr") == len(result.checks) + 1


def test_long_names_break_behind_underscores_in_the_page_and_a_share_below_a_half_per_cent_is_told_so():
    many = synthetic.rows(
        features={"a_long_<i>_name": FEATURES["sex"]}, label=LABEL, person=None, max_rows=1, n=4000, seed=2
    )
    result = validation.validate(
        part(many, "a_long_<i>_name", "x", 0.004),
        features={"a_long_<i>_name": FEATURES["sex"]},
        label=LABEL,
        person=None,
        checks={"max_outside": 0.0},
    )
    page = validation.to_html(result, title="a_model")
    name = "a_<wbr>long_<wbr>&lt;i&gt;_<wbr>name"
    assert f">{name}</th>" in page
    assert f"<li>{name}: expected" in page
    assert "<h1>Validation of a_<wbr>model</h1>" in page
    assert "<i>" not in page
    told = [check for check in result.checks if check.name == "code book"]
    assert "under 0.5 %" in told[0].sentence()
    assert '<td class="number">under 0.5 %</td>' in page
    assert "about 0 %" not in page + "".join(result.failures())


def test_the_json_tells_every_expectation(frame):
    body = json.loads(validation.to_json(validate(part(frame, "sex", "x", 0.5))))
    assert body["success"] is False
    failing = [check for check in body["checks"] if not check["success"]]
    assert failing == [
        {
            "name": "code book",
            "column": "sex",
            "success": False,
            "words": "at most 5 % of the values are none of f, m (they count as other)",
            "share_outside": pytest.approx(0.51, abs=0.02),
            "count_outside": "about 500",
        }
    ]
