"""How noisy gradients become weights. All of it is post-processing: no field here can change epsilon."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from configs.errors import ConfigurationError

OptimizerName = Literal["sgd", "adam"]
Decay = Literal["linear", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Optimiser, decay and averaging.

    Attributes:
        learning_rate: of the first step, > 0.
        optimizer: "sgd" or "adam".
        momentum: in [0, 1): sgd's momentum, adam's beta1 (its beta2 is .999).
        decay: "linear" lets the rate fall to 0 after the last step; "none" keeps it.
        averaging: weight in [0, 1) of the exponential average of the iterates; 0 for none.

    Raises:
        ConfigurationError: a field is out of its range.
    """

    learning_rate: float
    optimizer: OptimizerName
    momentum: float
    decay: Decay
    averaging: float

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            faults.append(f"learning_rate = {self.learning_rate!r} must be finite and above 0")
        for name, value in (("momentum", self.momentum), ("averaging", self.averaging)):
            if not 0 <= value < 1:
                faults.append(f"{name} = {value!r} must lie in [0, 1); 0 turns it off")
        if self.optimizer not in get_args(OptimizerName):
            faults.append(f"optimizer = {self.optimizer!r} must be one of {', '.join(get_args(OptimizerName))}")
        if self.decay not in get_args(Decay):
            faults.append(f"decay = {self.decay!r} must be one of {', '.join(get_args(Decay))}")
        if faults:
            raise ConfigurationError.of("training", faults)

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of step `step`, counted from 1, of `steps`."""
        return self.learning_rate * (1 - (step - 1) / steps) if self.decay == "linear" else self.learning_rate

    def build_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh optimiser over the parameters."""
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=self.learning_rate, betas=(self.momentum, 0.999))
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)
