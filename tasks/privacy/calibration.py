"""The inverse problem: the least noise that keeps a run within its epsilon.

The answer is on the private side by construction: it is a multiple of 1e-4 whose epsilon was computed on the
fine grid and found within the target, and whose lower neighbour was found outside. Coarser grids only decide
where to look.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, cast

from configs.errors import AccountingError, BudgetError
from tasks.privacy.events import Mechanism, SampledGaussian
from tasks.privacy.guard import checked_delta, checked_epsilon, guarded
from tasks.privacy.losses import FINE_INTERVAL, epsilon_on_grid

DECIMALS: Final = 4
_SCALE: Final = 10**DECIMALS
_LEAST, _MOST = 0.05, 10_000.0  # outside, a target asks for no protection at all, or for no learning at all
_COARSE_SHARE: Final = 1e-3  # grid for the search, as a share of the target
_TINY: Final = 1e-12  # an epsilon of 0 has no logarithm


def calibrate_noise(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    others: Sequence[Mechanism] = (),
) -> float:
    """The smallest σ, rounded up to 4 decimals, for which T steps and `others` stay within (ε, δ) under PLD.

    Args:
        epsilon: the target, finite and above 0.
        delta: in (0, 1).
        sampling_rate: q in (0, 1].
        steps: T ≥ 1.
        others: releases that the same run makes besides, e.g. the moments.

    Returns:
        σ, a multiple of 1e-4, with PLD(σ) ≤ ε and PLD > ε one multiple below, on the grid of 1e-4.

    Raises:
        BudgetError: `others` alone use the target up, or no amount of noise reaches it.
        AccountingError: epsilon could not be computed.
        ConfigurationError: a value is outside its range.
    """
    delta = checked_delta(delta)
    target = checked_epsilon(what="the target epsilon", value=epsilon)
    if target == 0:
        raise BudgetError("epsilon = 0 allows no training at all: raise privacy.run.epsilon")
    # Built once here, so that a wrong q or T is refused before the search.
    SampledGaussian(sampling_rate=sampling_rate, noise_multiplier=1.0, steps=steps)

    def at(sigma: float, interval: float) -> float:
        run = SampledGaussian(sampling_rate=sampling_rate, noise_multiplier=sigma, steps=steps)
        value = epsilon_on_grid([*others, run], delta=delta, interval=interval)
        return checked_epsilon(what="epsilon (PLD)", value=value)

    def search() -> float:
        alone = epsilon_on_grid(others, delta=delta, interval=FINE_INTERVAL)
        if not alone < target:
            raise BudgetError(
                f"the other releases of the run alone cost epsilon {alone:.4g}, and the target is "
                f"{target:.4g}: raise privacy.run.epsilon, or raise privacy.moments.noise_multiplier or omit "
                "the moments"
            )
        coarse = min(1e-2, max(target * _COARSE_SHARE, FINE_INTERVAL))
        guess, power = _rough(lambda sigma: at(sigma, coarse), target)
        return _least_on_grid(lambda index: at(index / _SCALE, FINE_INTERVAL), target, guess, power)

    return guarded(what="the noise multiplier", compute=search)


def _rough(curve: Callable[[float], float], target: float) -> tuple[float, float]:
    """Where the curve meets the target, to 1 %, and the power p with which ε falls there: ε ~ σ^-p."""
    from scipy.optimize import brentq  # pyright: ignore[reportMissingTypeStubs,reportUnknownVariableType]

    def gap(log_sigma: float) -> float:
        return math.log(max(curve(math.exp(log_sigma)), _TINY) / target)

    low, high = map(math.log, _bracket(curve, target))
    root = cast("float", brentq(gap, low, high, xtol=1e-2))
    return math.exp(root), max((gap(root - 0.01) - gap(root + 0.01)) / 0.02, 0.1)


def _bracket(curve: Callable[[float], float], target: float) -> tuple[float, float]:
    """Find low < high with curve(low) > target ≥ curve(high), by factors of 2 from σ = 1."""
    low = high = 1.0
    while curve(high) > target:
        low, high = high, high * 2
        if high > _MOST:
            raise BudgetError(
                f"no noise multiplier up to {_MOST:g} reaches epsilon {target:.4g}: raise "
                "privacy.run.epsilon, lower privacy.epochs, or raise privacy.moments.noise_multiplier"
            )
    while low == high or curve(low) <= target:
        low, high = low / 2, low
        if low < _LEAST:
            raise AccountingError(
                f"epsilon {target:.4g} would need a noise multiplier below {_LEAST:g}, which protects "
                "nothing: lower privacy.run.epsilon"
            )
    return low, high


def _least_on_grid(curve: Callable[[int], float], target: float, guess: float, power: float) -> float:
    """The multiple of 1e-4 that is within the target while its lower neighbour is not.

    Two corrections with ε ~ σ^-p bring the guess to the right multiple or next to it; from there the answer
    is bracketed by steps that double, and bisected.
    """
    known: dict[int, float] = {}

    def at(index: int) -> float:
        if index not in known:
            known[index] = curve(index)
        return known[index]

    def within(index: int) -> bool:
        return at(index) <= target

    for _ in range(2):
        index = max(round(guess * _SCALE), 1)
        guess = index / _SCALE * (max(at(index), _TINY) / target) ** (1 / power)
    low = high = max(math.ceil(guess * _SCALE), 1)
    step = 1
    while not within(high):
        low, high, step = high, high + step, step * 2
    step = 1
    while low > 0 and (low == high or within(low)):
        low, high, step = max(low - step, 0), low, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high / _SCALE
