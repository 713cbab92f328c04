"""Records arranged by privacy unit: one row, or one person with up to k rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import DataError

PADDING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBatch:
    """Some units with their rows; a unit is one sample.

    Attributes:
        features: float32 [B, k, d]; zero where there is no row.
        labels: float32 [B, k], 0 or 1; zero where there is no row.
        mask: bool [B, k]; true where there is a row.
    """

    features: Tensor
    labels: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return self.features.shape[0]

    def select(self, which: Tensor | slice) -> "UnitBatch":
        """The units picked by `which`: a bool [B], an int64 [any] or a slice."""
        return UnitBatch(features=self.features[which], labels=self.labels[which], mask=self.mask[which])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecords:
    """All training rows and which unit owns them.

    Attributes:
        features: float32 [rows, d].
        labels: float32 [rows], 0 or 1.
        index: int64 [units, k]: the rows of each unit, padded on the right with -1. A row has one owner.

    Raises:
        DataError: shapes or types disagree, a row belongs to two units, or a unit has no row.
    """

    features: Tensor
    labels: Tensor
    index: Tensor
    counts: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", (self.index != PADDING).sum(dim=1) if self.index.dim() == 2 else None)
        _check(self)

    @classmethod
    def of_rows(cls, *, features: Tensor, labels: Tensor) -> "UnitRecords":
        """Every row is a unit of its own."""
        return cls(features=features, labels=labels, index=torch.arange(len(features)).unsqueeze(1))

    @classmethod
    def of_persons(
        cls, *, features: Tensor, labels: Tensor, persons: NDArray[np.int64], rows_per_person: int
    ) -> "UnitRecords":
        """One unit a person.

        Args:
            features: float32 [rows, d].
            labels: float32 [rows].
            persons: int [rows], equal for rows of the same person.
            rows_per_person: k, the public cap.

        Raises:
            DataError: a person has more than `rows_per_person` rows; cap them by a keyed draw first.
        """
        order = np.argsort(persons, kind="stable")
        starts = np.flatnonzero(np.diff(persons[order], prepend=persons[order[:1]] - 1))
        counts = np.diff(np.append(starts, len(order)))
        if len(counts) and counts.max() > rows_per_person:
            raise DataError(f"a person has more than max_rows_per_person = {rows_per_person} rows: cap them first")
        index = np.full((len(counts), rows_per_person), PADDING, dtype=np.int64)
        place = np.arange(len(order)) - np.repeat(starts, counts)
        index[np.repeat(np.arange(len(counts)), counts), place] = order
        return cls(features=features, labels=labels, index=torch.from_numpy(index))

    def __len__(self) -> int:
        return self.index.shape[0]

    @property
    def rows_per_unit(self) -> int:
        """k, the most rows that a unit may hold."""
        return self.index.shape[1]

    def gather(self, units: Tensor, *, width: int | None = None) -> UnitBatch:
        """The units numbered by `units`, int64 [B], with their first `width` rows (all k by default)."""
        rows = self.index.index_select(0, units)[:, :width]
        mask = rows != PADDING
        flat = rows.clamp(min=0).flatten()
        features = self.features.index_select(0, flat)
        labels = self.labels.index_select(0, flat)
        padded = (~mask).flatten().nonzero().squeeze(1)
        if len(padded):  # row 0 stands in for padding: left there, its NaN would poison other units
            features.index_fill_(0, padded, 0.0)
            labels.index_fill_(0, padded, 0.0)
        return UnitBatch(features=features.view(*rows.shape, -1), labels=labels.view(rows.shape), mask=mask)

    def batches(self, units: Tensor, *, physical_batch: int) -> Iterator[UnitBatch]:
        """The units in micro-batches of at most `physical_batch`, those with like numbers of rows together.

        Most persons have one row; keeping them apart from those with k saves computing on padding. The sum
        over units does not depend on the order.
        """
        counts = self.counts.index_select(0, units)
        low, high = 0, 1
        while low < self.rows_per_unit:
            width = min(high, self.rows_per_unit)
            group = units[(counts > low) & (counts <= width)]
            for chunk in group.split(physical_batch) if len(group) else ():
                yield self.gather(chunk, width=width)
            low, high = width, 2 * high


def _check(records: UnitRecords) -> None:
    features, labels, index = records.features, records.labels, records.index
    if features.dim() != 2 or labels.shape != features.shape[:1] or index.dim() != 2 or index.shape[1] < 1:
        raise DataError("records must have features [rows, d], labels [rows] and an index [units, k] with k ≥ 1")
    if features.dtype != torch.float32 or labels.dtype != torch.float32 or index.dtype != torch.int64:
        raise DataError("features and labels must be float32, the index of units int64")
    owned = index[index != PADDING]
    if len(owned) and (int(owned.min()) < 0 or int(owned.max()) >= len(features)):
        raise DataError("the index of units points outside the rows")
    if len(owned) and int(torch.bincount(owned).max()) > 1:
        raise DataError("a row belongs to two units: the claim would cover neither")
    if len(index) and int(records.counts.min()) < 1:
        raise DataError("a unit has no row: leave it out")
    if bool(((index[:, :-1] == PADDING) & (index[:, 1:] != PADDING)).any()):
        raise DataError("the index of units must be padded on the right")
