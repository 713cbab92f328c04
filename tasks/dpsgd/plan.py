"""The plan of one DP-SGD run: what runs is what is accounted.

`DpSgdPlan.mechanisms` is the only place where run parameters become events. The training loop takes the plan
and nothing else that could change epsilon; no field is computed from the records, so neighbouring data sets
get the same mechanism.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian

Clipping = Literal["flat", "normalised"]
Unit = Literal["row", "person"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSgdPlan:
    """Everything that epsilon depends on, under add-or-remove-one-unit adjacency.

    Attributes:
        units: public nominal number of training units (never the exact count): sets the sampling rate, the
            divisor and delta's bound.
        expected_batch: expected number of units in a step's Poisson sample, in [1, units].
        steps: T ≥ 1, the steps that run; every one is charged.
        noise_multiplier: σ, the noise's standard deviation over the clipping norm. Zero only in the twin.
        clipping: "flat" multiplies a unit's gradient g by min(1, C/‖g‖) (Abadi et al. 2016, §3.1),
            "normalised" by C/(‖g‖ + 0.01) (Bu et al. 2022, "Automatic clipping", AUTO-S).
        clipping_norm: C > 0, the L2 sensitivity of the sum over units.
        unit: what one neighbour adds or removes.
        rows_per_unit: the most rows that a unit holds, ≥ 1.
        delta: in (0, 1/units).
        moments_noise_multiplier: σ of the one Gaussian release of means and variances before training, in
            units of its sensitivity; None for no such release.
        twin: the run without noise that comparisons need. Not private, and no mechanism describes it.

    Raises:
        ConfigurationError: a field is out of its range.
    """

    units: int
    expected_batch: int
    steps: int
    noise_multiplier: float
    clipping: Clipping = "flat"
    clipping_norm: float = 1.0
    unit: Unit = "row"
    rows_per_unit: int = 1
    delta: float
    moments_noise_multiplier: float | None = None
    twin: bool = False

    def __post_init__(self) -> None:
        faults = [*_count_faults(self), *_number_faults(self), *_choice_faults(self)]
        if faults:
            raise ConfigurationError.of("DP-SGD plan", faults)

    @property
    def sampling_rate(self) -> float:
        """q = expected_batch / units, in (0, 1], from public numbers only."""
        return self.expected_batch / self.units

    @property
    def is_private(self) -> bool:
        """False for the twin, whose epsilon is infinite."""
        return not self.twin

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The events of the run in the order in which they happen: the moments first, then the steps.

        Raises:
            AccountingError: the plan is the twin's, whose epsilon is infinite.
        """
        if not self.is_private:
            raise AccountingError(
                "noise_multiplier = 0: a run without noise has infinite epsilon and no mechanism to account"
            )
        steps = SampledGaussian(
            sampling_rate=self.sampling_rate, noise_multiplier=self.noise_multiplier, steps=self.steps
        )
        if self.moments_noise_multiplier is None:
            return (steps,)
        return (Gaussian(noise_multiplier=self.moments_noise_multiplier), steps)

    @property
    def claims_before_training(self) -> int:
        """How many mechanisms of the flattened order precede the first step: 1 with moments, else 0."""
        return 0 if self.moments_noise_multiplier is None else 1

    def without_noise(self) -> "DpSgdPlan":
        """The twin: the same recipe with clipping and σ = 0. Its weights never leave the work folder."""
        return replace(self, noise_multiplier=0.0, moments_noise_multiplier=None, twin=True)

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,
        units: int,
        expected_batch: int,
        epochs: float,
        clipping: Clipping = "flat",
        clipping_norm: float = 1.0,
        unit: Unit = "row",
        rows_per_unit: int = 1,
        moments_noise_multiplier: float | None = None,
    ) -> "DpSgdPlan":
        """The plan with the smallest σ at which steps and moments together cost at most `epsilon` at `delta`.

        T = round(epochs × units / expected_batch). σ comes from the PLD accountant and is rounded up.

        Raises:
            ConfigurationError: a parameter is out of its range.
            BudgetError: no σ fits.
        """
        from tasks.privacy.accounting import calibrate_noise

        if not (_is_number(epochs) and epochs > 0):
            raise ConfigurationError.of("DP-SGD plan", [f"epochs = {epochs!r} must be finite and above 0"])
        draft = cls(  # validates every public number before the accountant sees it
            units=units,
            expected_batch=expected_batch,
            steps=round(epochs * units / expected_batch) if _is_count(expected_batch) else 0,
            noise_multiplier=1.0,
            clipping=clipping,
            clipping_norm=clipping_norm,
            unit=unit,
            rows_per_unit=rows_per_unit,
            delta=delta,
            moments_noise_multiplier=moments_noise_multiplier,
        )
        others = draft.mechanisms[:-1]
        sigma = calibrate_noise(
            epsilon=epsilon, delta=delta, sampling_rate=draft.sampling_rate, steps=draft.steps, others=others
        )
        return replace(draft, noise_multiplier=sigma)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count_faults(plan: DpSgdPlan) -> list[str]:
    counts = {
        "units": plan.units,
        "expected_batch": plan.expected_batch,
        "steps": plan.steps,
        "rows_per_unit": plan.rows_per_unit,
    }
    faults = [
        f"{name} = {value!r} must be a whole number of at least 1"
        for name, value in counts.items()
        if not _is_count(value)
    ]
    if not faults and plan.expected_batch > plan.units:
        faults.append(
            f"expected_batch = {plan.expected_batch} must be at most units = {plan.units}: "
            f"the sampling rate would be {plan.sampling_rate:.4g}; lower expected_batch"
        )
    if plan.unit == "row" and _is_count(plan.rows_per_unit) and plan.rows_per_unit != 1:
        faults.append(f"rows_per_unit = {plan.rows_per_unit} must be 1 where the unit is a row; use unit: person")
    return faults


def _number_faults(plan: DpSgdPlan) -> list[str]:
    faults: list[str] = []
    sigma = plan.noise_multiplier
    if not _is_number(sigma) or (sigma <= 0 and not plan.twin) or (plan.twin and sigma != 0):
        faults.append(f"noise_multiplier = {sigma!r} must be finite and above 0 (0 only in the twin, without_noise())")
    if not (_is_number(plan.clipping_norm) and plan.clipping_norm > 0):
        faults.append(f"clipping_norm = {plan.clipping_norm!r} must be finite and above 0; 1.0 is usual")
    bound = 1 / plan.units if _is_count(plan.units) else 1.0
    if not (_is_number(plan.delta) and 0 < plan.delta < bound):
        faults.append(
            f"delta = {plan.delta!r} must lie in (0, 1/units) = (0, {bound:.3g}); {min(1e-5, bound / 10):.3g} would do"
        )
    moments = plan.moments_noise_multiplier
    if moments is not None and not (_is_number(moments) and moments > 0):
        faults.append(f"moments_noise_multiplier = {moments!r} must be finite and above 0, or None")
    return faults


def _choice_faults(plan: DpSgdPlan) -> list[str]:
    choices = {"clipping": (plan.clipping, get_args(Clipping)), "unit": (plan.unit, get_args(Unit))}
    return [
        f"{name} = {value!r} must be one of {', '.join(allowed)}"
        for name, (value, allowed) in choices.items()
        if value not in allowed
    ]
