"""Which layers can be trained privately, and which engine clips them exactly.

Everything refused here is refused by the layer's name and with the mend. What no list can foresee is left to
the self-test, which compares every parameter's clipped sum with brute force.
"""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from configs.errors import NotPrivateError

# Ghost clipping is exact for these types themselves; a subclass may compute something else.
GHOST: tuple[type[nn.Module], ...] = (nn.Linear, nn.LayerNorm, nn.Embedding)


def ghost_refusals(network: nn.Module) -> list[str]:
    """For each trainable layer that ghost clipping does not serve, a phrase that names it."""
    return [
        f"layer {name or '(the network)'} is a {type(layer).__name__}, which ghost clipping does not serve"
        for name, layer in _trainable_layers(network)
        if type(layer) not in GHOST
    ]


def refuse_layers(network: nn.Module) -> None:
    """Refuse what breaks the claim silently: state or statistics shared by units, and shared parameters.

    Raises:
        NotPrivateError: names every layer or parameter at fault.
    """
    faults = [*_coupling_faults(network), *_parameter_faults(network)]
    if faults:
        raise NotPrivateError("this network cannot be trained privately:\n  - " + "\n  - ".join(faults))


def refuse_repeated_layers(network: nn.Module, features: Tensor) -> None:
    """Run the network once and refuse trainable layers that did not run exactly once.

    Args:
        network: the network about to be trained.
        features: any features [B, k, d], of no record.

    Raises:
        NotPrivateError: a layer ran twice (its per-unit gradient would be split in two) or never.
    """
    calls: Counter[nn.Module] = Counter()

    def count(layer: nn.Module, _inputs: object) -> None:
        calls[layer] += 1

    names = dict(_trainable_layers(network))
    handles = [layer.register_forward_pre_hook(count) for layer in names.values()]
    try:
        with torch.no_grad():
            network(features)
    finally:
        for handle in handles:
            handle.remove()
    faults = [
        f"layer {name} runs {calls[layer]} times in one forward pass; a trainable layer must run once"
        for name, layer in names.items()
        if calls[layer] != 1
    ]
    if faults:
        raise NotPrivateError("this network cannot be trained privately:\n  - " + "\n  - ".join(faults))


def _trainable_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in network.named_modules():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            yield name, layer


def _coupling_faults(network: nn.Module) -> Iterator[str]:
    for name, layer in network.named_modules():
        kind = f"layer {name} ({type(layer).__name__})"
        floating = [buffer for buffer in layer.buffers(recurse=False) if buffer.is_floating_point()]
        trained = any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            yield f"{kind} normalises over the batch and mixes units: use LayerNorm, or eval mode"
        elif layer.training and floating:
            yield f"{kind} may keep statistics in buffers, which no noise covers: set it to eval mode"
        elif isinstance(layer, _BatchNorm) and trained:
            yield f"{kind} has trainable parameters, which no engine clips: freeze them or use LayerNorm"
        elif isinstance(layer, _DropoutNd) and layer.training and layer.p > 0:
            yield f"{kind} is random, so its gradients cannot be checked: set p to 0 or remove it"
        elif isinstance(layer, nn.LayerNorm) and layer.weight is not None and layer.bias is None:
            yield f"{kind} has no bias, which no engine serves: keep the bias"
        elif trained and not layer.training:
            yield f"{kind} is trainable but in eval mode, where no engine sees it: call train() or freeze it"


def _parameter_faults(network: nn.Module) -> Iterator[str]:
    owner: dict[int, str] = {}
    trained = False
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if parameter.data_ptr() in owner and parameter.numel():
            yield f"parameters {owner[parameter.data_ptr()]} and {name} are tied: give each layer its own"
        owner[parameter.data_ptr()] = name
        if parameter.requires_grad:
            trained = True
            if parameter.dtype != torch.float32:
                yield f"parameter {name} is {parameter.dtype}: noise and sums need float32"
    if not trained:
        yield "no parameter is trainable"
