"""A reader who wants to know a small cell: exact enumeration, without anything of `disclosure` or `worlds`.

For each group the attacker lists every table of counts that would have been published in just these words and
numbers, and then keeps those for which the other groups can make up the rest of the total. Rows are one per
person, so the intervals have no design effect to guess. Scores are free: an AUC excludes no count.
"""

import numpy as np
from scipy.signal import fftconvolve

from tasks.fairness.cells import RATES, coarse_rate, floor_size
from tasks.fairness.suppression import HIDDEN, Number, PublishedGroup
from tasks.statistics.proportions import RateEstimate


def possible(group: PublishedGroup, totals: tuple[int, ...], min_count: int) -> np.ndarray:
    """Which counts (true positives, false negatives, false positives, true negatives) fit a published group.

    Returns:
        bool [totals + 1], by the four counts.
    """
    shape = tuple(total + 1 for total in totals)
    counts = np.indices(shape).reshape(4, -1)
    rows = counts.sum(0)
    if not group.shown:
        fits = {"10 or fewer": rows <= 10, "more than 10": rows > 10, "not shown": rows >= 0}[group.rows]
        return fits.reshape(shape)
    fits = np.array([group.rows == _about(n) for n in range(rows.max() + 1)])[rows]
    for cell in (counts[0] + counts[1], counts[2] + counts[3]):
        fits &= (cell == 0) | (cell > 10)
    fits &= ((counts[0] + counts[1] >= min_count) & (counts[2] + counts[3] >= min_count)) == group.gated
    for name, number in group.metrics:
        if name in RATES and number.why != HIDDEN:
            fits[fits] = _reads(name, number, counts[:, fits])
    return fits.reshape(shape)


def values(cell: tuple[int, ...], at: int, worlds: list[np.ndarray], totals: tuple[int, ...]) -> set[int]:
    """All values that a cell of one group can have, given every group's possible counts and the exact totals."""
    rest = np.zeros_like(worlds[0])
    rest[(0,) * rest.ndim] = True
    for other, possibilities in enumerate(worlds):
        if other != at:
            rest = (
                fftconvolve(rest.astype(float), possibilities.astype(float))[tuple(slice(t + 1) for t in totals)] > 0.5
            )
    # What the others can add up to, seen from the total: rest[T - x] for every x of this group.
    feasible = worlds[at] & rest[(slice(None, None, -1),) * rest.ndim]
    found = np.argwhere(feasible) @ np.array(cell)
    return {int(value) for value in found}


def _reads(name: str, number: Number, counts: np.ndarray) -> np.ndarray:
    """Which counts [4, n] would have been published as this number."""
    numerator, denominator = (np.array(parts) @ counts for parts in RATES[name])
    if number.value is None:
        return denominator == 0
    fits = denominator > 0
    fits[fits] = np.round(numerator[fits] / denominator[fits], 2) == number.value
    told: dict[tuple[float, float], bool] = {}
    for at in np.flatnonzero(fits):
        hits, rows = int(numerator[at]), int(denominator[at])
        key = (round(hits / rows, 2), floor_size(rows))
        if key not in told:
            estimate = RateEstimate(rate=hits / rows, lower=0.0, upper=1.0, hits=hits, rows=rows, effective=rows)
            told[key] = coarse_rate(estimate, 1.0, 0.95) == (number.value, number.lower, number.upper)
        fits[at] = told[key]
    return fits


def _about(rows: int) -> str:
    if rows <= 10:
        return "10 or fewer"
    digits = max(1, len(str(rows)) - 2)
    return f"about {max(10, round(rows, -digits)):,}"
