"""Public thresholds on a number: 0/1 columns that let a linear network follow a curve."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data import encoding

VISITS = {"kind": "number", "min": 0, "max": 20, "scale": "log", "fill": 2, "knots": [1, 2.5, 20]}
SPEC = encoding.build({"visits": VISITS, "sex": {"kind": "category", "values": ["f", "m"]}})


def thresholds(cell: object) -> list[float]:
    frame = pd.DataFrame({"visits": [cell], "sex": ["f"]})
    return encoding.encode(frame, SPEC)[0, 2:5].tolist()


def test_each_knot_has_a_column_named_after_it():
    names = encoding.feature_names(SPEC)
    assert names[:5] == ["visits", "visits:missing", "visits>=1", "visits>=2.5", "visits>=20"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("cell", "columns"),
    [
        ("0", [0, 0, 0]),
        ("0.999", [0, 0, 0]),
        ("1", [1, 0, 0]),
        ("2.5", [1, 1, 0]),
        ("19.9", [1, 1, 0]),
        ("20", [1, 1, 1]),
        ("1e30", [1, 1, 1]),
        ("inf", [1, 1, 1]),
        ("-inf", [0, 0, 0]),
        (None, [1, 0, 0]),
        ("many", [1, 0, 0]),
    ],
)
def test_a_column_is_one_where_the_value_or_its_fill_reaches_the_knot(cell, columns):
    assert thresholds(cell) == columns


def test_knots_are_no_numeric_columns_and_move_no_other_column():
    frame = pd.DataFrame({"visits": ["3", None], "sex": ["m", "f"]})
    plain = encoding.build({"visits": {**VISITS, "knots": []}, "sex": {"kind": "category", "values": ["f", "m"]}})
    assert encoding.numeric_columns(SPEC) == encoding.numeric_columns(plain) == [0]
    without = np.delete(encoding.encode(frame, SPEC), [2, 3, 4], axis=1)
    assert np.array_equal(without, encoding.encode(frame, plain))


def test_a_specification_without_knots_is_written_as_before():
    plain = {key: value for key, value in VISITS.items() if key != "knots"}
    assert encoding.build({"visits": plain}) == encoding.build({"visits": {**plain, "knots": ()}})
    assert "knots" not in encoding.build({"visits": plain})["features"][0]


def test_a_specification_with_knots_survives_json():
    assert json.loads(json.dumps(SPEC)) == SPEC


@pytest.mark.parametrize("knots", [[0], [21], [2, 1], [1, 1], [math.nan], [1, math.inf]])
def test_knots_that_do_not_rise_within_the_bounds_are_refused(knots):
    with pytest.raises(ValueError, match="knots must rise"):
        encoding.build({"visits": {**VISITS, "knots": knots}})


@settings(max_examples=60, deadline=None)
@given(
    fill=st.floats(0, 20),
    knots=st.lists(st.floats(0.01, 20), max_size=5, unique=True).map(sorted),
    scale=st.sampled_from(["linear", "log"]),
)
def test_the_norm_bound_holds_with_knots_and_is_reached(fill, knots, scale):
    spec = encoding.build({"visits": {**VISITS, "scale": scale, "fill": fill, "knots": knots}})
    matrix = encoding.encode(pd.DataFrame({"visits": ["20", "0", "7.3", None, "1e30"]}), spec).astype(np.float64)
    norms = np.sqrt((matrix**2).sum(axis=1) + (matrix[:, encoding.numeric_columns(spec)] ** 4).sum(axis=1))
    assert norms.max() == pytest.approx(encoding.norm_bound(spec), rel=1e-6)
