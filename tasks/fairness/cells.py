"""The counts behind a group's rates, and how coarsely they are told.

A *cell* is a count of a group's rows: all, positives, negatives, and the four of the confusion matrix. It is
small if 1 to 10 people stand behind it (CMS cell size policy), however many rows they have.

What is published of a shown group is a function of `display` alone: its size in words, its rates to two
decimals, and the sizes of their intervals rounded down. So what these allow is all that a reader can know.
"""

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tasks.statistics.proportions import RateEstimate, clopper_pearson
from tasks.statistics.roc import Undefined

SMALL = 10
DECIMALS = 2
TINY = "10 or fewer"
MORE = "more than 10"
UNSIZED = "not shown"

# Which of (true positives, false negatives, false positives, true negatives) a cell adds up.
CELLS: Mapping[str, tuple[int, int, int, int]] = MappingProxyType(
    {
        "rows": (1, 1, 1, 1),
        "positives": (1, 1, 0, 0),
        "negatives": (0, 0, 1, 1),
        "true_positives": (1, 0, 0, 0),
        "false_negatives": (0, 1, 0, 0),
        "false_positives": (0, 0, 1, 0),
        "true_negatives": (0, 0, 0, 1),
    }
)
_FLAGGED = (1, 0, 1, 0)
# A rate's numerator and denominator, in the same four counts.
RATES: Mapping[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = MappingProxyType(
    {
        "base_rate": (CELLS["positives"], CELLS["rows"]),
        "tpr": (CELLS["true_positives"], CELLS["positives"]),
        "fpr": (CELLS["false_positives"], CELLS["negatives"]),
        "precision": (CELLS["true_positives"], _FLAGGED),
        "selection_rate": (_FLAGGED, CELLS["rows"]),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Exact counts of a group. Never published.

    Attributes:
        confusion: rows by (true positives, false negatives, false positives, true negatives).
        persons: distinct persons behind each cell of `CELLS`.
        effects: rows over effective rows of each rate's interval; 1 where the rate is undefined.
    """

    confusion: tuple[int, int, int, int]
    persons: Mapping[str, int]
    effects: Mapping[str, float]

    def of(self, cell: str) -> int:
        """Rows in a cell of `CELLS`."""
        return total(self.confusion, CELLS[cell])

    def is_small(self, cell: str) -> bool:
        """Whether 1 to 10 people stand behind a cell."""
        return 1 <= self.persons[cell] <= SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Veil:
    """What of a group is hidden: all of it, or the rates that tell how its positives or negatives divide.

    `size` hides even which of two words its size is told by.
    """

    size: bool = False
    everything: bool = False
    positives: bool = False
    negatives: bool = False

    def hides(self, cell: str) -> bool:
        """Whether a cell of `CELLS` is hidden."""
        if cell in ("true_positives", "false_negatives"):
            return self.everything or self.positives
        if cell in ("false_positives", "true_negatives"):
            return self.everything or self.negatives
        return self.everything

    def rates(self) -> tuple[str, ...]:
        """The rates that may be shown. Precision and selection rate need both sides."""
        if self.everything:
            return ()
        hidden = {"tpr"} if self.positives else set()
        hidden |= {"fpr"} if self.negatives else set()
        hidden |= {"precision", "selection_rate"} if self.positives or self.negatives else set()
        return tuple(name for name in RATES if name not in hidden)


def count(
    *,
    labels: NDArray[np.bool_],
    flagged: NDArray[np.bool_],
    persons: NDArray[np.intp],
    rates: Mapping[str, RateEstimate | Undefined],
) -> Counts:
    """Count a group's cells.

    Args:
        labels: [rows] of the outcome.
        flagged: [rows], whether the model flags the row.
        persons: [rows] of ids.
        rates: the group's estimates by the names in `RATES`.
    """
    kinds = (labels & flagged, labels & ~flagged, ~labels & flagged, ~labels & ~flagged)
    behind = {
        cell: len(np.unique(persons[np.any([kind for kind, part in zip(kinds, parts, strict=True) if part], axis=0)]))
        for cell, parts in CELLS.items()
    }
    effects = {
        name: found.rows / found.effective if isinstance(found, RateEstimate) else 1.0 for name, found in rates.items()
    }
    confusion = (int(kinds[0].sum()), int(kinds[1].sum()), int(kinds[2].sum()), int(kinds[3].sum()))
    return Counts(confusion=confusion, persons=behind, effects=effects)


def total(confusion: tuple[int, ...], parts: tuple[int, ...]) -> int:
    """The rows of the kinds that `parts` marks with 1."""
    return sum(rows * part for rows, part in zip(confusion, parts, strict=True))


def display(confusion: tuple[int, ...], effects: Mapping[str, float], veil: Veil) -> tuple[object, ...]:
    """All that a reader is told of a group's counts: words, and each shown rate with its interval's size."""
    rows = sum(confusion)
    if veil.everything:
        return (hidden_words(rows, veil),)
    told: list[object] = [words(rows)]
    for name in veil.rates():
        hits, size = (total(confusion, parts) for parts in RATES[name])
        told.append((round(hits / size, DECIMALS), floor_size(size / effects[name])) if size else None)
    return tuple(told)


def words(rows: int) -> str:
    """A count in words: two significant digits, tens below 100; `10 or fewer`."""
    return TINY if rows <= SMALL else f"about {coarse(rows):,}"


def hidden_words(rows: int, veil: Veil) -> str:
    """The count of a group that is not shown. An absent group reads like a tiny one."""
    if veil.size:
        return UNSIZED
    return TINY if rows <= SMALL else MORE


def coarse(rows: int) -> int:
    """To two significant digits, and to tens below 100, where two digits would be exact."""
    return max(10, round(rows, -1)) if rows < 100 else int(float(f"{rows:.1e}"))


def coarse_range(rows: int) -> tuple[int, int]:
    """The fewest and the most rows that `words` tells alike, for more than 10 rows."""
    told, candidates = coarse(rows), range(SMALL + 1, 2 * rows + 20)
    first = bisect.bisect_left(candidates, told, key=coarse)
    last = bisect.bisect_right(candidates, told, key=coarse)
    return candidates[first], candidates[last - 1]


def floor_size(size: float) -> float:
    """An effective size rounded down: to fives below 100, fifties below 1,000, and so on; so to 0 below 5.

    That widens an interval by less than a quarter, from a size of 10 on. Finer steps leave a reader less to
    guess, and so have whole groups hidden for the sake of a few rows elsewhere.
    """
    return size_range(size)[0]


def size_range(size: float) -> tuple[float, float]:
    """The half-open range of sizes that `floor_size` rounds alike."""
    size += 1e-5  # a whole size that arithmetic left a little short is still whole
    grain = max(5.0, 5 * 10.0 ** (math.floor(math.log10(size)) - 1)) if size >= 1 else 5.0
    low = grain * math.floor(size / grain)
    return low, low + grain


def coarse_rate(found: RateEstimate, effect: float, level: float) -> tuple[float, float, float]:
    """Rate, lower and upper bound, from what `display` tells of the rate and nothing else.

    The ends are those of the least favourable rate that rounds alike, at the size rounded down, and are
    rounded outwards: so they enclose the exact interval.
    """
    told, size, half = round(found.hits / found.rows, DECIMALS), floor_size(found.rows / effect), 0.5 / 10**DECIMALS
    if size == 0:
        return told, 0.0, 1.0
    lower, _ = clopper_pearson(share=max(0.0, told - half), size=size, level=level)
    _, upper = clopper_pearson(share=min(1.0, told + half), size=size, level=level)
    return told, outward(lower, -1, DECIMALS), outward(upper, 1, DECIMALS)


def outward(value: float, direction: int, decimals: int) -> float:
    """Round down (direction -1) or up (+1)."""
    scaled = value * 10**decimals
    return (math.floor(scaled + 1e-9) if direction < 0 else math.ceil(scaled - 1e-9)) / 10**decimals
