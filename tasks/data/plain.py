"""Features as they are, for models that need no encoding and no bounds: numbers, and codes of categories."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.data.encoding import as_numbers

MOST_CODES = 250  # boosted trees take at most 255 categories; what stands later in a book becomes missing


def plain(
    frame: pd.DataFrame, features: Mapping[str, Mapping[str, Any]], *, missing: Sequence[str] = ()
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """One column a feature.

    Args:
        frame: raw rows.
        features: the configuration's features.
        missing: texts that stand for a missing cell.

    Returns:
        Values [rows, features]: a number as it is, unclipped; a category's place in its public book; of an ICD-9
        code the number before the point, or NaN for V and E codes. NaN where a cell is missing, unlisted or no
        number. And bool [features]: which of them are codes.
    """
    columns: list[NDArray[np.float64]] = []
    absent = set(missing)
    for name, feature in features.items():
        cells = frame[name]
        if feature["kind"] == "category":
            places = {value: place for place, value in enumerate(feature["values"][:MOST_CODES])}
            found = [np.nan if cell in absent else places.get(cell, np.nan) for cell in cells]
            columns.append(np.array(found, dtype=np.float64))
        elif feature["kind"] == "icd9":
            columns.append(np.floor(as_numbers(cells, missing=missing)))
        else:
            columns.append(as_numbers(cells, missing=missing))
    codes = np.array([feature["kind"] == "category" for feature in features.values()])
    return np.column_stack(columns), codes
