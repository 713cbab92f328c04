"""Parquet files."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from configs.errors import DataError, printable
from tasks.data.header import choose_columns

# Whole numbers with missing cells must not pass through float64, which loses the last digits of a long id.
_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def read_parquet(*, path: str | Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read the wanted columns with their types.

    Raises:
        DataError: the file is missing or no Parquet, or lacks a column.
    """
    file, name = Path(path), printable(str(path))
    try:
        if not file.is_file():
            what = "is a folder" if file.is_dir() else "does not exist"
            raise DataError(f"{name} {what}; check data.source.path")
        with arrow_parquet.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            choose_columns(names, columns, name=name, quote=True)
            table = parquet.read(columns=list(columns))
        return table.select(list(columns)).to_pandas(types_mapper=_NULLABLE.get)
    except (pa.ArrowException, OSError, ValueError) as error:
        fault = type(error).__name__
    raise DataError(f"{name} cannot be read as Parquet ({fault}); is it whole, and may this user read it?")
