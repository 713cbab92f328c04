"""Poisson sampling over units: each unit joins each step independently with probability q."""

import math

import numpy as np
from numpy.typing import NDArray

from tasks.dpsgd.csprng import Keystream, uniform


class PoissonSampler:
    """Draws Poisson samples of `range(units)` in time proportional to the sample, not to the number of units.

    The gaps between members of a Bernoulli(q) sequence are geometric, ⌊log U / log(1-q)⌋, so the sampler
    walks from member to member instead of asking every unit.

    Args:
        units: the number of units that exist, ≥ 0 (private: it must not be logged).
        sampling_rate: q in (0, 1], from the plan. With q = 1 every step takes every unit.
        keystream: where the randomness comes from.
    """

    def __init__(self, *, units: int, sampling_rate: float, keystream: Keystream) -> None:
        if not 0 < sampling_rate <= 1:
            raise ValueError(f"sampling_rate = {sampling_rate!r} must lie in (0, 1]")
        self._units = units
        self._rate = sampling_rate
        self._keystream = keystream

    def draw(self) -> NDArray[np.int64]:
        """One step's sample: increasing unit numbers, int64. It may be empty, and is then a real step."""
        if self._rate == 1.0:
            return np.arange(self._units, dtype=np.int64)
        mean = self._units * self._rate
        count = int(mean + 6 * math.sqrt(mean) + 16)  # one block nearly always reaches the end
        blocks: list[NDArray[np.int64]] = []
        last = -1
        while last < self._units:
            block = last + np.cumsum(self._gaps(count) + 1)
            last = int(block[-1])
            blocks.append(block)
        members = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int64)
        return members[members < self._units]

    def _gaps(self, count: int) -> NDArray[np.int64]:
        # log1p keeps log(1-q) exact for small q; a gap beyond the last unit is cut, lest its cast overflow
        gaps = np.floor(np.log(uniform(self._keystream, count)) / math.log1p(-self._rate))
        return np.minimum(gaps, self._units).astype(np.int64)
