"""Why a run was refused, and what would fit: numbers for whoever has to decide, computed from public ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tasks.privacy.accounting import rdp_units
from tasks.privacy.budget import added
from tasks.privacy.events import Mechanism, SampledGaussian, prefix, total_claims
from tasks.privacy.ledger_state import PopulationState

_MOST_NOISE: Final = 1000.0
_TINY: Final = 1e-3


def refusal(*, state: PopulationState, mechanisms: Sequence[Mechanism], charge: Sequence[int]) -> str:
    """One paragraph: requested, remaining, difference, and what would fit."""
    requested = state.rule.used_epsilon(added(state.spent, charge)) - state.used_epsilon
    remaining = state.remaining_epsilon
    promised = state.runs["reserved"] + state.runs["running"]
    return (
        f"population {state.name}: the privacy budget does not allow this run. "
        f"Requested: epsilon {amount(requested)}; remaining: {amount(remaining)} of {state.epsilon:g}; "
        f"difference: {amount(requested - remaining)} (unit {state.unit}, delta {state.delta:g}, "
        f"{promised} other run{'' if promised == 1 else 's'} not finished). {_mend(state, mechanisms)}"
    )


def amount(epsilon: float) -> str:
    """An epsilon as text: plain, or scientific where plain digits would hide how small it is.

    >>> amount(1.25), amount(0.00001234)
    ('1.2500', '1.234e-05')
    """
    return f"{epsilon:.4f}" if epsilon == 0 or abs(epsilon) >= _TINY else f"{epsilon:.3e}"


def _mend(state: PopulationState, mechanisms: Sequence[Mechanism]) -> str:
    def fits(run: Sequence[Mechanism]) -> bool:
        return not run or state.rule.admits(spent=state.spent, charge=rdp_units(run, state.orders))

    total = total_claims(mechanisms)
    most = _most_claims(lambda claims: fits(prefix(mechanisms, claims)), total)
    if not most:
        return "Not even its first step would fit: no further run on this population is possible."
    steps = f"With the same noise, its first {most} of {total} releases and steps would fit"
    noise = _least_noise(lambda scale: fits([_scaled(run, scale) for run in mechanisms]))
    if noise is None:
        return f"{steps}."
    sigmas = ", ".join(
        f"{_scaled(run, noise).noise_multiplier:.4g}" for run in mechanisms if isinstance(run, SampledGaussian)
    )
    return f"{steps}; all of them would with a noise multiplier of {sigmas}." if sigmas else f"{steps}."


def _scaled(mechanism: Mechanism, scale: float) -> Mechanism:
    """The same steps with more noise; a Gaussian release (the moments) stays as it is."""
    if isinstance(mechanism, SampledGaussian):
        return replace(mechanism, noise_multiplier=mechanism.noise_multiplier * scale)
    return mechanism


def _most_claims(fits: Callable[[int], bool], total: int) -> int:
    """The largest number of claims that fits, by bisection; `total` itself does not."""
    low, high = 0, total
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _least_noise(fits: Callable[[float], bool]) -> float | None:
    """By what to multiply the noise so that all steps fit, at most 0.1 % above the least; None if in vain."""
    low, high = 1.0, _MOST_NOISE
    if not fits(high):
        return None
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
