"""Products of two features' columns: a linear network sees how two inputs act together."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data import encoding

FEATURES = {
    "stay": {"kind": "number", "min": 0, "max": 10, "fill": 4, "knots": [5], "crossed_with": ["ward", "visits"]},
    "visits": {"kind": "number", "min": 0, "max": 4, "fill": 0},
    "ward": {"kind": "category", "values": ["a", "b", "c"], "crossed_with": ["diagnosis"]},
    "diagnosis": {"kind": "icd9"},
}
SPEC = encoding.build(FEATURES)
NAMES = encoding.feature_names(SPEC)
PLAIN = encoding.build({name: {**feature, "crossed_with": []} for name, feature in FEATURES.items()})
CELLS = {"stay": "5", "visits": "2", "ward": "b", "diagnosis": "486"}


def crossed(**cells) -> dict[str, float]:
    row = encoding.encode(pd.DataFrame({name: [cell] for name, cell in (CELLS | cells).items()}), SPEC)[0]
    return {name: value for name, value in zip(NAMES, row.tolist(), strict=True) if "*" in name and value}


def test_a_cross_is_the_product_of_two_columns():
    assert crossed() == {"stay*ward=b": 0.5, "stay*visits": 0.25, "ward=b*diagnosis=respiratory": 1.0}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"ward": "a"}, {"stay*visits": 0.25}),
        ({"ward": "z"}, {"stay*visits": 0.25}),
        ({"ward": None}, {"stay*visits": 0.25}),
        ({"stay": None, "diagnosis": None}, {"stay*ward=b": np.float32(0.4), "stay*visits": np.float32(0.4) / 2}),
        ({"stay": "1e30", "visits": "inf", "ward": "c", "diagnosis": "428"}, {"stay*ward=c": 1.0, "stay*visits": 1.0}),
    ],
)
def test_reference_other_and_missing_codes_take_no_part_and_numbers_are_clipped_or_filled(cells, expected):
    assert crossed(**cells) == pytest.approx(expected)


def test_crosses_come_last_and_move_no_other_column():
    frame = pd.DataFrame({name: [cell, None] for name, cell in CELLS.items()})
    width = len(encoding.feature_names(PLAIN))
    assert NAMES[:width] == encoding.feature_names(PLAIN)
    assert all("*" in name for name in NAMES[width:])
    assert len(set(NAMES)) == len(NAMES)
    assert np.array_equal(encoding.encode(frame, SPEC)[:, :width], encoding.encode(frame, PLAIN))


def test_a_cross_with_a_number_is_numeric_and_one_of_codes_is_not():
    numeric = {NAMES[at] for at in encoding.numeric_columns(SPEC)}
    assert {name for name in numeric if "*" in name} == {"stay*ward=b", "stay*ward=c", "stay*visits"}
    assert {"stay", "visits"} <= numeric


def test_a_specification_with_crosses_survives_json():
    assert json.loads(json.dumps(SPEC)) == SPEC


@pytest.mark.parametrize("partners", [["stay"], ["nowhere"], ["ward", "ward"]])
def test_a_cross_with_itself_an_unknown_feature_or_a_pair_twice_is_refused(partners):
    with pytest.raises(ValueError, match="crossed_with must name other features"):
        encoding.build({**FEATURES, "stay": {**FEATURES["stay"], "crossed_with": partners}})


def test_the_same_pair_the_other_way_round_is_refused():
    with pytest.raises(ValueError, match="crossed_with must name other features"):
        encoding.build({**FEATURES, "visits": {**FEATURES["visits"], "crossed_with": ["stay"]}})


def test_the_norm_bound_is_reached_by_the_fullest_row():
    frame = pd.DataFrame({"stay": ["10"], "visits": ["4"], "ward": ["b"], "diagnosis": ["486"]})
    assert norms(encoding.encode(frame, SPEC)).max() == pytest.approx(encoding.norm_bound(SPEC))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.sampled_from(["0", "3", "10", "1e9", None, "a", "b", "486", "V45"])] * 4), min_size=1)
)
def test_no_row_exceeds_the_norm_bound(rows):
    matrix = encoding.encode(pd.DataFrame(rows, columns=list(CELLS), dtype=object), SPEC)
    assert norms(matrix).max() <= encoding.norm_bound(SPEC) * (1 + 1e-6)


def norms(matrix: np.ndarray) -> np.ndarray:
    squares = matrix[:, encoding.numeric_columns(SPEC)].astype(np.float64) ** 2
    return np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1) + (squares**2).sum(axis=1))
