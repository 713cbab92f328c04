"""The obvious engine, which the others are compared with: each unit alone, without padding."""

import torch
from torch import Tensor, nn

from tasks.dpsgd.clipping import ClippingRule, UnitLoss, trainable, unit_losses
from tasks.dpsgd.units import UnitBatch


class ReferenceEngine:
    """Clips and sums one unit's gradient after another, the norm and the sum in float64."""

    name = "reference"

    def __init__(self, *, network: nn.Module, rule: ClippingRule, loss: UnitLoss) -> None:
        self._network = network
        self._rule = rule
        self._loss = loss
        self._parameters = trainable(network)

    def losses(self, batch: UnitBatch) -> Tensor:
        """Each unit's loss when it is alone, [B]."""
        with torch.no_grad():
            alone = [unit_losses(self._network, self._loss, unit) for unit in _units(batch)]
        return torch.cat(alone) if alone else torch.zeros(0)

    def clipped_sum(self, batch: UnitBatch) -> list[Tensor]:
        """See `Engine.clipped_sum`."""
        total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in self._parameters]
        for unit in _units(batch):
            loss = unit_losses(self._network, self._loss, unit)[0]
            gradients = [gradient.double() for gradient in torch.autograd.grad(loss, self._parameters)]
            norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
            if bool(norm.isfinite()):
                factor = self._rule.coefficients(norm)
                total = [part + factor * gradient for part, gradient in zip(total, gradients, strict=True)]
        return [part.to(parameter.dtype) for part, parameter in zip(total, self._parameters, strict=True)]

    def close(self) -> None:
        """See `Engine.close`."""


def _units(batch: UnitBatch) -> list[UnitBatch]:
    units: list[UnitBatch] = []
    for place in range(len(batch)):
        rows = batch.mask[place]
        units.append(
            UnitBatch(
                features=batch.features[place][rows].unsqueeze(0),
                labels=batch.labels[place][rows].unsqueeze(0),
                mask=rows[rows].unsqueeze(0),
            )
        )
    return units
