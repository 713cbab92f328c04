"""The Gaussian mechanism: noise of standard deviation σC, added in float64 before anything sees the sum."""

import math

import torch
from scipy.special import chdtri, gammaincinv
from torch import Tensor

from configs.errors import NotPrivateError
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


class NoiseMeter:
    """Measures the noise that steps really got: the gradient times the divisor, less the clipped sum.

    The self-test draws noise before step 1; this holds all of a run against the plan. The sum of squares is a
    function of the secret noise and never leaves the process; what leaves is that it agreed, which fails with
    probability 2e-12 where the noise is right, whatever the records hold.
    """

    def __init__(self) -> None:
        self._squares, self._values, self._largest = 0.0, 0, 0.0

    def add(self, *, sums: list[Tensor], gradients: list[Tensor], divisor: float) -> None:
        """Take in one step: what was given to the mechanism, and what came out."""
        for before, after in zip(sums, gradients, strict=True):
            scaled = after.double() * divisor
            self._squares += float((scaled - before.double()).square().sum())
            self._largest = max(self._largest, float(scaled.abs().max()))
            self._values += after.numel()

    def check(self, plan: DpSgdPlan) -> None:
        """Hold the run's noise against a plan's.

        The sum of squares of n normal values over their variance is chi-square with n degrees of freedom.

        Raises:
            NotPrivateError: it lies outside the 1e-12 tails on either side, or is not finite.
        """
        deviation, count = plan.noise_multiplier * plan.clipping_norm, self._values
        rounding = math.sqrt(count) * self._largest * _FLOAT32_STEP
        least = deviation * math.sqrt(2 * float(gammaincinv(count / 2, _TAIL))) - rounding
        most = deviation * math.sqrt(float(chdtri(count, _TAIL))) + rounding
        if not (math.isfinite(rounding) and least <= math.sqrt(self._squares) <= most):  # false for NaN
            measured = math.sqrt(self._squares / max(count, 1))
            raise NotPrivateError(
                f"the noise of the steps has the standard deviation {measured:.4g}, and epsilon was computed for "
                f"{deviation:.4g}: what ran is not what was accounted, so nothing of it is recorded"
            )


_TAIL = 1e-12
_FLOAT32_STEP = 2.0**-23  # twice what rounding a gradient to float32 can move it by, relative to it
