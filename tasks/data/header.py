"""Which of the wanted columns a source has, told in words that help.

A file without a header has a record in its first line. So names are listed only where at least one wanted
column was found, which shows that they are names; otherwise only those close to a wanted one are told.
"""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from configs.errors import DataError

_SHOWN = 60
_LONGEST = 60


def choose_columns(found: Sequence[str], wanted: Sequence[str], *, name: str) -> None:
    """Check that every wanted column is there exactly once.

    Args:
        found: the source's column names.
        wanted: the names to find.
        name: the source, for the message.

    Raises:
        DataError: columns are missing (with the likeliest names meant), or stand twice.
    """
    names = [str(column) for column in found]
    absent = [column for column in wanted if column not in names]
    if absent:
        said = ", ".join(_absent(column, names) for column in absent)
        subject = "column" if len(absent) == 1 else "columns"
        raise DataError(f"{name}: {subject} {said} not found; {_inventory(names, wanted)}")
    twice = [column for column, count in Counter(names).items() if count > 1 and column in wanted]
    if twice:
        raise DataError(
            f"{name}: {'column' if len(twice) == 1 else 'columns'} {', '.join(map(repr, twice))} "
            "stand more than once in the header, so it is not clear which is meant; rename one"
        )


def _absent(column: str, names: Sequence[str]) -> str:
    same = [name for name in names if name.strip().lower() == column.strip().lower()]
    near = same or get_close_matches(column, names, n=1, cutoff=0.7)
    return f"{column!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _inventory(names: Sequence[str], wanted: Sequence[str]) -> str:
    if not any(column in names for column in wanted):
        return f"none of the {len(names)} cells of its first line is a wanted name: is that line a header?"
    shown = [repr(name) for name in names if name.isprintable() and len(name) <= _LONGEST][:_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"it has {', '.join(shown)}{more}"
