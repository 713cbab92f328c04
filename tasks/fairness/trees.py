"""Boosted trees without privacy, on the same features: what could be had if nobody were protected."""

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier


def boosted_trees(
    *,
    features: NDArray[np.floating],
    labels: NDArray[np.floating],
    test_features: NDArray[np.floating],
    codes: NDArray[np.bool_] | None = None,
    seed: int,
) -> NDArray[np.float64]:
    """Fit on the training rows, and score others.

    The settings are fixed: a yardstick that is tuned to each data set measures the tuning. Its threads are
    the environment's (`OMP_NUM_THREADS`). It is not private: the scores belong to the evaluation, and the
    trees die with this call.

    Args:
        features: [rows, columns] of the training rows; NaN is a value of its own.
        labels: [rows] of 0 and 1.
        test_features: [test rows, columns].
        codes: [columns], which columns are codes of categories, below 255; none when left out.
        seed: of the sample that the bins are cut by; same seed, same scores.

    Returns:
        Probabilities of label 1, float64 [test rows]. With one class only, that class for every row.
    """
    target = np.asarray(labels).astype(np.int64)
    if target.min() == target.max():
        return np.full(len(test_features), float(target[0]))
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=200,
        max_leaf_nodes=15,
        min_samples_leaf=100,
        l2_regularization=10.0,
        early_stopping=False,  # pyright: ignore[reportArgumentType] - the default is text, a truth value is allowed
        categorical_features=codes,  # pyright: ignore[reportArgumentType] - a mask is allowed
        random_state=seed,
    )
    return trees.fit(features, target).predict_proba(test_features)[:, 1]
