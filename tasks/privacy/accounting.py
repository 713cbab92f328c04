"""Epsilon of a run: PLD is the figure, RDP its cross-check. Add or remove one unit, nothing else.

>>> run = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
>>> round(pld_epsilon(mechanisms=[run], delta=1e-5), 3)
1.828
>>> round(rdp_epsilon(mechanisms=[run], delta=1e-5), 3)
2.101

Both are upper bounds on the same quantity, so PLD above RDP means that one of them is wrong or that the PLD's
grid is too coarse: then there is no figure. Inputs are validated before any accountant sees them, and what is
no finite number ≥ 0 within the time limit is an AccountingError, which counts as over budget.
"""

# pyright: reportMissingTypeStubs=false

import logging
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final, cast

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.calibration import calibrate_noise as calibrate_noise
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian
from tasks.privacy.guard import checked_delta, checked_epsilon, guarded
from tasks.privacy.losses import FINE_INTERVAL, Loss, composed, epsilon_on_grid, interval_for, one_step

ACCOUNTANT: Final = "PLD"
ADJACENCY: Final = "add_or_remove_one"
UNITS_PER_RDP: Final = 10**12  # the ledger counts Rényi divergence in integers of 1e-12
UNITS_LIMIT: Final = 2**61  # "more than any cap": a curve or a sum that reaches it has used its order up

_PERSON_INTERVAL: Final = 1e-3  # mixtures are slow to lay out; coarser is larger, still valid
_AGREEMENT: Final = 1e-6
_REFINED_INTERVAL: Final = 1e-5
_REFINABLE_EPSILON: Final = 1.0  # above, the grid cannot be what makes PLD exceed RDP
_RDP_RESOLUTION: Final = 1e-14  # one step's divergence below this is lost in double precision


def accountant_version() -> str:
    """The accounting library and its version, for a statement."""
    from importlib.metadata import version

    return f"dp-accounting {version('dp-accounting')}"


def pld_epsilon(*, mechanisms: Sequence[Mechanism], delta: float, interval: float = FINE_INTERVAL) -> float:
    """Epsilon by privacy loss distributions, cross-checked against RDP.

    Args:
        mechanisms: what runs, in any order; none gives exactly 0.
        delta: in (0, 1).
        interval: grid of the privacy loss in nats, in (0, 0.1]; coarser is faster and larger, still valid.

    Returns:
        ε ≥ 0 for one unit added or removed.

    Raises:
        AccountingError: it cannot be computed or the two accountants disagree; counts as over budget.
    """
    delta = checked_delta(delta)
    runs = _validated(mechanisms)
    if not 0 < interval <= 0.1:
        raise AccountingError(f"interval = {interval!r} must be in (0, 0.1]")
    if not runs:
        return 0.0
    return guarded(what="epsilon (PLD)", compute=lambda: _cross_checked(runs, delta, interval))


def _cross_checked(mechanisms: Sequence[Mechanism], delta: float, interval: float) -> float:
    value = checked_epsilon(what="epsilon (PLD)", value=epsilon_on_grid(mechanisms, delta=delta, interval=interval))
    bound = _rdp_epsilon(mechanisms, delta)
    if value <= bound * (1 + _AGREEMENT) + interval:
        return value
    if bound <= _REFINABLE_EPSILON and interval > _REFINED_INTERVAL:
        return _cross_checked(mechanisms, delta, _REFINED_INTERVAL)
    raise AccountingError(
        f"the accountants disagree: PLD {value:.6g} is above RDP {bound:.6g} at delta {delta:g}, "
        "which counts as over budget; use fewer steps, each with less noise"
    )


def rdp_epsilon(*, mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Epsilon by Rényi divergences at the best of the library's orders (Canonne, Kamath and Steinke 2020).

    Args:
        mechanisms: what runs, in any order; none gives exactly 0.
        delta: in (0, 1).

    Raises:
        AccountingError: it cannot be computed; counts as over budget.
    """
    delta = checked_delta(delta)
    runs = _validated(mechanisms)
    if not runs:
        return 0.0
    return guarded(what="epsilon (RDP)", compute=lambda: _rdp_epsilon(runs, delta))


def _rdp_epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    orders = [float(order) for order in rdp.DEFAULT_RDP_ORDERS]
    curves = [(mechanism.claims, rdp_curve(mechanism, orders)) for mechanism in mechanisms]
    curve = [sum(steps * values[index] for steps, values in curves) for index in range(len(orders))]
    epsilon, _ = rdp.compute_epsilon(orders, curve, delta)
    return checked_epsilon(what="epsilon (RDP)", value=epsilon)


def rdp_curve(mechanism: Mechanism, orders: Sequence[float]) -> list[float]:
    """Rényi divergence of one step at each order; infinite where it does not converge: that order is lost.

    Source: Mironov, Talwar and Zhang 2019, through the library's accountant. A composition is the sum over
    its steps, which callers take themselves: some of the library's events ignore a count.

    Raises:
        AccountingError: a divergence is NaN or negative.
    """
    import dp_accounting as dp
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    event: dp.DpEvent = dp.GaussianDpEvent(mechanism.noise_multiplier)
    if isinstance(mechanism, SampledGaussian):
        event = dp.PoissonSampledDpEvent(mechanism.sampling_rate, event)
    accountant = rdp.RdpAccountant(list(orders))  # add or remove one is its default relation
    with _quiet():
        accountant.compose(dp.SelfComposedDpEvent(event, 1))
    # The library offers epsilon only, and the filter needs the curve: a private name of a pinned version.
    curve = cast("Any", accountant)._rdp
    return [_resolved(float(value)) for value in curve]


def _resolved(divergence: float) -> float:
    """Charge at least what double precision resolves; refuse what is no divergence."""
    if not divergence >= -_RDP_RESOLUTION:  # also true for NaN
        raise AccountingError(f"a Rényi divergence came out as {divergence}, which counts as over budget")
    return max(divergence, _RDP_RESOLUTION)


def rdp_units(mechanisms: Sequence[Mechanism], orders: Sequence[float]) -> tuple[int, ...]:
    """What the ledger charges: the curve in integers of 1e-12, rounded up; at most `UNITS_LIMIT`.

    The steps are multiplied and added exactly, so the parts of a run cost at least the whole.

    >>> rdp_units([SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)], [4.25])
    (388815507124,)

    Raises:
        AccountingError: it cannot be computed; counts as over budget.
    """
    runs = _validated(mechanisms)
    curves = guarded(what="the Rényi divergence", compute=lambda: [rdp_curve(run, orders) for run in runs])
    return tuple(
        _units([(value, run.claims) for value, run in zip(values, runs, strict=True)])
        for values in zip(*curves, strict=True)
    )


def _units(parts: Sequence[tuple[float, int]]) -> int:
    if any(math.isinf(value) for value, _ in parts):
        return UNITS_LIMIT
    return min(math.ceil(sum(Fraction(value) * steps for value, steps in parts) * UNITS_PER_RDP), UNITS_LIMIT)


def epsilon_path(*, mechanisms: Sequence[Mechanism], delta: float, steps: Sequence[int]) -> list[float]:
    """Epsilon after the fixed releases and the first s steps, for a progress bar or a plot.

    Args:
        mechanisms: any number of Gaussian and at most one SampledGaussian.
        delta: in (0, 1).
        steps: integers s in [0, T]; 0 is the fixed releases alone.

    Returns:
        ε for each s; at s = T what `pld_epsilon` says.

    Raises:
        AccountingError: it cannot be computed; ConfigurationError: the arguments do not fit.
    """
    delta = checked_delta(delta)
    runs = _validated(mechanisms)
    sampled = [mechanism for mechanism in runs if isinstance(mechanism, SampledGaussian)]
    limit = sampled[0].steps if sampled else 0
    if len(sampled) > 1 or any(not 0 <= step <= limit for step in steps):
        raise ConfigurationError(f"epsilon_path needs one SampledGaussian and steps in [0, {limit}]")
    fixed = [mechanism for mechanism in runs if isinstance(mechanism, Gaussian)]
    parts = [[*fixed, *(mechanism.first(step) for mechanism in sampled if step)] for step in steps]
    values = guarded(
        what="epsilon (PLD)",
        compute=lambda: [epsilon_on_grid(part, delta=delta, interval=FINE_INTERVAL) for part in parts],
    )
    return [checked_epsilon(what="epsilon (PLD)", value=value) for value in values]


def person_epsilon(*, mechanism: SampledGaussian, others: Sequence[Mechanism] = (), rows: int, delta: float) -> float:
    """Epsilon of a person with up to `rows` rows, where the mechanisms protect one row.

    Each row enters a step on its own with probability q, so the person moves a sum by up to Binomial(rows, q)
    clipping norms: a mixture of Gaussians (Ganesh 2024). A release over all rows moves by up to `rows`
    sensitivities. Multiplying a row's epsilon by `rows` would be too small, because delta grows as well.

    Args:
        mechanism: the training, per row.
        others: further releases over rows.
        rows: the cap of rows a person, ≥ 1.
        delta: in (0, 1), the person's.

    Raises:
        AccountingError: it cannot be computed; counts as over budget. ConfigurationError: rows < 1.
    """
    delta = checked_delta(delta)

    def compute() -> float:
        return person_loss(mechanism=mechanism, others=others, rows=rows).get_epsilon_for_delta(delta)

    return checked_epsilon(what="a person's epsilon", value=guarded(what="a person's epsilon", compute=compute))


def person_loss(*, mechanism: SampledGaussian, others: Sequence[Mechanism] = (), rows: int) -> Loss:
    """The privacy loss distribution behind `person_epsilon`. Unguarded: callers guard it.

    Raises:
        ConfigurationError: rows < 1.
    """
    runs = _validated([mechanism, *others])
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"rows = {rows!r} must be an integer ≥ 1; see privacy.max_rows_per_person")
    narrowed = [Gaussian(noise_multiplier=run.noise_multiplier / rows) for run in runs]
    interval = interval_for(narrowed, _PERSON_INTERVAL)
    return composed([_person_loss(run, rows, interval) for run in runs])


def _person_loss(mechanism: Mechanism, rows: int, interval: float) -> Loss:
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma = mechanism.noise_multiplier
    if isinstance(mechanism, Gaussian) or mechanism.sampling_rate == 1.0:
        step = one_step(sampling_rate=1.0, noise_multiplier=sigma / rows, interval=interval)
    else:
        q = mechanism.sampling_rate
        counts = [math.comb(rows, k) * q**k * (1 - q) ** (rows - k) for k in range(rows + 1)]
        mixture = pld.from_mixture_gaussian_mechanism(
            standard_deviation=sigma,
            sensitivities=list(range(rows + 1)),
            sampling_probs=counts,
            value_discretization_interval=interval,
        )
        step = cast("Loss", mixture)
    return step.self_compose(mechanism.claims)


def _validated(mechanisms: Sequence[Mechanism]) -> tuple[Mechanism, ...]:
    """Refuse what is no mechanism before an accountant sees it; values were validated on construction."""
    for mechanism in mechanisms:
        if type(mechanism) not in (Gaussian, SampledGaussian):
            raise AccountingError(
                f"a mechanism of type {type(mechanism).__name__} cannot be accounted; known: Gaussian, SampledGaussian"
            )
    return tuple(mechanisms)


@contextmanager
def _quiet() -> Generator[None]:
    """Drop the library's warnings on orders that do not converge: they are infinite, and so never chosen."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
