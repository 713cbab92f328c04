"""The positive control: a network that can only memorise. An attack that misses it proves nothing.

Random labels leave nothing to learn but who was there (Zhang et al. 2017), so whatever the task, members come out with
smaller losses than non-members whose labels are just as random. No privacy, no clipping; it is never registered and
dies with the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs.errors import ConfigurationError, DataError
from tasks.dpsgd import networks
from tasks.membership.metrics import AttackResult, evaluate
from tasks.membership.scores import Floats, row_losses, unit_scores
from tasks.statistics.roc import Undefined

Units = tuple[Tensor, Tensor]

_MIN_HIDDEN = 64


def control(
    *,
    members: Units,
    non_members: Units,
    hidden: int = _MIN_HIDDEN,
    epochs: int = 40,
    batch: int = 128,
    learning_rate: float = 2e-3,
    seed: int,
    labels: str = "random",
) -> AttackResult | Undefined:
    """Train a network on members with random labels, and attack it as the new model is attacked.

    Every unit, member or not, draws one label by a fair coin, which all of its rows carry. The network has one
    hidden layer of ReLUs and is trained by Adam on the mean loss of a unit's rows, on the members alone. How much it
    memorises hangs on the features: 5,000 units with 8 of them are too many (balanced accuracy .54), and the
    attack then counts as broken. Fewer units and more epochs mend that: 1,000 units, 400 epochs, .66.

    Args:
        members: features float32 [B, k, d] and mask bool [B, k], true where there is a row.
        non_members: the same, of other units of the same population.
        hidden: units of the hidden layer, at least 64.
        epochs: passes over the members, each in a new order.
        batch: units in a batch.
        learning_rate: of Adam.
        seed: of labels, initial weights and order; says nothing about a record.
        labels: "random"; there is no other yet.

    Returns:
        What the attack found on the control; undefined where the training diverged or units are too few.

    Raises:
        ConfigurationError: a setting is out of its range.
        DataError: shapes disagree, or a unit has no row.
    """
    _check(members, non_members, hidden=hidden, epochs=epochs, batch=batch, rate=learning_rate, labels=labels)
    generator = torch.Generator().manual_seed(seed)
    inside, outside = (torch.randint(2, (len(part[0]), 1), generator=generator) for part in (members, non_members))
    members, non_members = _standardised(members, non_members)
    network = networks.build({"kind": "mlp", "hidden": [hidden]}, members[0].shape[2], seed=seed)
    with _one_thread():
        _memorise(network, members, inside, epochs=epochs, batch=batch, rate=learning_rate, generator=generator)
    return evaluate(
        members=_scores(network, members, inside), non_members=_scores(network, non_members, outside), seed=seed
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Batches of 128 are too small to share: two threads took 17 s where one took 3.5 s on a machine in use."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _memorise(
    network: nn.Module,
    units: Units,
    labels: Tensor,
    *,
    epochs: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
) -> None:
    features, mask = units
    weights = mask / mask.sum(dim=1, keepdim=True)  # of rows within their unit
    targets = labels.expand(mask.shape).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, foreach=True)
    for _ in range(epochs):
        order = torch.randperm(len(features), generator=generator)
        shuffled = (part[order].split(batch) for part in (features, mask, targets, weights))
        for some, rows, wanted, weight in zip(*shuffled, strict=True):
            optimizer.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(
                network(some[rows]), wanted[rows], weight=weight[rows], reduction="sum"
            )
            (loss / len(some)).backward()
            optimizer.step()


def _standardised(members: Units, non_members: Units) -> tuple[Units, Units]:
    """Columns centred and scaled by the members' rows; padding stays out of it.

    Memorising must not depend on how features happen to be encoded: with uniform features in [0, 1] the same
    recipe reaches a balanced accuracy of .54 as they are, and .86 centred and scaled.
    """
    rows = members[0][members[1]]
    centre, scale = rows.mean(dim=0), rows.std(dim=0)
    scale = torch.where(scale > 1e-6, scale, 1.0)  # a constant column stays constant
    inside, outside = (((features - centre) / scale, mask) for features, mask in (members, non_members))
    return inside, outside


def _scores(network: nn.Module, units: Units, labels: Tensor) -> Floats:
    """One score a unit, [B], in the units' order."""
    features, mask = units
    with torch.no_grad():
        logits = network(features)[mask].numpy()
    owner = np.nonzero(mask.numpy())[0]
    return unit_scores(losses=row_losses(logits=logits, labels=labels.squeeze(1).numpy()[owner]), units=owner)


def _check(
    members: Units, non_members: Units, *, hidden: int, epochs: int, batch: int, rate: float, labels: str
) -> None:
    faults = [
        f"{name} = {value!r} must be at least {least}"
        for name, value, least in (("hidden", hidden, _MIN_HIDDEN), ("epochs", epochs, 1), ("batch", batch, 1))
        if value < least
    ]
    if not 0 < rate < 1:
        faults.append(f"learning_rate = {rate!r} must lie in (0, 1)")
    if labels != "random":
        faults.append(f"labels = {labels!r} is not available: the control can only memorise labels: random")
    if faults:
        raise ConfigurationError.of("attack.control", faults)
    for features, mask in (members, non_members):
        if features.dim() != 3 or mask.shape != features.shape[:2] or features.shape[2] != members[0].shape[2]:
            raise DataError("the control's units must have features [B, k, d], one d for both, and a mask [B, k]")
        if not bool(mask.any(dim=1).all()):
            raise DataError("a unit of the control has no row: leave it out")
