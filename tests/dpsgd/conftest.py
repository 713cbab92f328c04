import numpy as np
import pytest
import torch

from tasks.dpsgd.units import UnitRecords


class SeededKeystream:
    """Replayable words, for tests alone."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, count):
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


@pytest.fixture
def seeded_keystreams(monkeypatch):
    """Makes the loop's two keystreams the same in every run: `seeded_keystreams(seed)` before each."""

    def install(seed):
        seeds = iter(range(seed, seed + 100))
        monkeypatch.setattr("tasks.dpsgd.loop.SystemKeystream", lambda: SeededKeystream(next(seeds)))

    return install


@pytest.fixture
def make_records():
    """Records of `units` units with 1 to `most` rows each and `features` standard normal columns."""

    def make(units, features=5, most=1, seed=0):
        generator = np.random.default_rng(seed)
        counts = generator.integers(1, most + 1, size=units)
        persons = generator.permutation(np.repeat(np.arange(units), counts))
        rows = generator.normal(size=(len(persons), features)).astype(np.float32)
        labels = (rows[:, 0] + generator.normal(size=len(rows)) > 0).astype(np.float32)
        return UnitRecords.of_persons(
            features=torch.from_numpy(rows),
            labels=torch.from_numpy(labels),
            persons=persons,
            rows_per_person=most,
        )

    return make
