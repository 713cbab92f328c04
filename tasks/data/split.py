"""Who trains, who audits: a split by privacy unit that depends on no other person.

A person's place is a keyed hash of their own id, and which rows stay under the cap is a keyed hash of their
own id and row numbers. Adding or removing one person therefore moves nobody else: the data sets "with" and
"without" a person that differential privacy compares differ by that person alone, also after the split. The
key is the population's secret; without it nobody can tell who was in training.

Records without a person column are their own units; `row_ids` gives them an id from their content, for a
position would shift when an earlier row is removed. Equal rows then share a place.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from configs.errors import DataError, InternalError

TRAIN, AUDIT, POPULATION = 0, 1, 2
_NO_PERSON = (
    "{count} in the person column: without an id nobody's rows can be kept together. "
    "Fill the column, or leave those rows out by data.exclude"
)


def assign(*, persons: Sequence[str] | pd.Series, key: bytes, audit: float, population: float) -> np.ndarray:
    """Place every row by its person.

    Args:
        persons: a person's id for each row [rows], text.
        key: secret of the population (or of a bench).
        audit: expected fraction of persons in the audit hold-out, in [0, 1).
        population: expected fraction of persons that are reference points in no model, in [0, 1).

    Returns:
        int8 [rows]: 0 train, 1 audit, 2 population.

    Raises:
        DataError: a row has no person.
    """
    if not (0 <= audit < 1 and 0 <= population < 1 and audit + population < 1):
        raise InternalError(
            f"holdout fractions audit {audit} and population {population} must leave persons to train on"
        )
    codes, names = _persons(persons)
    uniform = np.array([_uniform(key, b"split", name.encode()) for name in names], dtype=np.float64)
    place = np.where(uniform < audit, AUDIT, np.where(uniform < audit + population, POPULATION, TRAIN))
    return place.astype(np.int8)[codes]


def cap_rows(
    *,
    persons: Sequence[str] | pd.Series,
    key: bytes,
    max_rows: int,
    ids: Sequence[str] | pd.Series | None = None,
) -> np.ndarray:
    """Keep at most `max_rows` rows a person, drawn by key.

    Args:
        persons: a person's id for each row [rows], text.
        key: secret of the population (or of a bench).
        max_rows: most rows of one person, at least 1.
        ids: an id of each row by its content (`row_ids`), or None. With ids a row's draw is the same whatever
            other rows the person has, so that one row more displaces at most one, which matters where the row
            is the privacy unit; without, the draw is by the row's number among the person's own.

    Returns:
        bool [rows]: the rows to keep. A person's draw depends on their own rows, and on nobody else's.

    Raises:
        DataError: a row has no person.
    """
    if max_rows < 1:
        raise InternalError(f"max_rows {max_rows} must be at least 1")
    codes, names = _persons(persons)
    keep = np.ones(len(codes), dtype=bool)
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    contents = None if ids is None else list(ids)
    for person in np.flatnonzero(counts > max_rows):
        rows = order[starts[person] : starts[person] + counts[person]]
        name = names[person].encode()
        marks = range(len(rows)) if contents is None else _marks([contents[row] for row in rows])
        draws = [_uniform(key, b"cap", name, str(mark).encode()) for mark in marks]
        keep[rows[np.argsort(draws, kind="stable")[max_rows:]]] = False
    return keep


def _marks(ids: Sequence[str]) -> list[str]:
    """The ids, equal ones told apart by how many came before."""
    seen: Counter[str] = Counter()
    marks = []
    for row_id in ids:
        marks.append(f"{row_id} {seen[row_id]}")
        seen[row_id] += 1
    return marks


def unit_index(*, persons: Sequence[str] | pd.Series | None, max_rows: int, rows: int | None = None) -> np.ndarray:
    """Row positions of every unit, units in the order of their first row.

    Args:
        persons: a person's id for each row, or None where each row is a unit of its own.
        max_rows: k, the most rows of one unit (after `cap_rows`); 1 where rows are units.
        rows: number of rows, needed only without `persons`.

    Returns:
        int64 [units, k], padded with -1 at the end of each line.
    """
    if persons is None:
        if rows is None:
            raise InternalError("unit_index needs `rows` when rows are units")
        return np.arange(rows, dtype=np.int64)[:, None]
    codes, names = _persons(persons)
    counts = np.bincount(codes, minlength=len(names))
    if counts.size and counts.max() > max_rows:
        raise InternalError(f"a unit has more than {max_rows} rows: rows are capped before units are formed")
    index = np.full((len(names), max_rows), -1, dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    index[codes[order], np.arange(len(codes)) - starts[codes[order]]] = order
    return index


def persons_of(frame: pd.DataFrame, *, column: str | None) -> pd.Series:
    """The person of each row, text [rows]; without a person column, the row's own id."""
    return row_ids(frame) if column is None else pd.Series(frame[column])


def row_ids(frame: pd.DataFrame) -> pd.Series:
    """An id for each row of a text frame from its content, for records without a person column.

    SHA-256 over length-prefixed cells, so that two different rows never read the same. It is as sensitive
    as the row.
    """
    columns = [frame[name].astype(object).where(frame[name].notna(), None) for name in frame.columns]
    digests = []
    for cells in zip(*columns, strict=True):
        parts = ("-" if cell is None else f"{len(cell)}:{cell}" for cell in cells)
        digests.append(hashlib.sha256("".join(parts).encode()).hexdigest())
    return pd.Series(digests, dtype="str")


def _persons(persons: Sequence[str] | pd.Series) -> tuple[np.ndarray, list[str]]:
    series = persons if isinstance(persons, pd.Series) else pd.Series(persons, dtype="str")
    codes, names = pd.factorize(series)
    absent = int((codes < 0).sum())
    if absent:
        raise DataError(_NO_PERSON.format(count="fewer than 11 rows have no id" if absent < 11 else "rows have no id"))
    return codes.astype(np.int64), [str(name) for name in names]


def _uniform(key: bytes, purpose: bytes, *parts: bytes) -> float:
    """A number in [0, 1) with 53 random bits from HMAC-SHA256 of length-prefixed parts."""
    message = purpose + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return (int.from_bytes(hmac.digest(key, message, "sha256")[:8], "big") >> 11) / 2**53
