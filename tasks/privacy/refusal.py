"""Why a run was refused, and what would fit: numbers for whoever has to decide, computed from public ones.

A mend names only what somebody can write in the configuration file. The noise multiplier is no key of it, and
fewer epochs are no mend: the noise is calibrated to `privacy.run.epsilon` whatever their number.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from configs.errors import AccountingError, BudgetError
from tasks.privacy.accounting import calibrate_noise, pld_epsilon, rdp_units
from tasks.privacy.budget import added
from tasks.privacy.events import Mechanism, SampledGaussian
from tasks.privacy.ledger_state import PopulationState

CAP: Final = (
    "The guarantee is fixed in the ledger: only two named approvers could raise a population's cap, which this "
    "version does not offer yet"
)
_MOST_NOISE: Final = 10_000.0  # what calibration would ever use
_CLOSE: Final = 1.0001
_TINY: Final = 1e-3
_LEAST_EPSILON: Final = 0.01
_DIGITS: Final = 3


def refusal(
    *, state: PopulationState, mechanisms: Sequence[Mechanism], charge: Sequence[int], delta: float | None
) -> str:
    """One paragraph: requested, remaining, difference, and what would fit.

    Args:
        state: the balance.
        mechanisms: the run.
        charge: what it would be charged, in units.
        delta: of the run, at which its epsilon is written in the file; None to name no epsilon that would fit.
    """
    requested = state.rule.used_epsilon(added(state.spent, charge)) - state.used_epsilon
    remaining = state.remaining_epsilon
    promised = state.runs["reserved"] + state.runs["running"]

    def admits(run: Sequence[Mechanism]) -> bool:
        return state.rule.admits(spent=state.spent, charge=rdp_units(run, state.orders))

    fitting = "" if delta is None else mend(mechanisms=mechanisms, delta=delta, admits=admits)
    return (
        f"population {state.name}: the privacy budget does not allow this run. "
        f"Requested: epsilon {amount(requested)}; remaining: {amount(remaining)} of {state.epsilon:g}; "
        f"difference: {amount(requested - remaining)} (unit {state.unit}, delta {state.delta:g}, "
        f"{promised} other run{'' if promised == 1 else 's'} not finished). "
        f"{fitting}{CAP}"
    )


def amount(epsilon: float) -> str:
    """An epsilon as text: plain, or scientific where plain digits would hide how small it is.

    >>> amount(1.25), amount(0.00001234)
    ('1.2500', '1.234e-05')
    """
    return f"{epsilon:.4f}" if epsilon == 0 or abs(epsilon) >= _TINY else f"{epsilon:.3e}"


def mend(*, mechanisms: Sequence[Mechanism], delta: float, admits: Callable[[Sequence[Mechanism]], bool]) -> str:
    """What to write in the file so that the run fits: a sentence and a blank, or nothing where nothing is known.

    Args:
        mechanisms: the run that does not fit: any releases, then its training.
        delta: of the run.
        admits: whether a run would fit.
    """
    *others, training = mechanisms
    if not isinstance(training, SampledGaussian):
        return ""
    try:
        largest = largest_epsilon(others=others, training=training, delta=delta, admits=admits)
        if largest is not None:
            return f"The largest privacy.run.epsilon that would fit is {largest:g}, at delta {delta:g}. "
        without = largest_epsilon(others=[], training=training, delta=delta, admits=admits) if others else None
    except AccountingError:
        return ""
    if without is not None:
        return (
            "With privacy.moments no such run fits any more; without them, the largest privacy.run.epsilon that "
            f"would fit is {without:g}, at delta {delta:g}. "
        )
    return f"No privacy.run.epsilon of {_LEAST_EPSILON:g} or more would fit. "


def largest_epsilon(
    *,
    others: Sequence[Mechanism],
    training: SampledGaussian,
    delta: float,
    admits: Callable[[Sequence[Mechanism]], bool],
) -> float | None:
    """The largest epsilon of a run, rounded down to 3 digits, whose noise makes it fit; None where none does.

    Args:
        others: what the run releases before its training.
        training: the steps; their noise is what changes.
        delta: of the run.
        admits: whether a run would fit.

    Raises:
        AccountingError: it cannot be computed.
    """

    def noisier(sigma: float) -> tuple[Mechanism, ...]:
        return (*others, replace(training, noise_multiplier=sigma))

    sigma = _least_noise(lambda sigma: admits(noisier(sigma)), training.noise_multiplier)
    if sigma is None:
        return None
    epsilon = _rounded_down(pld_epsilon(mechanisms=noisier(sigma), delta=delta))
    if epsilon < _LEAST_EPSILON:
        return None
    try:  # not by reasoning alone: with the very noise that a file with this epsilon would get
        calibrated = calibrate_noise(
            epsilon=epsilon,
            delta=delta,
            sampling_rate=training.sampling_rate,
            steps=training.steps,
            others=others,
        )
    except AccountingError:
        raise
    except BudgetError:  # rounded down, it is less than the other releases alone cost
        return None
    return epsilon if admits(noisier(calibrated)) else None


def _rounded_down(epsilon: float) -> float:
    """To 3 significant digits, never up.

    >>> _rounded_down(1.23999), _rounded_down(0.012399), _rounded_down(0.29)
    (1.23, 0.0123, 0.29)
    """
    if epsilon <= 0:
        return 0.0
    decimals = _DIGITS - 1 - math.floor(math.log10(epsilon))
    nearest = round(epsilon, decimals)
    return nearest if nearest <= epsilon else round(nearest - 10.0**-decimals, decimals)


def _least_noise(fits: Callable[[float], bool], sigma: float) -> float | None:
    """The noise multiplier from which on it fits, at most 0.01 % above the least; None if in vain."""
    low, high = sigma, max(sigma, _MOST_NOISE)
    if not fits(high):
        return None
    while high / low > _CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
