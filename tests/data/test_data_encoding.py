import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data import encoding

FEATURES = {
    "age": {"kind": "number", "min": 0, "max": 100, "scale": "linear", "fill": 50},
    "visits": {"kind": "number", "min": 0, "max": 20, "scale": "log", "fill": 0},
    "sex": {"kind": "category", "values": ["female", "male"], "reference": "female"},
    "code": {"kind": "category", "values": ["1", "2", "True"], "reference": "2"},
    "diagnosis": {"kind": "icd9"},
}
SPEC = encoding.build(FEATURES, missing=["", "?"])
NAMES = encoding.feature_names(SPEC)


def encoded(**cells) -> dict[str, float]:
    """One row with the given cells, the others at their references."""
    row = {"age": "0", "visits": "0", "sex": "female", "code": "2", "diagnosis": "428"} | cells
    matrix = encoding.encode(pd.DataFrame({name: [cell] for name, cell in row.items()}), SPEC)
    return {name: value for name, value in zip(NAMES, matrix[0].tolist(), strict=True) if value}


def test_the_specification_is_plain_json_and_survives_it():
    assert json.loads(json.dumps(SPEC)) == SPEC


def test_a_row_at_the_references_is_all_zeros():
    assert encoded() == {}


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("50", 0.5),
        (" 50 ", 0.5),
        ("5e1", 0.5),
        ("-3", 0.0),
        ("1e30", 1.0),
        ("inf", 1.0),
        ("-inf", 0.0),
        (50, 0.5),
    ],
)
def test_a_number_is_clipped_and_scaled(cell, value):
    assert encoded(age=cell) == ({"age": value} if value else {})


@pytest.mark.parametrize("cell", ["NaN", "old", "", "?", None, float("nan"), "5,5", "1 000"])
def test_what_is_no_number_becomes_the_fill_and_the_indicator(cell):
    assert encoded(age=cell) == {"age": 0.5, "age:missing": 1.0}


def test_a_log_scale_is_log1p_over_the_range():
    assert encoded(visits="3")["visits"] == pytest.approx(math.log1p(3) / math.log1p(20), abs=1e-7)
    assert encoded(visits="20")["visits"] == 1.0


@pytest.mark.parametrize(
    ("cell", "column"),
    [
        ("1", "code=1"),
        (1, "code=1"),
        (1.0, "code=1"),
        (True, "code=True"),
        ("3", "code=__other__"),
        ("1.0", "code=__other__"),
        (None, "code=__missing__"),
        ("?", "code=__missing__"),
    ],
)
def test_a_category_is_compared_as_text(cell, column):
    assert encoded(code=cell) == {column: 1.0}


def test_equal_cells_of_different_kinds_are_different_categories():
    frame = pd.DataFrame(
        {
            "age": 1,
            "visits": 1,
            "sex": "male",
            "code": pd.Series([1, True, 1.0], dtype=object),
            "diagnosis": "1",
        }
    )
    at = [NAMES.index("code=1"), NAMES.index("code=True")]
    assert encoding.encode(frame, SPEC)[:, at].tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("code", "chapter"),
    [
        ("8", "infectious"), ("008.45", "infectious"), ("139", "infectious"), ("140", "neoplasms"),
        ("239.9", "neoplasms"), ("240", "endocrine"), ("249", "endocrine"), ("250", "diabetes"),
        ("250.83", "diabetes"), ("25083", "diabetes"), ("251", "endocrine"), ("279.9", "endocrine"),
        ("280", "blood"), ("319", "mental"), ("320", "nervous"), ("365.9", "sense_organs"),
        ("389", "sense_organs"),
        ("390", "circulatory"), ("428", "circulatory"), ("4280", "circulatory"), ("459.9", "circulatory"),
        ("486", "respiratory"), ("579", "digestive"), ("629", "genitourinary"), ("650", "pregnancy"),
        ("709", "skin"), ("739", "musculoskeletal"), ("759", "congenital"), ("779", "perinatal"),
        ("799.9", "symptoms"), ("999", "injury"), ("E849.0", "external"), ("e888", "external"),
        ("V45", "supplementary"), ("V4581", "supplementary"), (" v57.89 ", "supplementary"),
        ("0", "__other__"), ("000", "__other__"), ("1000.5", "__other__"), ("V99", "__other__"),
        ("-5", "__other__"),
        ("I50.9", "__other__"), ("", "__other__"), ("V", "__other__"), ("428.x", "__other__"),
        ("123456", "__other__"),
        ("٤٢٨", "__other__"),
    ],
)  # fmt: skip
def test_a_diagnosis_falls_into_the_chapter_of_the_public_table(code, chapter):
    assert encoding.icd9_chapter(code) == chapter


def test_the_chapters_cover_every_whole_code_once():
    for number in range(1, 1000):
        found = [name for name, low, high in encoding.ICD9_CHAPTERS if low <= number <= high]
        assert len(found) == 1
        assert encoding.icd9_chapter(str(number)) in encoding.ICD9_VALUES


def test_a_missing_diagnosis_has_a_column_of_its_own():
    assert encoded(diagnosis=None) == {"diagnosis=__missing__": 1.0}
    assert encoded(diagnosis="250.1") == {"diagnosis=diabetes": 1.0}


anything = st.one_of(
    st.none(),
    st.text(max_size=6),
    st.floats(),
    st.integers(),
    st.booleans(),
    st.sampled_from(["1e999", "nan", "428", "male", "2"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[anything] * 5), min_size=1, max_size=5))
def test_no_cell_makes_the_encoding_fail_and_every_row_keeps_the_public_bounds(rows):
    frame = pd.DataFrame(rows, columns=list(FEATURES), dtype=object)
    matrix = encoding.encode(frame, SPEC)
    assert matrix.shape == (len(rows), len(NAMES))
    assert matrix.dtype == np.float32
    assert np.isfinite(matrix).all()
    assert matrix.min() >= 0
    assert matrix.max() <= 1
    squares = matrix[:, encoding.numeric_columns(SPEC)] ** 2
    norms = np.linalg.norm(np.concatenate([matrix, squares], axis=1).astype(np.float64), axis=1)
    assert norms.max() <= encoding.norm_bound(SPEC) * (1 + 1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[anything] * 5), min_size=2, max_size=6))
def test_a_row_is_encoded_the_same_alone_and_among_others(rows):
    frame = pd.DataFrame(rows, columns=list(FEATURES), dtype=object)
    one_by_one = np.concatenate([encoding.encode(frame.iloc[[at]], SPEC) for at in range(len(frame))])
    assert np.array_equal(one_by_one, encoding.encode(frame, SPEC))


@pytest.mark.parametrize(("fill", "expected"), [(0, 2.0), (100, 3.0), (50, 2.0)])
def test_the_norm_bound_is_reached(fill, expected):
    spec = encoding.build({"x": {"kind": "number", "min": 0, "max": 100, "scale": "linear", "fill": fill}})
    assert encoding.norm_bound(spec) == pytest.approx(math.sqrt(expected))
    matrix = encoding.encode(pd.DataFrame({"x": ["100", None]}), spec).astype(np.float64)
    norms = np.linalg.norm(np.concatenate([matrix, matrix[:, :1] ** 2], axis=1), axis=1)
    assert norms.max() == pytest.approx(encoding.norm_bound(spec))


def test_moments_centre_and_scale():
    mean, std = np.linspace(0, 1, len(NAMES)), np.linspace(0.5, 2, len(NAMES))
    frame = pd.DataFrame({"age": ["30"], "visits": ["2"], "sex": ["male"], "code": ["9"], "diagnosis": ["V1"]})
    centred = encoding.encode(frame, encoding.with_moments(SPEC, mean=mean, std=std))
    assert np.allclose(centred, (encoding.encode(frame, SPEC) - mean) / std, atol=1e-6)
    assert SPEC["mean"] is None


@pytest.mark.parametrize(
    ("mean", "std"),
    [([0.0], [1.0]), ([0.0] * len(NAMES), [0.0] * len(NAMES)), ([math.nan] * len(NAMES), [1.0] * len(NAMES))],
)
def test_unusable_moments_are_refused(mean, std):
    with pytest.raises(ValueError):
        encoding.with_moments(SPEC, mean=mean, std=std)


def test_numeric_columns_are_the_numbers_and_not_their_indicators():
    assert [NAMES[at] for at in encoding.numeric_columns(SPEC)] == ["age", "visits"]


def test_what_is_outside_is_counted():
    frame = pd.DataFrame(
        {
            "age": ["101", "-1", None, "5"],
            "visits": ["x", "1", "2", "3"],
            "sex": ["x", None, "male", "?"],
            "code": "2",
            "diagnosis": ["E1", "x", None, "5"],
        }
    )
    counts = encoding.outside_counts(frame, SPEC)
    assert counts["age"] == {"outside": 2, "missing": 1}
    assert counts["visits"] == {"outside": 0, "missing": 1}
    assert counts["sex"] == {"outside": 1, "missing": 2}
    assert counts["diagnosis"] == {"outside": 1, "missing": 1}


def test_a_missing_token_that_is_a_number_counts_in_typed_columns_too():
    spec = encoding.build({"age": FEATURES["age"]}, missing=["-999"])
    for cells in ([-999.0, 5.0], [-999, 5], ["-999", "5"]):
        assert encoding.encode(pd.DataFrame({"age": cells}), spec)[:, 1].tolist() == [1.0, 0.0]


def test_absent_columns_are_named():
    with pytest.raises(ValueError, match="visits, diagnosis"):
        encoding.encode(pd.DataFrame({"age": ["1"], "sex": ["male"], "code": ["1"]}), SPEC)


def test_a_specification_of_another_format_is_refused():
    with pytest.raises(ValueError, match="format 1, not 2"):
        encoding.encode(pd.DataFrame(), {**SPEC, "format": 2})


@pytest.mark.parametrize(
    "feature",
    [
        {"kind": "number", "min": 1, "max": 1},
        {"kind": "number", "min": 0, "max": math.inf},
        {"kind": "date"},
        {"kind": "number", "min": 0, "max": 1, "scale": "sqrt"},
    ],
    ids=repr,
)
def test_an_unusable_feature_is_refused(feature):
    with pytest.raises(ValueError, match="feature x"):
        encoding.build({"x": feature})


def test_the_file_stands_alone(tmp_path):
    copied = tmp_path / "shipped_encoding.py"
    copied.write_text(Path(encoding.__file__).read_text())
    assert "tasks" not in copied.read_text().split('"""')[2].split("FORMAT")[0]
    loader = importlib.util.spec_from_file_location("shipped_encoding", copied)
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    frame = pd.DataFrame({"age": ["7"], "visits": ["1"], "sex": ["male"], "code": ["1"], "diagnosis": ["8"]})
    assert np.array_equal(module.encode(frame, SPEC), encoding.encode(frame, SPEC))
