"""Frames of typed cells as frames of text."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from configs.errors import DataError
from tasks.data.csvfile import CELL_LIMIT
from tasks.data.encoding import canonical_text

_ONE_KIND = {"string", "boolean", "integer", "floating", "date", "datetime", "datetime64", "decimal", "empty"}


def as_text(frame: pd.DataFrame, *, missing: Sequence[str], name: str) -> pd.DataFrame:
    """Every cell as `canonical_text`, missing ones and those listed in `missing` as NA.

    Args:
        frame: any pandas frame with distinct column names.
        missing: texts that become NA.
        name: the source, for the message.

    Raises:
        DataError: a column holds bytes, lists or other cells without a text of their own, or a cell over 1
            MiB.
    """
    columns = {column: _column(frame[column], name=name) for column in frame.columns}
    text = pd.DataFrame(columns, index=pd.RangeIndex(len(frame)))
    tokens = [str(token) for token in missing]
    return text.mask(text.isin(tokens)) if tokens else text


def _column(series: Any, *, name: str) -> pd.Series:
    if isinstance(series.dtype, pd.StringDtype):
        values = series.astype("str").reset_index(drop=True)
    else:
        # Equal cells of one kind have one text, so distinct ones suffice; 1, 1.0 and True are equal and of
        # three kinds.
        single = series.dtype != object or pd.api.types.infer_dtype(series, skipna=True) in _ONE_KIND
        if single:
            codes, distinct = pd.factorize(series)
        else:
            codes, distinct = range(len(series)), list(series)
        texts = [*(_text(value, series.name, name) for value in distinct), None]
        try:
            values = pd.Series([texts[code] for code in codes], dtype="str")
        except UnicodeEncodeError:
            raise DataError(
                f"{name}: column {series.name!r} holds text that is not Unicode; mend its encoding"
            ) from None
    if len(values) and (values.str.len() > CELL_LIMIT).any():
        raise DataError(f"{name}: column {series.name!r} has a cell longer than {CELL_LIMIT // 2**20} MiB")
    return values


def _text(value: object, column: object, name: str) -> str | None:
    if isinstance(value, bytes | bytearray | memoryview | list | tuple | dict | set) or (
        hasattr(value, "__array__") and getattr(value, "ndim", 0)
    ):
        raise DataError(
            f"{name}: column {column!r} holds {type(value).__name__} cells; give text, numbers or dates instead"
        )
    return canonical_text(value)
