"""Which of the wanted columns a source has, told in words that help."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from configs.errors import DataError

_SHOWN = 60


def choose_columns(found: Sequence[str], wanted: Sequence[str], *, name: str) -> None:
    """Check that every wanted column is there exactly once.

    Args:
        found: the source's column names; they are the only part of the source that an error shows.
        wanted: the names to find.
        name: the source, for the message.

    Raises:
        DataError: columns are missing (with the likeliest names meant), or stand twice.
    """
    names = [str(column) for column in found]
    absent = [column for column in wanted if column not in names]
    if absent:
        said = []
        for column in absent:
            near = get_close_matches(column, names, n=1) or [
                n for n in names if n.strip().lower() == column.lower()
            ]
            said.append(f"{column!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise DataError(
            f"{name}: {'column' if len(absent) == 1 else 'columns'} {', '.join(said)} not found; "
            f"it has {', '.join(map(repr, names[:_SHOWN]))}{more}"
        )
    twice = [column for column, count in Counter(names).items() if count > 1 and column in wanted]
    if twice:
        raise DataError(
            f"{name}: {'column' if len(twice) == 1 else 'columns'} {', '.join(map(repr, twice))} "
            "stand more than once in the header, so it is not clear which is meant; rename one"
        )
