"""Names of groups as parts of a metric's key.

A key part may hold ASCII letters, digits, `_`, `.` and `-`; it may not begin with a dot, and a whole key may
have 250 characters (MLflow 3.17). One bad name would have the whole batch of metrics refused.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

LONGEST = 80  # three parts and the prefix stay below 250


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A key part for each name: different for different names, the same whatever else is named, if it can be.

    A name that is too long, or whose part another name would have too (in any case of letters), gets eight
    hexadecimal digits of its SHA-256 at the end.

    Args:
        names: distinct names, in any order.

    Returns:
        Key part by name.
    """
    plain = {name: _plain(name) for name in names}
    taken = Counter(part.casefold() for part in plain.values())
    short = {name for name, part in plain.items() if taken[part.casefold()] == 1 and len(part) <= LONGEST}
    # A plain part that reads like another name's marked one gives way, so that all are different.
    marked = {_marked(name, part).casefold() for name, part in plain.items()}
    short -= {name for name in short if plain[name].casefold() in marked}
    return {name: part if name in short else _marked(name, part) for name, part in plain.items()}


def _plain(name: str) -> str:
    part = re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "_"
    return "_" + part[1:] if part[0] == "." else part


def _marked(name: str, part: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{part[: LONGEST - 9]}-{digest}"
