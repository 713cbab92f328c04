"""Per-unit gradients by Opacus's hooks (functorch for layers it has no rule for), clipped and summed."""

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from tasks.dpsgd.clipping import ClippingRule, UnitLoss, hooks_without_warning, probes, trainable, unit_losses
from tasks.dpsgd.units import UnitBatch

_GRADIENT_VALUES = 2**22  # 16 MB of per-unit gradients at a time: more is slower, since memory is the limit


class HooksEngine:
    """Serves any layer whose per-unit gradient Opacus can take, a few units at a time."""

    name = "hooks"

    def __init__(self, *, network: nn.Module, rule: ClippingRule, loss: UnitLoss) -> None:
        self._hooked = GradSampleModule(network, loss_reduction="sum", strict=True)
        self._rule = rule
        self._loss = loss
        self._parameters = trainable(network)
        self._probes = probes(network)
        self._units = max(1, _GRADIENT_VALUES // sum(parameter.numel() for parameter in self._parameters))

    def clipped_sum(self, batch: UnitBatch) -> list[Tensor]:
        """See `Engine.clipped_sum`."""
        total = [torch.zeros_like(parameter) for parameter in self._parameters]
        for start in range(0, len(batch), self._units):
            few = batch.select(slice(start, start + self._units))
            for part, gradients in zip(total, self._clipped(few), strict=True):
                part += gradients
        return total

    def _clipped(self, batch: UnitBatch) -> list[Tensor]:
        losses = unit_losses(self._hooked, self._loss, batch)
        with hooks_without_warning():  # the hooks fill grad_sample; the gradients themselves are not wanted
            torch.autograd.grad(losses.sum(), self._probes)
        gradients: list[Tensor] = [
            getattr(parameter, "grad_sample").flatten(1)  # noqa: B009  (an attribute that Opacus adds)
            for parameter in self._parameters
        ]
        self._hooked.set_grad_sample_to_none()
        by_parameter = [torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients]
        norms = torch.linalg.vector_norm(torch.stack(by_parameter), dim=0)
        finite = norms.isfinite()
        if not bool(finite.all()):  # a factor of zero would not do: 0 · NaN is NaN
            norms, gradients = norms[finite], [gradient[finite] for gradient in gradients]
        factors = self._rule.coefficients(norms)
        return [
            (factors @ gradient).view_as(parameter)
            for gradient, parameter in zip(gradients, self._parameters, strict=True)
        ]

    def close(self) -> None:
        """See `Engine.close`."""
        self._hooked.cleanup()
