"""What a run's privacy loss allows any membership inference, at every false positive rate.

A test that tells "this unit was in" from "it was not" on an (ε, δ)-private output obeys, at every point of the
curve δ(ε),

    TPR ≤ e^ε FPR + δ(ε)    and    1 - FPR ≤ e^ε (1 - TPR) + δ(ε)

(Kairouz, Oh and Viswanath 2015, theorem 2.1), so the whole curve, of which one (ε, δ) is a single point, gives the
tighter ceiling: its lower envelope. The advantage TPR - FPR is at most δ(0), the total variation distance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from configs.errors import AccountingError
from tasks.privacy.accounting import person_loss
from tasks.privacy.events import Mechanism, SampledGaussian
from tasks.privacy.guard import guarded
from tasks.privacy.losses import Loss, total_loss

_EPSILONS: Final = (*(index / 50 for index in range(500)), *(index / 4 for index in range(40, 401)))
_INTERVAL: Final = 1e-3  # ten times coarser than for epsilon: less than 1e-4 larger, and ten times faster
_AUC_POINTS: Final = 10_000
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that any attack on one unit can reach.

    Attributes:
        curve: pairs (ε, δ(ε)), ε ≥ 0, every one of which holds.

    Raises:
        AccountingError: a pair is out of range, or there is none.
    """

    curve: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.curve or any(
            not (math.isfinite(epsilon) and epsilon >= 0 and 0 <= delta <= 1) for epsilon, delta in self.curve
        ):
            raise AccountingError("a ceiling needs pairs of a finite ε ≥ 0 and a δ in [0, 1], at least one")

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Highest true positive rate at a false positive rate in [0, 1]."""
        if not 0 <= false_positive_rate <= 1:
            raise AccountingError(f"a false positive rate of {false_positive_rate!r} is outside [0, 1]")
        return float(self._envelope(np.array([false_positive_rate]))[0])

    def _envelope(self, rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Highest true positive rate at each false positive rate [n]."""
        epsilon, delta = np.array(self.curve).T[:, :, None]
        forward = np.exp(epsilon) * rates + delta
        backward = 1 - np.exp(-epsilon) * np.maximum(1 - delta - rates, 0)
        return np.minimum(np.minimum(forward, backward).min(axis=0), 1.0)

    @property
    def advantage(self) -> float:
        """Highest TPR - FPR: (e^ε - 1 + 2δ) / (e^ε + 1) at the best pair, which is δ(0) where 0 is on the curve."""
        return min((math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1) for epsilon, delta in self.curve)

    @property
    def accuracy(self) -> float:
        """Highest balanced accuracy."""
        return (1 + self.advantage) / 2

    @property
    def auc(self) -> float:
        """Highest AUC: the envelope's integral from above, at most 1e-4 too large."""
        return float(self._envelope(np.arange(1, _AUC_POINTS + 1) / _AUC_POINTS).mean())


def ceiling(*, mechanisms: Sequence[Mechanism]) -> Ceiling:
    """The ceiling for one unit, from the run's privacy loss distribution.

    Args:
        mechanisms: what runs, at least one.

    Raises:
        AccountingError: it cannot be computed.
    """
    return _ceiling(lambda: total_loss(mechanisms, interval=_INTERVAL))


def person_ceiling(*, mechanism: SampledGaussian, others: Sequence[Mechanism] = (), rows: int) -> Ceiling:
    """The ceiling for a person with up to `rows` rows where the mechanisms protect one row.

    Raises:
        AccountingError: it cannot be computed; ConfigurationError: rows < 1.
    """
    return _ceiling(lambda: person_loss(mechanism=mechanism, others=others, rows=rows))


def _ceiling(loss: Callable[[], Loss]) -> Ceiling:
    def compute() -> Ceiling:
        deltas = loss().get_delta_for_epsilon(list(_EPSILONS))
        return Ceiling(curve=tuple(zip(_EPSILONS, map(_share, deltas), strict=True)))

    return guarded(what="the ceiling of attacks", compute=compute)


def _share(delta: float) -> float:
    """δ without the rounding error that takes a sum of probabilities out of [0, 1]; a larger one is refused."""
    return min(max(float(delta), 0.0), 1.0) if -_ROUNDING <= delta <= 1 + _ROUNDING else float(delta)
