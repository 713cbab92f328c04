"""From a column of text to the group of each row, by public values or public bands.

A group's name always comes from the configuration, never from a record: what stands in no list is `OTHER`
or the band specification's own rest, what is missing or cannot be read is `UNKNOWN`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from configs.errors import ConfigurationError, InternalError

Names = NDArray[np.object_]

OTHER = "__other__"  # of a value outside the public list; `other` may be a value of the list
UNKNOWN = "unknown"
TIMES = " × "


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Each public value is a group; any other value is `OTHER`.

    Raises:
        ConfigurationError: if a value is `__other__` or contains `×`, which would make two groups one.
    """

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _check(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Named bands: each a tuple of text values, or each a pair of numbers (low, high) for low ≤ x < high.

    Attributes:
        bands: by name; all of one kind, and without overlap, which is the configuration's to check.
        other: the group of what is in no band.

    Raises:
        ConfigurationError: if a name is `__other__` or contains `×`, or the two kinds are mixed.
    """

    bands: Mapping[str, tuple[str, ...] | tuple[float, float]]
    other: str = OTHER

    def __post_init__(self) -> None:
        _check([*self.bands, *([self.other] if self.other != OTHER else [])])
        if len({_is_range(band) for band in self.bands.values()}) > 1:
            raise ConfigurationError("bands: give every band as text values, or every band as a pair of numbers")


def declared(spec: Values | Bands) -> tuple[str, ...]:
    """The groups that a specification promises: they are reported even where no row belongs to them."""
    if isinstance(spec, Values):
        return spec.values
    rest = () if spec.other == OTHER or spec.other in spec.bands else (spec.other,)
    return (*spec.bands, *rest)


def assign(*, column: pd.Series, spec: Values | Bands, missing: Collection[str] = ()) -> Names:
    """The group of each row.

    Args:
        column: [rows] of text; None or NaN where missing.
        spec: the public groups.
        missing: texts that stand for a missing cell.

    Returns:
        Object array [rows] of group names; missing is `UNKNOWN`, and so is what should be a number and is
        none, or none that is finite.
    """
    absent = (column.isna() | column.isin(list(missing))).to_numpy(dtype=bool)
    if isinstance(spec, Values):
        table: dict[str, str] = {value: value for value in spec.values}
        found = _looked_up(column, table, OTHER)
    elif any(_is_range(band) for band in spec.bands.values()):
        found = _in_ranges(column.mask(absent), spec)
    else:
        table = {str(value): name for name, band in spec.bands.items() for value in band}
        found = _looked_up(column, table, spec.other)
    found[absent] = UNKNOWN
    return found


def intersect(*groups: Names) -> Names:
    """Groups of two or more attributes as one: `A × B` [rows]. A part that is unknown stays visible.

    Raises:
        InternalError: if fewer than two are given, or lengths differ.
    """
    if len(groups) < 2 or len({part.shape for part in groups}) != 1:
        raise InternalError("an intersection needs two or more attributes of one length")
    joined = groups[0].astype(object)
    for part in groups[1:]:
        joined = joined + TIMES + part
    return joined


def intersect_names(*names: Sequence[str]) -> tuple[str, ...]:
    """The declared groups of an intersection: every combination of the parts' declared groups."""
    joined: tuple[str, ...] = tuple(names[0])
    for part in names[1:]:
        joined = tuple(f"{left}{TIMES}{right}" for left in joined for right in part)
    return joined


def is_known(name: str, names: Collection[str]) -> bool:
    """Whether a group's name comes from the configuration and not from a record.

    Args:
        name: of a group, or of an intersection's.
        names: the attribute's declared groups.
    """
    if name in names:
        return True
    parts = name.split(TIMES)
    if len(parts) == 1:
        return name in (OTHER, UNKNOWN)
    columns = [set(column) for column in zip(*(other.split(TIMES) for other in names), strict=False)]
    return len(columns) == len(parts) and all(
        part in column or part in (OTHER, UNKNOWN) for part, column in zip(parts, columns, strict=True)
    )


def shown(name: str, names: Collection[str]) -> str:
    """The name for a reader: `__other__` reads `other`, or `other, not listed` where `other` is a group itself."""
    taken = {part for other in names for part in other.casefold().split(TIMES)}
    rest = "other, not listed" if "other" in taken else "other"
    return TIMES.join(rest if part == OTHER else part for part in name.split(TIMES))


def _check(names: Sequence[str]) -> None:
    faults = [name for name in names if name == OTHER or TIMES.strip() in name]
    if faults:
        raise ConfigurationError(
            f"groups: {faults} cannot be names of groups: {OTHER} and × have a meaning of their own"
        )


def _is_range(band: Sequence[str] | Sequence[float]) -> bool:
    return len(band) == 2 and not any(isinstance(end, str | bool) for end in band)


def _looked_up(column: pd.Series, table: Mapping[str, str], rest: str) -> Names:
    return np.array([table.get(cell, rest) if isinstance(cell, str) else rest for cell in column], dtype=object)


def _in_ranges(column: pd.Series, spec: Bands) -> Names:
    number = np.asarray(pd.to_numeric(column.astype(object), errors="coerce"), dtype=np.float64)
    found = np.full(number.size, spec.other, dtype=object)
    for name, (low, high) in spec.bands.items():
        found[(number >= float(low)) & (number < float(high))] = name
    found[~np.isfinite(number)] = UNKNOWN
    return found
