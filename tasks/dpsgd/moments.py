"""Means and variances of the features as one charged Gaussian release."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import ConfigurationError
from tasks.dpsgd.csprng import Keystream, SystemKeystream, normal
from tasks.dpsgd.units import UnitBatch, UnitRecords

STD_FLOOR = 0.15  # public: a rare 0/1 column would otherwise be blown up, and its noise with it
_CHUNK = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Released statistics of the features over units; post-processing is free.

    Attributes:
        mean: float64 [d].
        std: float64 [d], at least 0.15.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]


def release_moments(
    *,
    records: UnitRecords,
    numeric: NDArray[np.bool_],
    bound: float,
    noise_multiplier: float,
    units: int,
    claim: Callable[[int], None],
) -> Moments:
    """Release means and variances by one Gaussian mechanism.

    A unit contributes the mean over its rows of (x, x² of the numeric columns), clipped to norm R; the sum
    gets noise N(0, (σR)²) and is divided by the public number of units.

    Args:
        records: the training units, features encoded with public bounds.
        numeric: bool [d]; the other columns hold 0 or 1, whose variance is p·(1-p).
        bound: R > 0, the L2 bound of a unit's vector, from the public encoding.
        noise_multiplier: σ > 0 over R, as in the plan.
        units: public nominal number of units.
        claim: called with 1 before anything is computed: the moments are the plan's first mechanism.

    Raises:
        ConfigurationError: a parameter is out of its range.
        BudgetError: the claim was refused.
    """
    _check(records, numeric, bound, noise_multiplier, units)
    claim(1)
    total = bounded_sum(records=records, numeric=numeric, bound=bound)
    return _moments(_noisy(total, noise_multiplier * bound, SystemKeystream()) / units, numeric)


def bounded_sum(*, records: UnitRecords, numeric: NDArray[np.bool_], bound: float) -> NDArray[np.float64]:
    """Σ over units of their clipped vectors, float64 [d + numeric columns]. Never to be released.

    Removing one unit moves it by at most `bound`, whatever the unit's rows hold.
    """
    columns = torch.from_numpy(np.flatnonzero(numeric))
    total = torch.zeros(len(numeric) + len(columns), dtype=torch.float64)
    for chunk in torch.arange(len(records)).split(_CHUNK):
        total += _clipped(_vectors(records.gather(chunk), columns), bound).sum(dim=0)
    return total.numpy()


def _vectors(batch: UnitBatch, columns: Tensor) -> Tensor:
    # gathered padding is zero, so the sum over k is the sum over rows
    rows = batch.mask.sum(dim=1, keepdim=True).double()
    mean = batch.features.sum(dim=1, dtype=torch.float64) / rows
    square = batch.features.index_select(2, columns).double().square().sum(dim=1) / rows
    return torch.cat([mean, square], dim=1)


def _clipped(vectors: Tensor, bound: float) -> Tensor:
    norms = torch.linalg.vector_norm(vectors, dim=1)
    finite = norms.isfinite()
    kept, sizes = vectors[finite], norms[finite]
    return kept * (bound / sizes.clamp(min=bound)).unsqueeze(1)


def _noisy(total: NDArray[np.float64], deviation: float, keystream: Keystream) -> NDArray[np.float64]:
    return total + deviation * normal(keystream, len(total))


def _moments(averages: NDArray[np.float64], numeric: NDArray[np.bool_]) -> Moments:
    mean = averages[: len(numeric)]
    share = mean.clip(0.0, 1.0)
    variance = share * (1 - share)
    variance[numeric] = averages[len(numeric) :] - mean[numeric] ** 2
    return Moments(mean=mean, std=np.sqrt(variance.clip(min=STD_FLOOR**2)))


def _check(records: UnitRecords, numeric: NDArray[np.bool_], bound: float, noise_multiplier: float, units: int) -> None:
    faults: list[str] = []
    if numeric.shape != (records.features.shape[1],) or numeric.dtype != np.bool_:
        faults.append("numeric must hold one bool for each feature")
    for name, value in (("bound", bound), ("moments.noise_multiplier", noise_multiplier), ("units", units)):
        if not (np.isfinite(value) and value > 0):
            faults.append(f"{name} = {value!r} must be finite and above 0")
    if faults:
        raise ConfigurationError.of("moments", faults)
