"""Reading records: whatever the source, a frame of text with the wanted columns and no others.

Cells are text, so that a code book means the same for a CSV file and for a database; typed sources become
text by `encoding.canonical_text`: whole numbers without a point, `True` and `False`, dates and time stamps
as ISO 8601. Texts listed as missing become NA, the empty text only if it is listed.

Parsers, drivers and pandas quote the offending cell in their errors. Nothing of theirs is passed on: an
error from here names file, column, row number and mend, and is raised `from None`.
"""

import hashlib
import hmac
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as arrow_compute

from configs.errors import ConfigurationError, DataError, printable
from tasks.data import simulate
from tasks.data.csvfile import read_csv
from tasks.data.header import choose_columns
from tasks.data.parquetfile import read_parquet
from tasks.data.sql import read_sql
from tasks.data.typed import as_text

__all__ = ["counts", "digest", "exclude", "read_records"]


def read_records(*, source: Mapping[str, Any], columns: Sequence[str], missing: Sequence[str]) -> pd.DataFrame:
    """Read the wanted columns of a source as text.

    Args:
        source: `{kind: csv, path, member?, delimiter?, encoding?}`, `{kind: parquet, path}`, `{kind: sql,
            url, query}`, `{kind: python, function: "module:function", arguments?}` or `{kind: simulated,
            rows, seed}`.
        columns: the columns to keep, in this order; a name given twice is read once.
        missing: texts that stand for a missing cell.

    Returns:
        DataFrame [rows, columns] of pandas "str" dtype, at least one row, index 0 … rows - 1.

    Raises:
        DataError: the records cannot be read; names the source, the place and the mend, never a cell.
        ConfigurationError: the source's kind is unknown.
    """
    try:
        return _read(source, list(dict.fromkeys(columns)), missing)
    except MemoryError:
        raise DataError(
            f"{_place(source)}: the records do not fit into this machine's memory; read fewer columns or rows, "
            "or look whether the file is what it should be"
        ) from None


def _read(source: Mapping[str, Any], wanted: list[str], missing: Sequence[str]) -> pd.DataFrame:
    kind = source["kind"]
    if kind == "csv":
        frame = read_csv(
            path=source["path"],
            member=source.get("member"),
            delimiter=source.get("delimiter") or ",",
            encoding=source.get("encoding") or "utf-8",
            columns=wanted,
            missing=missing,
        )
    elif kind == "parquet":
        frame = as_text(
            read_parquet(path=source["path"], columns=wanted), missing=missing, name=printable(str(source["path"]))
        )
    elif kind == "sql":
        frame = as_text(
            read_sql(url=source["url"], query=source["query"], columns=wanted),
            missing=missing,
            name="the query's result",
        )
    elif kind == "python":
        function = str(source["function"])
        found = _call(function, source.get("arguments") or {})
        choose_columns(list(found.columns), wanted, name=function, quote=False)
        frame = as_text(found.loc[:, wanted], missing=missing, name=function)
    elif kind == "simulated":
        found = simulate.discharges(rows=source["rows"], seed=source["seed"])
        choose_columns(list(found.columns), wanted, name="the simulated discharges", quote=True)
        frame = as_text(found.loc[:, wanted], missing=missing, name="the simulated discharges")
    else:
        raise ConfigurationError(
            f"data.source.kind = {kind!r} is unknown; it is csv, parquet, sql, python or simulated"
        )
    if frame.empty:
        raise DataError(f"{_place(source)}: there is no record, only the names of columns; give a source with rows")
    return frame.reset_index(drop=True)


def exclude(frame: pd.DataFrame, rules: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Leave out the rows whose `column` holds one of `values` (compared as text), rule after rule.

    Raises:
        DataError: a rule names a column that was not read, or no row is left.
    """
    keep = np.ones(len(frame), dtype=bool)
    for rule in rules:
        choose_columns(list(frame.columns), [rule["column"]], name="data.exclude", quote=True)
        keep &= ~frame[rule["column"]].isin([str(value) for value in rule["values"]]).to_numpy(dtype=bool)
    if len(frame) and not keep.any():
        raise DataError("data.exclude leaves no record; check its columns and values")
    return frame.loc[keep].reset_index(drop=True)


def digest(frame: pd.DataFrame, *, key: bytes) -> str:
    """HMAC-SHA256 of a text frame: names and order of the columns, number and order of the rows, cells,
    missing cells.

    Every name and cell goes in with its length, missing as length -1, so that no two frames read the same.
    Keyed, for a plain hash would let anyone confirm a guessed record.

    Returns:
        64 hexadecimal digits.
    """
    mac = hmac.new(key, b"discreet frame 1", hashlib.sha256)
    mac.update(np.array([len(frame), frame.shape[1]], dtype="<i8").tobytes())
    for name in frame.columns:
        encoded = str(name).encode()
        mac.update(len(encoded).to_bytes(8, "little") + encoded)
        cells = pa.array(frame[name].astype("str"), type=pa.large_string())
        cells = pa.concat_arrays(cells.chunks) if isinstance(cells, pa.ChunkedArray) else cells
        lengths = arrow_compute.call_function("binary_length", [cells]).fill_null(-1)
        mac.update(lengths.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        present = cells.drop_null()  # a missing cell may hide bytes in the buffer below it
        if len(present):
            every = np.frombuffer(present.buffers()[1], dtype="<i8")
            ends = every[present.offset : present.offset + len(present) + 1]
            mac.update(memoryview(present.buffers()[2])[int(ends[0]) : int(ends[-1])])
    return mac.hexdigest()


def counts(frame: pd.DataFrame, *, person: str | None) -> dict[str, int | None]:
    """Exact numbers of rows and of persons; they stay in the run."""
    return {
        "rows": len(frame),
        "persons": None if person is None else int(pd.Series(frame[person]).nunique()),
    }


def _place(source: Mapping[str, Any]) -> str:
    path = source.get("path")
    return f"data.source ({source['kind']})" if path is None else printable(str(path))


def _call(function: str, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """Call `module:function`; its exceptions are replaced, for their text may quote a record."""
    module, _, attribute = function.partition(":")
    if not (module and attribute):
        raise ConfigurationError(f"data.source.function = {function!r} must read module:function")
    try:
        reader = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise DataError(
            f"data.source.function = {function!r} cannot be imported ({type(error).__name__}); "
            "is its module installed, or its folder on PYTHONPATH?"
        ) from None
    try:
        frame = reader(**arguments)
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{function} failed with {type(error).__name__}; its text is withheld, for it may quote a "
            "record. Call the function by itself to see it"
        ) from None
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"{function} returned {type(frame).__name__}; it must return a pandas DataFrame")
    return frame
