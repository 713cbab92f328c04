"""The networks on offer, in torch alone: this file is shipped inside every registered model.

A network maps features [*, d] to logits [*] of the positive class.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

_KEYS = {
    "linear": {"kind", "prior_rate", "zero_last_layer"},
    "mlp": {"kind", "prior_rate", "zero_last_layer", "hidden", "layer_norm"},
}


class Logits(nn.Sequential):
    """Layers whose last has one output, returned without its trailing axis: [*, d] → [*]."""

    def forward(self, features: Tensor) -> Tensor:
        """Map features [*, d] to logits [*]."""
        return super().forward(features).squeeze(-1)


def build(spec: Mapping[str, Any], features: int, *, seed: int = 0) -> nn.Module:
    """Build a network and initialise it.

    Args:
        spec: `kind` is "linear" or "mlp"; an mlp has `hidden`, the widths of its ReLU layers, and may set
            `layer_norm`. `prior_rate` in (0, 1), a public guess of the positive rate, sets the last bias to
            its log-odds; `zero_last_layer` zeroes the last weights, so that training starts from the prior.
        features: d ≥ 1.
        seed: of the initial weights; public, since it says nothing about a record.

    Returns:
        The network, in train mode, float32, on the CPU.

    Raises:
        ValueError: the spec has an unknown kind or key, or a value out of range.
    """
    _check(spec, features)
    widths = [features, *spec.get("hidden", ()), 1]
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(skip_init(nn.Linear, inputs, outputs))  # its own start would use the process-wide generator
        if place < len(widths) - 2:
            if spec.get("layer_norm", False):
                layers.append(nn.LayerNorm(outputs))
            layers.append(nn.ReLU())
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    _initialise(linear, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        if spec.get("zero_last_layer", False):
            linear[-1].weight.zero_()
            linear[-1].bias.zero_()
        if spec.get("prior_rate") is not None:
            linear[-1].bias.fill_(math.log(spec["prior_rate"] / (1 - spec["prior_rate"])))
    return Logits(*layers)


def _initialise(layers: list[nn.Linear], generator: torch.Generator) -> None:
    # torch's own law for a Linear (uniform within ±1/√inputs), drawn from a generator of ours instead of the
    # process-wide one, so that the seed decides and nothing else is disturbed
    with torch.no_grad():
        for layer in layers:
            bound = 1 / math.sqrt(layer.in_features)
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)


def _check(spec: Mapping[str, Any], features: int) -> None:
    kind = spec.get("kind")
    if kind not in _KEYS:
        raise ValueError(f"network.kind = {kind!r} must be one of {', '.join(_KEYS)}")
    if unknown := sorted(set(spec) - _KEYS[kind]):
        raise ValueError(f"network has keys that a {kind} network does not take: {', '.join(unknown)}")
    if features < 1:
        raise ValueError(f"a network needs at least one feature, not {features}")
    hidden = spec.get("hidden", ())
    if kind == "mlp" and not hidden:
        raise ValueError("network.hidden must list at least one width; use kind: linear for none")
    if any(isinstance(width, bool) or not isinstance(width, int) or width < 1 for width in hidden):
        raise ValueError(f"network.hidden = {list(hidden)!r} must be whole numbers of at least 1")
    rate = spec.get("prior_rate")
    if rate is not None and not 0 < rate < 1:
        raise ValueError(f"network.prior_rate = {rate!r} must lie in (0, 1)")
