"""The label column as 0 and 1."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from configs.errors import DataError


def binary(frame: pd.DataFrame, *, column: str, positive: Sequence[str], negative: Sequence[str]) -> np.ndarray:
    """Labels as float32 [rows], 1 for a positive value and 0 for a negative one.

    Raises:
        DataError: a label is missing or stands in neither list.
    """
    is_positive = frame[column].isin([str(value) for value in positive]).to_numpy(dtype=bool)
    is_negative = frame[column].isin([str(value) for value in negative]).to_numpy(dtype=bool)
    if not (is_positive | is_negative).all():
        raise DataError(
            f"label {column}: some values are missing, or stand in neither data.label.positive nor "
            "data.label.negative; "
            "list them in one of the two, or leave those rows out by data.exclude"
        )
    return is_positive.astype(np.float32)
