"""Clipped sums of per-unit gradients: the rule, the loss, and the one interface of every engine.

The L2 norm of a unit's contribution is at most C, whatever its rows hold, so adding or removing one unit
moves the sum by at most C. Engines differ in how they get there, never in the result:

    ghost      Opacus's ghost clipping: norms without per-unit gradients, for the layers in `layers.GHOST`
    hooks      Opacus's per-unit gradients, for other layers; needs memory for units × parameters
    reference  one autograd call a unit: slow and obvious, what self-test and tests compare with
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from configs.errors import ConfigurationError, NotPrivateError
from tasks.dpsgd.layers import ghost_refusals
from tasks.dpsgd.plan import Clipping
from tasks.dpsgd.units import UnitBatch, UnitRecords

UnitLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
EngineName = Literal["auto", "ghost", "hooks"]

_NORMALISED_OFFSET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingRule:
    """How a unit's gradient of norm ‖g‖ is scaled so that its norm is at most C.

    Attributes:
        kind: "flat" or "normalised", as in `DpSgdPlan.clipping`.
        norm: C > 0.
    """

    kind: Clipping
    norm: float

    def coefficients(self, norms: Tensor) -> Tensor:
        """The factor of each unit, in the shape of `norms` (finite, ≥ 0)."""
        if self.kind == "normalised":
            return self.norm / (norms + _NORMALISED_OFFSET)
        return self.norm / norms.clamp(min=self.norm)


class Engine(Protocol):
    """Computes the clipped sum of one micro-batch."""

    name: str

    def clipped_sum(self, batch: UnitBatch) -> list[Tensor]:
        """Σ over units of the clipped gradient: float32, one tensor for each trainable parameter, in order.

        A unit whose gradient is not finite contributes zero; an empty batch gives zeros.
        """
        ...

    def close(self) -> None:
        """Remove hooks and per-unit leftovers from the network."""
        ...


def mean_row_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy from logits, averaged over the rows of each unit.

    Args:
        logits: [B, k].
        labels: [B, k], 0 or 1.
        mask: bool [B, k]; padding contributes nothing.

    Returns:
        One loss a unit, [B].
    """
    rows = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return torch.where(mask, rows, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def unit_losses(network: nn.Module, loss: UnitLoss, batch: UnitBatch) -> Tensor:
    """Run the network and the loss; the result is one number a unit, [B], and nothing else is accepted.

    With a loss of [B, 1] a vector of clipping factors would broadcast to [B, B], and clip nothing.

    Raises:
        NotPrivateError: logits are not one a row, or the loss is not one a unit.
    """
    single = batch.features.shape[1] == 1  # two-dimensional layers have cheaper norms
    logits = network(batch.features[:, 0] if single else batch.features)
    expected = batch.labels.shape[:1] if single else batch.labels.shape
    if logits.shape == (*expected, 1):
        logits = logits.squeeze(-1)
    if logits.shape != expected:
        raise NotPrivateError(
            f"the network returns logits of shape {list(logits.shape)}, not one a row, {list(expected)}"
        )
    losses = loss(logits.view(batch.labels.shape), batch.labels, batch.mask)
    if losses.shape != (len(batch),):
        raise NotPrivateError(
            f"the loss returns shape {list(losses.shape)}, not one number a unit, [{len(batch)}]: "
            "clipping factors would not meet their units"
        )
    return losses


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters in the order of `named_parameters`, which is that of every clipped sum."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def probes(network: nn.Module) -> list[nn.Parameter]:
    """The smallest trainable parameter of each layer.

    Asking for their gradients alone makes autograd visit every layer, which is what the hooks need, without
    computing the gradients of the large weights.
    """
    owned = (list(layer.parameters(recurse=False)) for layer in network.modules())
    groups = ([parameter for parameter in group if parameter.requires_grad] for group in owned)
    return [min(group, key=Tensor.numel) for group in groups if group]


@contextmanager
def hooks_without_warning() -> Iterator[None]:
    """Silence torch's warning, once a layer and step, that a first layer's inputs need no gradient."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


def make_engine(*, network: nn.Module, rule: ClippingRule, loss: UnitLoss, engine: EngineName = "auto") -> Engine:
    """The engine that serves the network: ghost clipping where it is exact for every layer, hooks otherwise.

    Raises:
        ConfigurationError: ghost clipping was asked for and a layer does not allow it.
    """
    refusals = ghost_refusals(network)
    if engine == "ghost" and refusals:
        raise ConfigurationError.of("engine: ghost", [f"{refusal}; use auto or hooks" for refusal in refusals])
    if engine == "hooks" or refusals:
        from tasks.dpsgd.hooks import HooksEngine

        return HooksEngine(network=network, rule=rule, loss=loss)
    from tasks.dpsgd.ghost import GhostEngine

    return GhostEngine(network=network, rule=rule, loss=loss)


def clipped_total(
    engine: Engine, records: UnitRecords, units: Tensor, *, like: list[nn.Parameter], physical_batch: int
) -> list[Tensor]:
    """The clipped sum over one step's sample, taken in micro-batches that do not change the result.

    Args:
        engine: computes each micro-batch.
        records: all training units.
        units: int64 [any], the numbers of the sampled units; none gives zeros.
        like: the trainable parameters, for the shapes.
        physical_batch: the most units in memory at a time.
    """
    total = [torch.zeros_like(parameter) for parameter in like]
    for batch in records.batches(units, physical_batch=physical_batch):
        for part, more in zip(total, engine.clipped_sum(batch), strict=True):
            part += more
    return total
