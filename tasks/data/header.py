"""Which of the wanted columns a source has, told in words that help.

The first line of a CSV file without a header is a record, and no rule can tell for sure: a diagnosis may well be
spelt like a column. So of a source whose names may be a record's values, no name is ever quoted; what helps is told
by its position. Names from a schema (Parquet, a query's result) are listed.
"""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from configs.errors import DataError, printable

_SHOWN = 60
_LONGEST = 60


def choose_columns(found: Sequence[str], wanted: Sequence[str], *, name: str, quote: bool) -> None:
    """Check that every wanted column is there exactly once.

    Args:
        found: the source's column names.
        wanted: the names to find.
        name: the source, for the message.
        quote: whether names of the source may be told: they come from a schema, not perhaps from a first record.

    Raises:
        DataError: columns are missing (with the likeliest names meant, or their places), or stand twice.
    """
    names = [str(column) for column in found]
    absent = [column for column in wanted if column not in names]
    if absent:
        said = ", ".join(_absent(column, names, quote) for column in absent)
        subject = "column" if len(absent) == 1 else "columns"
        raise DataError(f"{printable(name)}: {subject} {said} not found; {_inventory(names, wanted, quote)}")
    twice = [column for column, count in Counter(names).items() if count > 1 and column in wanted]
    if twice:
        raise DataError(
            f"{printable(name)}: {'column' if len(twice) == 1 else 'columns'} {', '.join(map(repr, twice))} "
            "stand more than once in the header, so it is not clear which is meant; rename one"
        )


def _absent(column: str, names: Sequence[str], quote: bool) -> str:
    same = [name for name in names if name.strip().casefold() == column.strip().casefold()]
    near = same or get_close_matches(column, names, n=1, cutoff=0.7)
    if not near:
        return f"{column!r}"
    if quote:
        return f"{column!r} (did you mean {near[0]!r}?)"
    like = "the same but for case or blanks" if same else "much like it"
    return f"{column!r} (column {names.index(near[0]) + 1} is named {like})"


def _inventory(names: Sequence[str], wanted: Sequence[str], quote: bool) -> str:
    if not quote:
        known = len(set(names) & set(wanted))
        asked = "" if known else ": is its first line a header?"
        return f"{known or 'none'} of its {len(names)} columns has a wanted name{asked}"
    shown = [repr(name) for name in names if name.isprintable() and len(name) <= _LONGEST][:_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"it has {', '.join(shown)}{more}"
