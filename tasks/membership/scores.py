"""Scores of units from a model's losses: higher means more likely a member.

Sources: Yeom et al. 2018 (the loss attack and the gap attack); Song and Mittal 2021 (thresholds by class).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from configs.errors import InternalError
from tasks.statistics.roc import Undefined

Floats = NDArray[np.float64]


def row_losses(*, logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Binary cross-entropy of each row, in float64 from logits, so that it neither overflows nor saturates.

    Args:
        logits: [rows] of the positive class, not probabilities.
        labels: [rows], 0 or 1.

    Returns:
        [rows], in nats, ≥ 0; NaN where the logit is not finite, which leaves the attack undefined.

    Raises:
        InternalError: if the shapes differ or a label is neither 0 nor 1.
    """
    logit, label = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if logit.ndim != 1 or logit.shape != label.shape:
        raise InternalError("attack: logits and labels must be vectors of one length")
    if not np.isin(label, (0.0, 1.0)).all():
        raise InternalError("attack: every label must be 0 or 1")
    losses = np.logaddexp(0.0, (1 - 2 * label) * np.where(np.isfinite(logit), logit, 0.0))
    return np.where(np.isfinite(logit), losses, np.nan)


def unit_scores(*, losses: ArrayLike, units: ArrayLike) -> Floats:
    """Minus the mean loss of each unit's rows.

    Neither the order of the rows nor repeating a unit's rows changes a score, to the last bit.

    Args:
        losses: [rows], of rows or of whatever stands for them (`class_losses`).
        units: [rows], ids of the owners; anything that sorts.

    Returns:
        [units], in ascending order of the ids, that is, of `np.unique(units)`; NaN where a loss is.

    Raises:
        InternalError: if the shapes differ.
    """
    loss = np.asarray(losses, dtype=np.float64)
    if loss.ndim != 1 or np.shape(units) != loss.shape:
        raise InternalError("attack: losses and units must be vectors of one length")
    ids, owner = np.unique(np.asarray(units), return_inverse=True)
    order = np.lexsort((loss, owner))
    loss, owner = loss[order], owner[order]
    # Measured from the unit's smallest loss: equal rows then give exactly that loss. A plain sum of 3 or of 5
    # equal losses differs in the last bit, and turns scores that are constant into scores that are not.
    smallest = loss[np.searchsorted(owner, np.arange(ids.size))]
    above = np.bincount(owner, weights=loss - smallest[owner], minlength=ids.size)
    return -(smallest + above / np.bincount(owner, minlength=ids.size))


def class_losses(
    *, losses: ArrayLike, labels: ArrayLike, reference_losses: ArrayLike, reference_labels: ArrayLike
) -> Floats | Undefined:
    """Losses shifted and scaled within each class, so that one threshold is a threshold for each class.

    Shift and scale are the median and the standard deviation among reference points, which are in no model and
    neither members nor non-members: nothing is chosen on the units attacked. Whoever reports the stronger of
    this and the plain loss corrects for two attacks: `evaluate(attacks=2)` and `strongest`.

    Args:
        losses: [rows].
        labels: [rows], 0 or 1.
        reference_losses: [points], of the same model.
        reference_labels: [points], 0 or 1.

    Returns:
        [rows], in standard deviations (in nats for a class whose reference losses are all alike); or why not.

    Raises:
        InternalError: if shapes differ.
    """
    loss, label = np.asarray(losses, dtype=np.float64), np.asarray(labels)
    points, kinds = np.asarray(reference_losses, dtype=np.float64), np.asarray(reference_labels)
    if loss.ndim != 1 or loss.shape != label.shape or points.ndim != 1 or points.shape != kinds.shape:
        raise InternalError("attack: losses and labels must be vectors of one length")
    if not np.isfinite(points).all():
        return Undefined(reason="a loss of a reference point is not finite")
    scaled = np.full_like(loss, np.nan)
    for kind in np.unique(label):
        own = points[kinds == kind]
        if own.size < 2:
            return Undefined(reason="a class has fewer than two reference points")
        centre, spread = float(np.median(own)), float(own.std())
        alike = spread <= 1e-12 * max(1.0, abs(centre))
        scaled[label == kind] = (loss[label == kind] - centre) / (1.0 if alike else spread)
    return scaled


def gap_accuracy(*, train_accuracy: float, test_accuracy: float) -> float | Undefined:
    """Balanced accuracy of the attack that calls a unit a member where the model is right (Yeom et al. 2018).

    It needs nothing but the two accuracies, so an attack that does worse than this is broken.

    Args:
        train_accuracy: of the model on members, in [0, 1].
        test_accuracy: of the model on non-members, in [0, 1].

    Returns:
        1/2 + (train - test) / 2, in [0, 1]; or why there is none.
    """
    for name, value in (("training", train_accuracy), ("test", test_accuracy)):
        if not math.isfinite(value) or not 0 <= value <= 1:
            return Undefined(reason=f"the {name} accuracy is not a number from 0 to 1")
    return 0.5 + (train_accuracy - test_accuracy) / 2
