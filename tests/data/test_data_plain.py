"""Features without encoding: what a tree reads."""

import numpy as np
import pandas as pd

from tasks.data.plain import MOST_CODES, plain

FEATURES = {
    "age": {"kind": "number", "min": 0, "max": 110},
    "sex": {"kind": "category", "values": ("F", "M")},
    "code": {"kind": "icd9"},
}


def test_numbers_stay_categories_become_places_and_codes_their_whole_part() -> None:
    frame = pd.DataFrame(
        {"age": ["200", "?", "x"], "sex": ["M", "F", "X"], "code": ["250.83", "V57", None]}, dtype="str"
    )
    columns, codes = plain(frame, FEATURES, missing=["?"])
    assert codes.tolist() == [False, True, False]
    nan = np.nan
    assert np.array_equal(columns, [[200, 1, 250], [nan, 0, nan], [nan, nan, nan]], equal_nan=True)


def test_a_missing_word_is_missing_although_the_book_lists_it() -> None:
    frame = pd.DataFrame({"sex": ["F", "M"]}, dtype="str")
    columns, _ = plain(frame, {"sex": FEATURES["sex"]}, missing=["M"])
    assert np.array_equal(columns[:, 0], [0, np.nan], equal_nan=True)


def test_a_book_longer_than_trees_can_take_is_cut() -> None:
    book = tuple(str(number) for number in range(300))
    frame = pd.DataFrame({"ward": ["0", str(MOST_CODES - 1), str(MOST_CODES)]}, dtype="str")
    columns, _ = plain(frame, {"ward": {"kind": "category", "values": book}})
    assert np.array_equal(columns[:, 0], [0, MOST_CODES - 1, np.nan], equal_nan=True)
