"""CSV files, also inside a zip archive: strict where a lenient reader would guess.

One pass in bounded memory: a row may have up to 4 MiB and a wanted cell up to 1 MiB, whatever the file's
size. Text is checked on the way (encoding, NUL bytes, quotation marks that are never closed), so a fault
anywhere in the file is told with its place, also in a column that nobody reads. Quotes and line breaks
within quoted cells are kept.
"""

import codecs
import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as arrow_compute
import pyarrow.csv as arrow_csv

from configs.errors import DataError, printable
from tasks.data.header import choose_columns

ROW_LIMIT = 4 * 2**20
CELL_LIMIT = 2**20
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_csv(
    *,
    path: str | Path,
    member: str | None,
    delimiter: str,
    encoding: str,
    columns: Sequence[str],
    missing: Sequence[str],
) -> pd.DataFrame:
    """Read the wanted columns as text.

    Args:
        path: the file, or a zip archive.
        member: the file within the archive; may be left out where the archive holds one file.
        delimiter: one character.
        encoding: a Python codec; a byte-order mark at the start is dropped.
        columns: names to read, without repetition.
        missing: texts that become NA.

    Raises:
        DataError: the file cannot be read as such; no cell is quoted.
    """
    name = _named(path, member)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise DataError("data.source.delimiter must be one character, such as ',' or ';' (for tabs \"\\t\")")
    header = read_header(path=path, member=member, delimiter=delimiter, encoding=encoding)
    _explain_delimiter(header, columns, delimiter=delimiter, name=name)
    choose_columns(header, columns, name=name, quote=False)
    with _opened(Path(path), member) as raw:
        table = _parse(_Checked(raw, encoding=encoding, name=name), name, delimiter, columns, missing)
    _limit_cells(table, name)
    return table.select(list(columns)).to_pandas()


def read_header(
    *, path: str | Path, member: str | None = None, delimiter: str = ",", encoding: str = "utf-8"
) -> list[str]:
    """The names in the first line, and nothing below it.

    Raises:
        DataError: the file is missing, empty or in another encoding, or its first line is longer than a row
            may be.
    """
    name = _named(path, member)
    with _opened(Path(path), member) as raw:
        start = _first_line(raw, encoding)
    if not start.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(f"{name}: the file is empty")
    checked = _Checked(io.BytesIO(start), encoding=encoding, name=name, partial=True)
    text = b"".join(iter(lambda: checked.read(2**16), b"")).decode().removeprefix("\ufeff")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return next(line for line in lines if line)
    except (csv.Error, StopIteration):
        raise DataError(
            f"{name}: the first line is no header: it is too long, or a quotation mark in it is never closed"
        ) from None


def _named(path: str | Path, member: str | None) -> str:
    """The file, for a message."""
    return printable(f"{path}:{member}" if member else str(path))


class _Checked(io.RawIOBase):
    """A stream of UTF-8 that refuses undecodable bytes, NUL bytes and an odd number of quotation marks."""

    def __init__(self, raw: IO[bytes], *, encoding: str, name: str, partial: bool = False) -> None:
        self.raw, self.encoding, self.name, self.partial = raw, encoding, name, partial
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses a codec that yields no text, such as hex
            self.decoder = codecs.getincrementaldecoder(encoding)()
        except (LookupError, ValueError):
            raise DataError(f"data.source.encoding = {encoding!r} is no text encoding of Python") from None
        self.unchanged = codecs.lookup(encoding).name in ("utf-8", "ascii")
        self.at, self.quotes = 0, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes as UTF-8; decodes on until there are some or the file ends."""
        while True:
            chunk = self.raw.read(size)
            text = self._decoded(chunk)
            if "\0" in text:
                self._refuse_nul(chunk)
            self.at += len(chunk)
            self.quotes += text.count('"')
            if chunk and not text:
                continue
            if not chunk and self.quotes % 2 and not self.partial:
                raise DataError(
                    f"{self.name}: a quotation mark is never closed (their number is odd); "
                    "close it, or write one that belongs to a cell twice, within a quoted cell"
                )
            return chunk if self.unchanged else text.encode()

    def _decoded(self, chunk: bytes) -> str:
        if self.at == 0 and self.unchanged and chunk.startswith(_UTF16_MARKS):
            raise DataError(f"{self.name}: this is UTF-16 text; set data.source.encoding: utf-16, or save it as UTF-8")
        pending = len(self.decoder.getstate()[0])
        try:
            return self.decoder.decode(chunk, final=not chunk and not self.partial)
        except UnicodeError as error:
            place = self.at - pending + getattr(error, "start", 0)
        raise DataError(
            f"{self.name}: byte {place} (counted from 0) is not {self.encoding}; set data.source.encoding "
            "(often cp1252 or latin-1), or save the file as UTF-8; mixed encodings must be mended first"
        )

    def _refuse_nul(self, chunk: bytes) -> None:
        place = self.at + max(chunk.find(b"\0"), 0)
        raise DataError(
            f"{self.name}: there is a NUL byte at byte {place} (counted from 0); the file is damaged, or in "
            "UTF-16 or UTF-32: then set data.source.encoding"
        )


def _first_line(raw: IO[bytes], encoding: str) -> bytes:
    """The bytes of the first line that is not blank; a line break within quotation marks does not end it."""
    if encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "u16", "u32")):
        return raw.read(ROW_LIMIT)
    start = b""
    while len(start) < ROW_LIMIT and (not start.strip() or start.count(b'"') % 2):
        line = raw.readline(ROW_LIMIT - len(start))
        if not line:
            break
        start += line
    return start


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    """The file's bytes, or those of a member of a zip archive."""
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise DataError(f"{_named(path, None)} {what}; check data.source.path")
        if not zipfile.is_zipfile(path):
            if member:
                raise DataError(
                    f"{_named(path, None)} is no zip archive, so it has no member {member!r}; leave "
                    "data.source.member out"
                )
            with path.open("rb") as stream:
                yield stream
            return
        with zipfile.ZipFile(path) as archive, archive.open(_member(archive, path, member)) as stream:
            yield stream
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise DataError(
            f"{_named(path, None)} cannot be read ({type(error).__name__}): check its permissions, and that an "
            "archive is whole and has no password"
        ) from None


def _member(archive: zipfile.ZipFile, path: Path, member: str | None) -> str:
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    if member is None and len(names) == 1:
        return names[0]
    if member in names:
        return member
    shown = ", ".join(map(repr, names[:20])) + (" …" if len(names) > 20 else "")
    said = "several files; name one as data.source.member" if member is None else f"no member {member!r}"
    raise DataError(f"{_named(path, None)} holds {said}; it holds {shown or 'nothing'}")


def _explain_delimiter(header: Sequence[str], wanted: Sequence[str], *, delimiter: str, name: str) -> None:
    """Say so where another delimiter would have found the columns."""
    if any(column in header for column in wanted):
        return
    joined = delimiter.join(header)
    for other, words in _DELIMITERS.items():
        if other != delimiter and any(column in next(csv.reader([joined], delimiter=other)) for column in wanted):
            key = '"\\t"' if other == "\t" else f'"{other}"'
            raise DataError(f"{name}: the columns are separated by {words}; set data.source.delimiter: {key}")


def _parse(stream: _Checked, name: str, delimiter: str, columns: Sequence[str], missing: Sequence[str]) -> pa.Table:
    ragged: list[tuple[int, int, int | None]] = []

    def refuse(row: arrow_csv.InvalidRow) -> str:
        ragged.append((row.expected_columns, row.actual_columns, row.number))
        return "error"

    try:
        return arrow_csv.read_csv(
            stream,
            read_options=arrow_csv.ReadOptions(
                block_size=ROW_LIMIT, use_threads=False
            ),  # one thread: rows are numbered
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(columns),
                column_types={column: pa.string() for column in columns},
                null_values=[str(text) for text in missing],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except pa.ArrowException as error:
        fault = str(error)  # names the kind of fault; it may quote a row, so it is read here and goes no further
    if ragged:
        expected, actual, number = ragged[0]
        raise DataError(
            f"{name}: row {number} (the header is row 1) has {actual} cells where the header has {expected}; "
            "a delimiter or line break within a cell needs quotation marks around the cell"
        )
    if "Empty CSV" in fault:
        raise DataError(f"{name}: there is no record below the header; give a file with rows")
    if "straddl" in fault:
        raise DataError(
            f"{name}: a row is longer than {ROW_LIMIT // 2**20} MiB; "
            "usually a quotation mark is not closed, or a document stands in a cell: leave that column out"
        )
    raise DataError(f"{name}: this is no CSV text that can be read; open it in an editor to see")


def _limit_cells(table: pa.Table, name: str) -> None:
    for column in table.column_names:
        longest = arrow_compute.call_function("max", [_lengths(table[column])]).as_py()
        if longest is not None and longest > CELL_LIMIT:
            raise DataError(
                f"{name}: column {column!r} has a cell longer than {CELL_LIMIT // 2**20} MiB; "
                "records hold codes and numbers: is a quotation mark not closed?"
            )


def _lengths(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return arrow_compute.call_function("binary_length", [column])
