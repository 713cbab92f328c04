"""The yardstick of boosted trees."""

import numpy as np
from sklearn.metrics import roc_auc_score

from tasks.fairness.trees import boosted_trees


def _rows(seed, rows):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 5)).astype(np.float32)
    labels = (generator.random(rows) < 1 / (1 + np.exp(-2 * features[:, 0] * features[:, 1]))).astype(np.float32)
    return features, labels


def test_trees_find_an_interaction_that_no_line_can():
    features, labels = _rows(0, 3000)
    test, outcome = _rows(1, 2000)
    scores = boosted_trees(features=features, labels=labels, test_features=test, seed=0)
    assert scores.shape == (2000,)
    assert scores.dtype == np.float64
    assert 0 <= scores.min() <= scores.max() <= 1
    assert roc_auc_score(outcome, scores) > 0.7  # the best there is has about .81; one feature alone .5


def test_the_same_seed_gives_the_same_scores():
    features, labels = _rows(2, 600)
    once, again = (boosted_trees(features=features, labels=labels, test_features=features, seed=7) for _ in range(2))
    assert np.array_equal(once, again)


def test_labels_of_one_class_are_foretold_for_every_row():
    features, _ = _rows(3, 50)
    scores = boosted_trees(features=features, labels=np.zeros(50), test_features=features[:3], seed=0)
    assert scores.tolist() == [0.0, 0.0, 0.0]
