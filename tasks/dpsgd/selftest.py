"""A test that the noise path is private, on the very network, loss and engine about to run, before step 1.

Rows are synthetic and σ is left out of the sums. It fails closed, and names the loss, layer or parameter at
fault. A pass says that these properties hold on these rows; it is no proof for all inputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from configs.errors import NotPrivateError
from tasks.dpsgd.clipping import ClippingRule, Engine, UnitLoss, trainable, unit_losses
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.reference import ReferenceEngine
from tasks.dpsgd.units import UnitBatch

Release = Callable[[list[Tensor]], list[Tensor]]

SENSITIVITY_SLACK = 1e-4  # rounding of float32 sums, relative to C
REFERENCE_TOLERANCE = 1e-4  # of the sum of the units' norms, since the units themselves may cancel
_UNITS = 16
_OUTLIERS = 6
_SCALE = 1e6
_TINY = 1e-30
_NOISE_VALUES = 20_000
# seven standard errors of a standard deviation: a false alarm has probability 3e-12
_NOISE_TOLERANCE = 7 / math.sqrt(2 * _NOISE_VALUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestReport:
    """What was checked, and how close to the limits it came.

    Attributes:
        engine: the engine's name.
        units: synthetic units in the test.
        sensitivity: the most that one unit moved the clipped sum, over C; at most 1 + 1e-4.
        reference_error: distance from the brute-force sum, over the sum of the units' norms; at most 1e-4.
        noise_ratio: measured over planned standard deviation of the noise; None in the twin.
    """

    engine: str
    units: int
    sensitivity: float
    reference_error: float
    noise_ratio: float | None


def self_test(
    *,
    network: nn.Module,
    plain: nn.Module,
    engine: Engine,
    rule: ClippingRule,
    loss: UnitLoss,
    release: Release,
    plan: DpSgdPlan,
    rows: Tensor,
) -> SelfTestReport:
    """Check loss, clipping, sensitivity, buffers and noise.

    Args:
        network: about to be trained by `engine`; left as it was.
        plain: a copy of it without hooks.
        engine: about to run.
        rule: the clipping that the plan promises.
        loss: per unit, about to run.
        release: adds the noise and divides, about to run.
        plan: what will be accounted.
        rows: synthetic features, from `synthetic_rows`.

    Raises:
        NotPrivateError: a check failed; the message names what is at fault.
    """
    before = {name: value.clone() for name, value in network.state_dict().items()}
    batch = _batch(rows, plan.rows_per_unit)
    sensitivity = error = 0.0
    try:
        for stretch in (0.0, 0.3):  # a zeroed last layer hides the others, so weights are moved as well
            _move(network, stretch)
            plain.load_state_dict(network.state_dict())
            reference = ReferenceEngine(network=plain, rule=rule, loss=loss)
            _check_loss(plain, loss, reference, batch)
            error = max(error, _check_reference(engine, reference, batch, network))
            sensitivity = max(sensitivity, _check_sensitivity(engine, batch, rule, network))
        _check_empty(engine, batch)
        _check_untouched(network, before)
    finally:
        network.load_state_dict(before)
    return SelfTestReport(
        engine=engine.name,
        units=len(batch),
        sensitivity=sensitivity,
        reference_error=error,
        noise_ratio=_check_noise(release, plan, trainable(network)),
    )


def synthetic_rows(*, features: int, rows_per_unit: int, feature_range: tuple[float, float] = (-3.0, 3.0)) -> Tensor:
    """Features of no person, float32 [16, k, d]: uniform, and scaled so that some units stay below C."""
    generator = np.random.default_rng(16)
    rows = generator.uniform(*feature_range, size=(_UNITS, rows_per_unit, features))
    rows *= np.logspace(-3, 0, _UNITS)[:, None, None]
    return torch.from_numpy(rows.astype(np.float32))


def _batch(rows: Tensor, rows_per_unit: int) -> UnitBatch:
    # unit i has 1 + i mod k rows; what stands in the padding must not matter, so it is left there
    counts = 1 + torch.arange(len(rows)) % rows_per_unit
    mask = torch.arange(rows_per_unit) < counts.unsqueeze(1)
    labels = (torch.arange(mask.numel()) % 3 == 0).float().view(mask.shape)
    return UnitBatch(features=rows, labels=labels, mask=mask)


def _move(network: nn.Module, stretch: float) -> None:
    generator = torch.Generator().manual_seed(16)
    with torch.no_grad():
        for parameter in trainable(network):
            parameter += stretch * torch.randn(parameter.shape, generator=generator)


def _check_loss(plain: nn.Module, loss: UnitLoss, reference: ReferenceEngine, batch: UnitBatch) -> None:
    with torch.no_grad():
        together = unit_losses(plain, loss, batch)
    alone = reference.losses(batch)
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-5):
        raise NotPrivateError(
            "self-test: the loss of a unit depends on the other units of its batch, or on padding. Use a "
            "loss with one term a unit and fixed public weights, and no layer that mixes units"
        )


def _check_reference(engine: Engine, reference: ReferenceEngine, batch: UnitBatch, network: nn.Module) -> float:
    alone = [reference.clipped_sum(batch.select(torch.tensor([place]))) for place in range(len(batch))]
    expected = [torch.stack(parts).sum(dim=0) for parts in zip(*alone, strict=True)]
    differences = [a - b for a, b in zip(engine.clipped_sum(batch), expected, strict=True)]
    error = _norm(differences) / max(sum(map(_norm, alone)), _TINY)
    if not error <= REFERENCE_TOLERANCE:
        raise NotPrivateError(
            f"self-test: the clipped sum of the {engine.name} engine differs from brute force by {error:.1e} "
            f"(limit {REFERENCE_TOLERANCE:.0e}), most in {_worst(differences, network)}"
        )
    return error


def _check_sensitivity(engine: Engine, batch: UnitBatch, rule: ClippingRule, network: nn.Module) -> float:
    largest = 0.0
    for place in np.linspace(0, len(batch) - 1, _OUTLIERS).astype(int):
        others = torch.arange(len(batch)) != int(place)
        without = engine.clipped_sum(batch.select(others))
        for flip in (False, True):  # a huge row is either far right or far wrong; both are tried
            outlier = _with_outlier(batch, ~others, flip=flip)
            moved = [a - b for a, b in zip(engine.clipped_sum(outlier), without, strict=True)]
            ratio = _norm(moved) / rule.norm
            if not ratio <= 1 + SENSITIVITY_SLACK:
                raise NotPrivateError(
                    f"self-test: one unit moved the clipped sum of the {engine.name} engine by {ratio:.4g} C "
                    f"(limit 1), most in {_worst(moved, network)}"
                )
            largest = max(largest, ratio)
    return largest


def _with_outlier(batch: UnitBatch, which: Tensor, *, flip: bool) -> UnitBatch:
    features = torch.where(which[:, None, None], batch.features * _SCALE, batch.features)
    labels = torch.where(which[:, None], 1 - batch.labels, batch.labels) if flip else batch.labels
    return replace(batch, features=features, labels=labels)


def _check_empty(engine: Engine, batch: UnitBatch) -> None:
    if _norm(engine.clipped_sum(batch.select(torch.zeros(len(batch), dtype=torch.bool)))) != 0:
        raise NotPrivateError(f"self-test: the {engine.name} engine's sum over no units is not zero")


def _check_untouched(network: nn.Module, before: dict[str, Tensor]) -> None:
    weights = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    for name, value in network.state_dict().items():
        if name not in weights and not torch.equal(value, before[name]):
            raise NotPrivateError(f"self-test: a forward pass changed {name}, which no noise covers")


def _check_noise(release: Release, plan: DpSgdPlan, parameters: list[nn.Parameter]) -> float | None:
    if not plan.is_private:
        return None
    copies = math.ceil(_NOISE_VALUES / 2 / sum(parameter.numel() for parameter in parameters))
    zeros = [torch.zeros_like(parameter) for parameter in parameters] * copies
    draws = [_draw(release, zeros, plan) for _ in range(2)]
    if torch.equal(draws[0], draws[1]):
        raise NotPrivateError("self-test: two steps drew the same noise; subtracting them would remove it")
    ratio = float(torch.cat(draws).square().mean().sqrt()) / (plan.noise_multiplier * plan.clipping_norm)
    if not abs(ratio - 1) <= _NOISE_TOLERANCE:
        raise NotPrivateError(
            f"self-test: the noise has {ratio:.3f} times the standard deviation that the plan accounts for"
        )
    return ratio


def _draw(release: Release, zeros: list[Tensor], plan: DpSgdPlan) -> Tensor:
    return torch.cat([part.flatten() for part in release(zeros)]).double() * plan.expected_batch


def _norm(parts: list[Tensor]) -> float:
    return float(torch.stack([part.double().square().sum() for part in parts]).sum().sqrt())


def _worst(parts: list[Tensor], network: nn.Module) -> str:
    names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    sizes = torch.stack([part.double().abs().max() for part in parts]).nan_to_num(nan=math.inf)
    name = names[int(sizes.argmax())]
    return f"parameter {name} ({type(network.get_submodule(name.rpartition('.')[0])).__name__})"
