"""Ghost clipping on Opacus: norms from activations and back-propagated gradients, then one weighted pass.

Method: Li et al. 2022, "Large language models can be strong differentially private learners", §4. Opacus
supplies the hooks and the norms of other layers; the loss per unit, the clipping factors and both backward
passes are taken here, because Opacus's own loss wrapper is not private for a loss of shape [B, 1].
"""

from typing import Any, ClassVar

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from torch import Tensor, nn

from tasks.dpsgd.clipping import ClippingRule, UnitLoss, hooks_without_warning, probes, trainable, unit_losses
from tasks.dpsgd.units import UnitBatch


def linear_norms(layer: nn.Linear, activations: list[Tensor], backprops: Tensor) -> dict[Tensor, Tensor]:
    """Norms of each unit's gradient of a Linear layer: weight and bias, [B] each.

    With one row a unit the gradient is the outer product g aᵀ, of norm ‖g‖‖a‖. With k rows its squared norm
    is Σᵢⱼ (gᵢ·gⱼ)(aᵢ·aⱼ), taken in float64: rows that nearly cancel would lose the whole norm in float32, and
    the unit would pass unclipped.
    """
    inputs = activations[0]
    norms: dict[Tensor, Tensor] = {}
    if backprops.dim() == 2:
        bias_norm = torch.linalg.vector_norm(backprops, dim=1)
        weight_norm = bias_norm * torch.linalg.vector_norm(inputs, dim=1)
    else:
        outer = backprops.flatten(1, -2).double()
        inner = inputs.flatten(1, -2).double()
        products = (outer @ outer.mT) * (inner @ inner.mT)
        weight_norm = products.sum(dim=(1, 2)).clamp(min=0).sqrt().to(backprops.dtype)
        bias_norm = torch.linalg.vector_norm(outer.sum(dim=1), dim=1).to(backprops.dtype)
    if layer.weight.requires_grad:
        norms[layer.weight] = weight_norm
    if layer.bias is not None and layer.bias.requires_grad:
        norms[layer.bias] = bias_norm
    return norms


class _GhostModule(GradSampleModuleFastGradientClipping):
    NORM_SAMPLERS: ClassVar[dict[type[nn.Module], Any]] = {
        **GradSampleModuleFastGradientClipping.NORM_SAMPLERS,
        nn.Linear: linear_norms,
    }


class GhostEngine:
    """Two backward passes a micro-batch, and no per-unit gradient of a large layer in memory."""

    name = "ghost"

    def __init__(self, *, network: nn.Module, rule: ClippingRule, loss: UnitLoss) -> None:
        self._hooked = _GhostModule(network, loss_reduction="sum", strict=True)
        self._rule = rule
        self._loss = loss
        self._parameters = trainable(network)
        self._probes = probes(network)

    def clipped_sum(self, batch: UnitBatch) -> list[Tensor]:
        """See `Engine.clipped_sum`."""
        while len(batch):
            losses = unit_losses(self._hooked, self._loss, batch)
            with hooks_without_warning():  # the hooks take the norms; the gradients themselves are not wanted
                torch.autograd.grad(losses.sum(), self._probes, retain_graph=True)
            norms = self._hooked.get_norm_sample()
            finite = norms.isfinite()
            if bool(finite.all()):
                return self._weighted(losses, self._rule.coefficients(norms))
            batch = batch.select(finite)  # a factor of zero would not do: 0 · NaN is NaN
        return [torch.zeros_like(parameter) for parameter in self._parameters]

    def _weighted(self, losses: Tensor, coefficients: Tensor) -> list[Tensor]:
        self._hooked.disable_hooks()
        try:
            with hooks_without_warning():
                return list(torch.autograd.grad(torch.dot(coefficients, losses), self._parameters))
        finally:
            self._hooked.enable_hooks()

    def close(self) -> None:
        """See `Engine.close`."""
        self._hooked.cleanup()
