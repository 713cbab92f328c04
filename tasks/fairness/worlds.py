"""Tables of whole counts that a reader cannot tell from the true one.

A *world* agrees with every total, with how groups add up, and with all that `cells.display` tells of the
groups that are shown. Worlds are sought by integer programming over a group's four kinds of rows: being
rounded to the same rate is linear in them. One is returned only after whole numbers have been put into
`display` and read the same, so the solver's tolerances prove nothing, and no answer means no world.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, milp

from tasks.fairness.cells import CELLS, DECIMALS, RATES, SMALL, Counts, Veil, coarse_range, display, size_range, total

KINDS = 4
SIDES = {"positives": ("true_positives", "false_negatives"), "negatives": ("false_positives", "true_negatives")}
_NODES = 2000  # of branch and bound; a limit in seconds would make the answer depend on the machine

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Groups, by position, whose cells add up to another group's, or to the total if `target` is None."""

    members: tuple[int, ...]
    target: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cell of one hidden group, or of several together, that must not be derivable."""

    cell: str
    groups: tuple[int, ...]


def small_totals(groups: Sequence[Counts], equations: Sequence[Sum]) -> set[str]:
    """The cells of which the evaluation as a whole has 1 to 10."""
    whole = [equation.members for equation in equations if equation.target is None]
    return {cell for cell in CELLS for members in whole if together_small(groups, Target(cell=cell, groups=members))}


def together_small(groups: Sequence[Counts], target: Target) -> bool:
    """Whether 1 to 10 people stand behind a cell of several groups together."""
    return 1 <= sum(groups[at].persons[target.cell] for at in target.groups) <= SMALL


def value(target: Target, world: tuple[tuple[int, ...], ...]) -> int:
    """The target's rows in a world."""
    return sum(total(world[at], CELLS[target.cell]) for at in target.groups)


class Search:
    """Worlds that a reader cannot tell from the truth: confusion counts [groups][4].

    Args:
        groups: true counts, by position.
        hidden: what is hidden of each.
        equations: how the groups add up.
        min_count: positives and negatives from which a shown group is seen to be gated.
    """

    def __init__(
        self, groups: Sequence[Counts], hidden: Sequence[Veil], equations: Sequence[Sum], min_count: int
    ) -> None:
        self._min_count = min_count
        self.truth = tuple(counts.confusion for counts in groups)
        self._groups, self._hidden = groups, hidden
        self._told = [display(c.confusion, c.effects, veil) for c, veil in zip(groups, hidden, strict=True)]
        self._equal = self._equations(equations)
        rows = [row for at in range(len(groups)) for row in self._limits(at)]
        matrix = np.array([row for row, _, _ in rows]).reshape(-1, KINDS * len(groups))
        equal = self._equal @ self._flat(self.truth)
        self._constraints = [
            (matrix, np.array([low for _, low, _ in rows]), np.array([high for _, _, high in rows])),
            (self._equal, equal, equal),
        ]

    def world(self, target: Target, direction: int) -> tuple[tuple[int, ...], ...] | None:
        """A world with as many rows (direction 1) or as few (-1) in a cell as there can be while it is small."""
        aim = sum((self._vector(at, CELLS[target.cell]) for at in target.groups), np.zeros(self._equal.shape[1]))
        low, high = self.small_range(target)
        found = milp(
            -direction * aim,
            constraints=[*self._constraints, (aim[None, :], low, high)],
            integrality=np.ones(aim.size),
            bounds=Bounds(0, float(sum(map(sum, self.truth)))),
            options={"node_limit": _NODES},
        )
        if found.x is None or not np.isfinite(found.x).all():
            return None
        whole = np.round(found.x).astype(np.int64).reshape(-1, KINDS)
        world = tuple(tuple(int(rows) for rows in counts) for counts in whole)
        return world if self._agrees(world) else None

    def small_range(self, target: Target) -> tuple[int, int]:
        """The rows that a small cell may have and still be small: no more than it has, if those are few people's."""
        return 1, max(SMALL, value(target, self.truth))

    def _agrees(self, world: tuple[tuple[int, ...], ...]) -> bool:
        """Whether a reader is told the same in this world, checked in whole numbers."""
        flat = self._flat(world)
        if flat.min() < 0 or not np.array_equal(self._equal @ flat, self._equal @ self._flat(self.truth)):
            return False
        for counts, veil, rows, told in zip(self._groups, self._hidden, world, self._told, strict=True):
            if display(rows, counts.effects, veil) != told:
                return False
            for cell in CELLS:
                low, high = self._allowed(counts, veil, cell)
                if not low <= total(rows, CELLS[cell]) <= high:
                    return False
        return True

    def _equations(self, equations: Sequence[Sum]) -> Floats:
        known = _known_totals(small_totals(self._groups, equations))
        rows = [np.zeros(KINDS * len(self.truth))]
        for equation in equations:
            for parts in known if equation.target is None else np.eye(KINDS, dtype=int):
                row = sum((self._vector(at, parts) for at in equation.members), np.zeros(KINDS * len(self.truth)))
                rows.append(row if equation.target is None else row - self._vector(equation.target, parts))
        return np.array(rows)

    def _limits(self, at: int) -> Iterator[tuple[Floats, float, float]]:
        """What is known of one group, as low ≤ row · counts ≤ high."""
        counts, veil = self._groups[at], self._hidden[at]
        for cell, parts in CELLS.items():
            low, high = self._allowed(counts, veil, cell)
            yield self._vector(at, parts), low, high
        if veil.everything:
            return
        fewest, most = coarse_range(counts.of("rows"))
        yield self._vector(at, CELLS["rows"]), fewest, most
        for name in veil.rates():
            hits, size = (self._vector(at, parts) for parts in RATES[name])
            rows, effect = float(size @ self._flat(self.truth)), counts.effects[name]
            if not rows:
                yield size, 0.0, 0.0
                continue
            told = round(float(hits @ self._flat(self.truth)) / rows, DECIMALS)
            half = 0.4999 / 10**DECIMALS  # just inside, for at the edge itself rounding may go either way
            yield hits - (told - half) * size, 0.0, np.inf
            yield hits - (told + half) * size, -np.inf, 0.0
            low, high = size_range(rows / effect)
            yield size, low * effect, (high - 1e-3) * effect

    def _allowed(self, counts: Counts, veil: Veil, cell: str) -> tuple[float, float]:
        """The counts of a cell that a reader has to reckon with, or fewer, which proves too little."""
        rows = counts.of(cell)
        if counts.of("rows") == 0:
            return 0.0, 0.0
        if veil.everything and not veil.size and cell == "rows":  # told as one of two words
            return (0.0, float(SMALL)) if rows <= SMALL else (SMALL + 1.0, np.inf)
        if veil.hides(cell):
            return 0.0, np.inf
        if cell in SIDES and rows >= self._min_count:
            return max(SMALL + 1.0, self._min_count), np.inf
        most = self._min_count - 1.0 if cell in SIDES else np.inf
        return (0.0, 0.0) if rows == 0 else (SMALL + 1.0, most)  # a shown cell has no people, or more than ten

    def _vector(self, at: int, parts: Sequence[int] | NDArray[np.int_]) -> Floats:
        vector = np.zeros(KINDS * len(self.truth))
        vector[KINDS * at : KINDS * (at + 1)] = parts
        return vector

    @staticmethod
    def _flat(world: tuple[tuple[int, ...], ...]) -> Floats:
        return np.array(world, dtype=np.float64).ravel()


def _known_totals(unknown: set[str]) -> list[tuple[int, int, int, int]]:
    """The totals that a reader knows: of each kind, or of a side where one of its kinds is small."""
    if unknown & {"rows", "positives", "negatives"}:
        return []
    known: list[tuple[int, int, int, int]] = []
    for side, kinds in SIDES.items():
        known += [CELLS[side]] if unknown & set(kinds) else [CELLS[kind] for kind in kinds]
    return known
