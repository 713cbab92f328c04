"""The blind baseline: can members be told from non-members by their records alone, without any model?

Where they can, members and non-members differ, and a membership attack measures that difference instead of what
the model remembers. Das, Zhang and Tramèr (2024): on several published benchmarks such a classifier beats every attack.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from configs.errors import InternalError
from tasks.statistics import roc
from tasks.statistics.roc import AucEstimate, Undefined

Floats = NDArray[np.float64]

_MOST_UNITS = 20_000  # a side; more would sharpen an interval that is already within ±.008
_FEWEST_UNITS = 100  # a side; with fewer, boosted trees see nothing


def blind(*, members: ArrayLike, non_members: ArrayLike, seed: int) -> AucEstimate | Undefined:
    """AUC of boosted trees that see features and labels, and no model.

    They are trained on a random half of both sides and judged on the other half, so the interval is as valid as
    DeLong's. Letting the halves judge each other, and pooling, would gain little and claim more: their errors
    correlate (simulated where nothing differs: the lower bound was above .5 in 5.8 % of cases instead of 2.5 %,
    and the AUC's spread fell by a tenth only).

    Args:
        members: [units, f], the features of each unit with its label, encoded; NaN for what is missing.
        non_members: [units, f].
        seed: of the halves, and of the draw of at most 20,000 units a side; public.

    Returns:
        The AUC with its two-sided 95 % interval; or why there is none: a value is infinite, or fewer than 100
        units on a side.

    Raises:
        InternalError: if the two are not matrices of the same width.
    """
    # Imported here: the library takes a second, which only this function needs.
    from sklearn.ensemble import HistGradientBoostingClassifier

    inside, outside = np.asarray(members, dtype=np.float64), np.asarray(non_members, dtype=np.float64)
    if inside.ndim != 2 or outside.ndim != 2 or inside.shape[1] != outside.shape[1] or not inside.shape[1]:
        raise InternalError("blind baseline: members and non-members must be matrices of the same features")
    if min(len(inside), len(outside)) < _FEWEST_UNITS:
        return Undefined(
            reason=f"there are fewer than {_FEWEST_UNITS} members or fewer than {_FEWEST_UNITS} non-members"
        )
    if np.isinf(inside).any() or np.isinf(outside).any():
        return Undefined(reason="a feature of a unit is infinite")
    generator = np.random.default_rng(seed)
    sides = [side[generator.permutation(len(side))[:_MOST_UNITS]] for side in (inside, outside)]
    learnt, judged = ([side[half::2] for side in sides] for half in (0, 1))
    model = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=15, early_stopping="auto", random_state=seed)
    model.fit(*_stacked(learnt))
    features, labels = _stacked(judged)
    return roc.auc(labels=labels, scores=model.decision_function(features))


def _stacked(sides: list[Floats]) -> tuple[Floats, NDArray[np.int64]]:
    """Members and non-members as features [units, f] and labels [units], 1 for members."""
    return np.concatenate(sides), np.repeat([1, 0], [len(side) for side in sides])
