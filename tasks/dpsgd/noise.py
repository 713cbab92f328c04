"""The Gaussian mechanism: noise of standard deviation σC, added in float64 before anything sees the sum."""

import torch
from torch import Tensor

from tasks.dpsgd.csprng import Keystream, normal
from tasks.dpsgd.plan import DpSgdPlan


class NoisyMean:
    """Turns a clipped sum into the step's gradient: (sum + N(0, (σC)²)) / expected batch.

    The divisor is the plan's public expected batch, never the number of units that were sampled.
    """

    def __init__(self, *, plan: DpSgdPlan, keystream: Keystream) -> None:
        self._deviation = plan.noise_multiplier * plan.clipping_norm
        self._divisor = plan.expected_batch
        self._keystream = keystream

    def __call__(self, sums: list[Tensor]) -> list[Tensor]:
        """Release the sums.

        Args:
            sums: the clipped sum, one float32 tensor a parameter. Unreleased.

        Returns:
            Gradients in the same shapes, float32. In the twin, without noise.
        """
        flat = torch.cat([part.flatten() for part in sums]).double()
        if self._deviation > 0:
            flat += self._deviation * torch.from_numpy(normal(self._keystream, len(flat)))
        flat /= self._divisor
        pieces = flat.float().split([part.numel() for part in sums])
        return [piece.view_as(part) for piece, part in zip(pieces, sums, strict=True)]
