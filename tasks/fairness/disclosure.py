"""Which groups and rates must be hidden so that no small cell can be read or derived.

A reader is taken to know more than is published: every total exactly, how intersections add up to their
attributes, and each interval's design effect. A *world* is a table of whole counts that agrees with all this
and with everything shown (`cells.display`). A small cell is safe if worlds differ in it by `SPREAD` or more
within 1 to 10, so that it would be hidden in each of them. So must be a sum of hidden groups that the reader
can form, where that sum is small itself. How worlds are found and checked: `worlds`.

First every small cell is hidden; then, while one is not safe, the smallest group that shares a sum with it.
Where the rounding of a large group already leaves the reader guessing, nothing more is hidden: three rows of
unknown sex need not take the men out of the report. What finds no world, for whatever reason, is not safe.

Not modelled: what a reader learns from which group was hidden second, and what several reports say together. Many
models judged on the same rows narrow a hidden count down (measured: ten reports, from 3–11 to 8–11); reports on rows
that differ by one person tell of that person.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tasks.fairness.cells import CELLS, Counts, Veil
from tasks.fairness.worlds import Search, Sum, Target, small_totals, together_small, value

SPREAD = 4  # highest less lowest count that a small cell may have had: five values, half of 1 to 10


def sums(groups: Mapping[str, Sequence[str]], rows: Mapping[str, NDArray[np.object_]]) -> tuple[Sum, ...]:
    """How groups add up, found in the rows themselves, whatever the attributes are called.

    Args:
        groups: by attribute, the names of its groups; positions count through all of them in this order.
        rows: by attribute, the group of each row.

    Returns:
        Each attribute's sum to the total; and, where each group of one attribute lies within one group of
        another (an intersection, or finer bands), the sums of the finer to the coarser. Groups without rows
        are left out.
    """
    position = {key: at for at, key in enumerate((name, group) for name in groups for group in groups[name])}
    found = [
        Sum(members=tuple(position[name, group] for group in groups[name] if np.any(rows[name] == group)))
        for name in groups
    ]
    for fine in groups:
        for coarse in groups:
            pairs = set(zip(rows[fine], rows[coarse], strict=True))
            if fine == coarse or len(pairs) > len({child for child, _ in pairs}):
                continue
            for parent in groups[coarse]:
                members = tuple(sorted(position[fine, child] for child, above in pairs if above == parent))
                if members:
                    found.append(Sum(members=members, target=position[coarse, parent]))
    return tuple(found)


def veils(groups: Sequence[Counts], equations: Sequence[Sum], *, min_count: int) -> tuple[Veil, ...]:
    """Decide what to hide of each group.

    Args:
        groups: counts by position.
        equations: how they add up (`sums`).
        min_count: positives and negatives from which a group is gated, which is told of every shown group.

    Returns:
        The veil of each group, by position. Where a total is small itself, its cell is hidden in every group,
        and the total is not taken as known. Where hiding every group is not enough, their sizes are hidden too.
    """
    hidden = [_primary(counts) for counts in groups]
    for cell in small_totals(groups, equations):
        hidden = [veil if veil.hides(cell) else _hide(veil, cell) for veil in hidden]
    while (exposed := _first_exposed(groups, hidden, equations, min_count)) is not None:
        at = _next_to_hide(groups, hidden, equations, exposed)
        if at is None:
            return tuple(Veil(everything=True, size=True) for _ in groups)
        hidden[at] = _hide(hidden[at], exposed.cell)
    return tuple(hidden)


def _primary(counts: Counts) -> Veil:
    return Veil(
        everything=counts.of("rows") == 0 or any(counts.is_small(cell) for cell in ("rows", "positives", "negatives")),
        positives=counts.is_small("true_positives") or counts.is_small("false_negatives"),
        negatives=counts.is_small("false_positives") or counts.is_small("true_negatives"),
    )


def _hide(veil: Veil, cell: str) -> Veil:
    if cell in ("true_positives", "false_negatives") and not veil.hides(cell):
        return replace(veil, positives=True)
    if cell in ("false_positives", "true_negatives") and not veil.hides(cell):
        return replace(veil, negatives=True)
    return replace(veil, everything=True)


def _next_to_hide(
    groups: Sequence[Counts], hidden: Sequence[Veil], equations: Sequence[Sum], exposed: Target
) -> int | None:
    """The smallest group that shares a sum with what is exposed, or with what is hidden already."""

    def open_members(found: Iterator[Sum]) -> list[int]:
        return [at for equation in found for at in equation.members if not hidden[at].hides(exposed.cell)]

    # A line of an intersection first: hiding elsewhere in its attribute cannot help where one line tells all.
    touched = {at for at, veil in enumerate(hidden) if veil.hides(exposed.cell) and groups[at].of("rows")}
    near = [equation for equation in equations if touched & {*equation.members, equation.target}]
    candidates = (
        open_members(each for each in near if each.target is not None and set(exposed.groups) & set(each.members))
        or open_members(each for each in near if set(exposed.groups) & set(each.members))
        or open_members(iter(near))
        or [at for at, veil in enumerate(hidden) if not veil.everything]
    )
    return min(candidates, key=lambda at: (groups[at].of("rows"), at), default=None)


def _first_exposed(
    groups: Sequence[Counts], hidden: Sequence[Veil], equations: Sequence[Sum], min_count: int
) -> Target | None:
    """A small cell that no two worlds tell apart by `SPREAD`, or None if all are safe."""
    targets = _targets(groups, hidden, equations)
    if not targets:
        return None
    search = Search(groups, hidden, equations, min_count)
    low = {target: value(target, search.truth) for target in targets}
    high = dict(low)
    for target in targets:
        for direction in (1, -1):
            if high[target] - low[target] >= SPREAD:
                break
            world = search.world(target, direction)
            if world is None:
                continue
            for each in targets:
                least, most = search.small_range(each)
                if least <= (rows := value(each, world)) <= most:
                    low[each], high[each] = min(low[each], rows), max(high[each], rows)
        if high[target] - low[target] < SPREAD:
            return target
    return None


def _targets(groups: Sequence[Counts], hidden: Sequence[Veil], equations: Sequence[Sum]) -> list[Target]:
    """Every hidden small cell, and every small sum of hidden ones that an equation lets a reader form."""
    found: dict[Target, None] = {}
    unknown = small_totals(groups, equations)
    for cell in CELLS:
        for at, counts in enumerate(groups):
            if hidden[at].hides(cell) and counts.is_small(cell):
                found[Target(cell=cell, groups=(at,))] = None
        for equation in equations:
            pool = Target(cell=cell, groups=tuple(at for at in equation.members if hidden[at].hides(cell)))
            known = cell not in unknown if equation.target is None else not hidden[equation.target].hides(cell)
            if known and len(pool.groups) > 1 and together_small(groups, pool):
                found[pool] = None
    return list(found)
