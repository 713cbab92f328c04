"""Privacy loss distributions of a run, composed numerically (the library's PLDs, add or remove one unit).

Every figure is an upper bound: the discretisation is pessimistic, and a coarser grid gives a larger epsilon.
Source: Meiser and Mohammadi 2018; Koskela, Jälkö and Honkela 2020; Doroshenko et al. 2022 ("connect the
dots").
"""

# pyright: reportMissingTypeStubs=false

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Final, Protocol, cast

from tasks.privacy.events import Mechanism, SampledGaussian

FINE_INTERVAL: Final = 1e-4
_MAX_GRID_POINTS: Final = 2**21  # one mechanism's loss; bounds memory to some hundred MB
_SPAN_IN_SIGMAS: Final = 11.0  # the library cuts the noise where its mass falls below e^-50, at about 10 σ


class Loss(Protocol):
    """What is used of the library's privacy loss distribution."""

    def self_compose(self, num_times: int) -> "Loss":
        """The distribution of `num_times` independent copies."""
        ...

    def compose(self, other: "Loss") -> "Loss":
        """The distribution of both, on one grid."""
        ...

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The least ε ≥ 0 at `delta`; infinite when there is none."""
        ...

    def get_delta_for_epsilon(self, epsilon: Sequence[float]) -> Sequence[float]:
        """δ(ε) at each ε, the larger of adding and removing."""
        ...


def interval_for(mechanisms: Sequence[Mechanism], interval: float) -> float:
    """The grid that is used: `interval`, or a coarser (larger epsilon, still valid) one where σ is tiny.

    The loss of one Gaussian of multiplier σ spans about (1/2 + 11 σ) / σ² on each side.
    """
    widest = max((0.5 + _SPAN_IN_SIGMAS * sigma) / sigma**2 for sigma in map(_sigma_on_grid, mechanisms))
    return max(interval, 2 * widest / _MAX_GRID_POINTS)


def _sigma_on_grid(mechanism: Mechanism) -> float:
    """σ of the one distribution that is laid out: T Gaussian releases at q = 1 are one at σ / √T."""
    if isinstance(mechanism, SampledGaussian) and mechanism.sampling_rate == 1.0:
        return mechanism.noise_multiplier / math.sqrt(mechanism.steps)
    return mechanism.noise_multiplier


@lru_cache(maxsize=16)
def one_step(*, sampling_rate: float, noise_multiplier: float, interval: float) -> Loss:
    """One Gaussian sum over a Poisson sample; sampling rate 1 is the plain Gaussian mechanism."""
    # Imported here: the library takes a second, and whoever only reads the ledger must not pay for it.
    from dp_accounting.pld import privacy_loss_distribution as pld

    loss = pld.from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        value_discretization_interval=interval,
        sampling_prob=sampling_rate,
    )
    return cast("Loss", loss)


def loss_of(mechanism: Mechanism, *, interval: float) -> Loss:
    """All of a mechanism; the T steps of a sampled one by self-composition."""
    sigma = _sigma_on_grid(mechanism)
    if isinstance(mechanism, SampledGaussian) and mechanism.sampling_rate < 1.0:
        step = one_step(sampling_rate=mechanism.sampling_rate, noise_multiplier=sigma, interval=interval)
        return step.self_compose(mechanism.steps)
    return one_step(sampling_rate=1.0, noise_multiplier=sigma, interval=interval)


def composed(losses: Sequence[Loss]) -> Loss:
    """Compose distributions on one grid; at least one."""
    return reduce(lambda left, right: left.compose(right), losses)


def epsilon_on_grid(mechanisms: Sequence[Mechanism], *, delta: float, interval: float) -> float:
    """Epsilon of the composition at `delta`; exactly 0 for no mechanism. Unchecked: callers guard it."""
    return _epsilon(tuple(mechanisms), delta, interval) if mechanisms else 0.0


@lru_cache(maxsize=1024)  # of numbers alone: one run asks for the same figure several times, at a quarter second each
def _epsilon(mechanisms: tuple[Mechanism, ...], delta: float, interval: float) -> float:
    return float(total_loss(mechanisms, interval=interval).get_epsilon_for_delta(delta))


def total_loss(mechanisms: Sequence[Mechanism], *, interval: float) -> Loss:
    """The distribution of the composition of at least one mechanism. Unguarded: callers guard it."""
    grid = interval_for(mechanisms, interval)
    return composed([loss_of(mechanism, interval=grid) for mechanism in mechanisms])
