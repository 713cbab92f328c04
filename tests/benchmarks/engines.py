"""The engines that are timed: the same network, records, optimiser, clipping norm and noise for each.

An engine runs steps and calls `mark(done)` before the first one (with 0) and after each; the clock and the
memory meter are in those calls.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tasks.dpsgd import loop, networks
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords

COLUMNS = 60
HIDDEN = (128, 64)
NETWORK = "mlp-" + "-".join(map(str, HIDDEN))
_LEARNING_RATE, _MOMENTUM, _SIGMA, _NORM = 0.1, 0.9, 1.0, 1.0

Mark = Callable[[int], None]


class Engine(Protocol):
    def run(self, *, steps: int, mark: Mark) -> None:
        """Run `steps` steps, marking 0 before the first and the number done after each."""
        ...


def synthetic(rows: int) -> UnitRecords:
    """Standard normal features and a label that depends on them; each row is a unit."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(min(rows, 100_000), COLUMNS, generator=generator)
    features = torch.empty(rows, COLUMNS)
    for part in features.split(len(block)):
        part.copy_(block[: len(part)])
    return UnitRecords.of_rows(features=features, labels=(features[:, 0] > 0).float())


def network() -> nn.Module:
    return networks.build({"kind": "mlp", "hidden": HIDDEN}, COLUMNS, seed=0)


class Discreet:
    """This project's loop as it ships: its sampler, engine `auto`, noise and optimiser; claims cost nothing here."""

    def __init__(self, records: UnitRecords, batch: int) -> None:
        self._records, self._batch, self._network = records, batch, network()

    def run(self, *, steps: int, mark: Mark) -> None:
        started = False

        def claim(_upto: int) -> None:
            nonlocal started
            if not started:
                mark(0)
            started = True

        units = len(self._records)
        plan = DpSgdPlan(
            units=units,
            expected_batch=self._batch,
            steps=steps,
            noise_multiplier=_SIGMA,
            clipping_norm=_NORM,
            delta=0.1 / units,
        )
        loop.train(
            plan=plan,
            network=self._network,
            records=self._records,
            learning_rate=_LEARNING_RATE,
            momentum=_MOMENTUM,
            claim=claim,
            progress=mark,
        )


class NonPrivate:
    """Plain torch without a data loader: random rows by `index_select`, one forward and one backward pass."""

    def __init__(self, records: UnitRecords, batch: int) -> None:
        self._records, self._batch, self._network = records, batch, network()
        self._optimizer = _sgd(self._network)
        self._loss = _bce()

    def run(self, *, steps: int, mark: Mark) -> None:
        features, labels = self._records.features, self._records.labels
        mark(0)
        for done in range(1, steps + 1):
            rows = torch.randint(len(features), (self._batch,))
            self._optimizer.zero_grad()
            self._loss(self._network(features.index_select(0, rows)), labels.index_select(0, rows)).backward()
            self._optimizer.step()
            mark(done)


class StockOpacus:
    """Opacus as its tutorials use it: `make_private` around a DataLoader, which becomes its DPDataLoader."""

    def __init__(self, records: UnitRecords, batch: int, *, mode: str) -> None:
        from opacus import PrivacyEngine

        module, criterion = network(), _bce()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that secure mode is off, and unequal last batches
            made: Any = PrivacyEngine().make_private(
                module=module,
                optimizer=_sgd(module),
                criterion=criterion,
                data_loader=DataLoader(TensorDataset(records.features, records.labels), batch_size=batch),
                noise_multiplier=_SIGMA,
                max_grad_norm=_NORM,
                grad_sample_mode=mode,
            )
        self._network, self._optimizer = made[:2]
        self._loss = made[2] if mode == "ghost" else criterion
        self._batches = _endless(made[-1])

    def run(self, *, steps: int, mark: Mark) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # once a step: the first layer's inputs need no gradient
            mark(0)
            for done in range(1, steps + 1):
                features, labels = next(self._batches)
                self._optimizer.zero_grad()
                self._loss(self._network(features), labels).backward()
                self._optimizer.step()
                mark(done)


ENGINES = ("non_private", "discreet", "opacus_ghost", "opacus_hooks")


def make(name: str, records: UnitRecords, batch: int) -> Engine:
    """One of `ENGINES` over the records, with its own copy of the network."""
    if name == "discreet":
        return Discreet(records, batch)
    if name == "non_private":
        return NonPrivate(records, batch)
    return StockOpacus(records, batch, mode=name.removeprefix("opacus_"))


def touch_torch() -> None:
    """One small training step, so that what torch loads at its first one is in memory before any engine's."""
    module = network()
    optimizer = _sgd(module)
    _bce()(module(torch.randn(16, COLUMNS)), torch.ones(16)).backward()
    optimizer.step()


def _bce() -> Any:  # Any: Opacus declares its criterion to be a CrossEntropyLoss
    return nn.BCEWithLogitsLoss()


def _sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)


def _endless(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader
