"""Scores of units: exact losses, one score a unit, whatever the order or number of its rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import InternalError
from tasks.membership.metrics import AttackResult, evaluate
from tasks.membership.scores import class_losses, gap_accuracy, row_losses, unit_scores
from tasks.statistics.roc import Undefined


def test_losses_by_hand():
    # log 2; log(1 + e^-1); log(1 + e)
    found = row_losses(logits=[0.0, 1.0, 1.0], labels=[1, 1, 0])
    assert found == pytest.approx([np.log(2), np.log1p(np.exp(-1)), np.log1p(np.e)], rel=1e-15)


def test_losses_neither_saturate_nor_overflow():
    # by probabilities in float32 the first two would be 0 and the last infinite
    found = row_losses(logits=[40.0, -40.0, -1e6], labels=[1, 0, 1])
    assert found == pytest.approx([np.exp(-40), np.exp(-40), 1e6], rel=1e-12)


@pytest.mark.parametrize("logit", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_gives_no_loss_even_where_the_limit_is_zero(logit):
    assert np.isnan(row_losses(logits=[logit, logit], labels=[0, 1])).all()


@pytest.mark.parametrize(
    ("logits", "labels"), [([0.0], [0, 1]), ([0.0], [0.5]), ([0.0], [np.nan]), ([[0.0]], [[1]]), ([0.0], [-1])]
)
def test_rows_that_do_not_fit_are_refused(logits, labels):
    with pytest.raises(InternalError):
        row_losses(logits=logits, labels=labels)


def test_a_score_is_minus_the_mean_loss_in_ascending_order_of_the_ids():
    found = unit_scores(losses=[1.0, 2.0, 3.0, 4.0], units=["b", "a", "b", "c"])
    assert found.tolist() == [-2.0, -2.0, -4.0]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 50)), min_size=1, max_size=30), st.randoms())
def test_scores_do_not_depend_on_the_order_of_the_rows_to_the_last_bit(rows, random):
    shuffled = random.sample(rows, len(rows))
    first, second = (unit_scores(losses=[r[1] for r in part], units=[r[0] for r in part]) for part in (rows, shuffled))
    assert first.tolist() == second.tolist()
    owners = np.array([owner for owner, _ in rows])
    losses = np.array([loss for _, loss in rows])
    assert first == pytest.approx([-losses[owners == owner].mean() for owner in np.unique(owners)], abs=1e-12)


@given(st.floats(1e-3, 20), st.lists(st.integers(1, 9), min_size=2, max_size=20))
def test_units_with_different_numbers_of_equal_rows_tie_exactly(loss, counts):
    found = unit_scores(losses=np.full(sum(counts), loss), units=np.repeat(np.arange(len(counts)), counts))
    assert set(found.tolist()) == {-loss}


def test_one_row_without_a_loss_leaves_its_unit_without_a_score():
    found = unit_scores(losses=[1.0, np.nan, 2.0], units=[0, 0, 1])
    assert np.isnan(found[0])
    assert found[1] == -2.0


def test_losses_and_units_of_different_lengths_are_refused():
    with pytest.raises(InternalError):
        unit_scores(losses=[1.0, 2.0], units=[0])


def test_a_hundred_persons_with_five_equal_rows_get_the_interval_of_a_hundred():
    """Case C12: the standard error is about .041, the persons', and not .018, the rows'."""
    generator = np.random.default_rng(0)
    losses = generator.normal(1.0, 0.3, 200)
    persons = np.arange(200)

    def found(rows, owners):
        scores = unit_scores(losses=rows, units=owners)
        half = len(scores) // 2
        result = evaluate(members=scores[:half], non_members=scores[half:])
        assert isinstance(result, AttackResult)
        return result

    single = found(losses, persons)
    assert found(np.repeat(losses, 5), np.repeat(persons, 5)) == single
    assert single.auc.standard_error == pytest.approx(0.0409, abs=0.002)  # √(201 / (12 · 100²)) where nothing leaks
    by_row = found(np.repeat(losses, 5), np.arange(1000))  # rows taken for persons: what must not happen
    assert by_row.auc.standard_error == pytest.approx(0.018, abs=0.001)


def test_class_losses_give_each_class_a_threshold_of_its_own():
    reference, kinds = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0], [0, 0, 0, 1, 1, 1]
    found = class_losses(losses=[2.0, 3.0, 20.0, 30.0], labels=[0, 0, 1, 1], reference_losses=reference,
                         reference_labels=kinds)  # fmt: skip
    assert not isinstance(found, Undefined)
    assert found == pytest.approx([0.0, np.sqrt(1.5), 0.0, np.sqrt(1.5)])


def test_class_losses_of_a_constant_model_are_exactly_constant():
    labels = np.array([0, 1] * 7)
    losses = np.where(labels == 1, 2.2072749131897207, 0.11653381625595151)
    found = class_losses(losses=losses, labels=labels, reference_losses=losses, reference_labels=labels)
    assert not isinstance(found, Undefined)
    assert set(found.tolist()) == {0.0}


@pytest.mark.parametrize(
    ("reference", "kinds", "named"),
    [
        ([1.0, 2.0, 3.0], [0, 0, 1], "fewer than two"),
        ([1.0, 2.0], [0, 0], "fewer than two"),
        ([np.nan] * 4, [0, 0, 1, 1], "finite"),
    ],
)
def test_class_losses_without_reference_points_are_undefined(reference, kinds, named):
    found = class_losses(losses=[1.0, 2.0], labels=[0, 1], reference_losses=reference, reference_labels=kinds)
    assert isinstance(found, Undefined)
    assert named in found.reason


def test_class_losses_of_different_lengths_are_refused():
    with pytest.raises(InternalError):
        class_losses(losses=[1.0], labels=[0, 1], reference_losses=[1.0], reference_labels=[0])


def test_the_gap_of_the_field_case_is_72_per_cent():
    """Case C1."""
    assert gap_accuracy(train_accuracy=0.996, test_accuracy=0.5535) == pytest.approx(0.72125, abs=1e-12)


def test_no_gap_is_one_half_and_a_reversed_one_is_below():
    assert gap_accuracy(train_accuracy=0.8, test_accuracy=0.8) == 0.5
    assert gap_accuracy(train_accuracy=0.0, test_accuracy=1.0) == 0.0


@pytest.mark.parametrize(("train", "test"), [(np.nan, 0.5), (0.5, np.nan), (1.01, 0.5), (0.5, -0.1), (np.inf, 0.5)])
def test_a_gap_of_what_is_no_accuracy_is_undefined(train, test):
    assert isinstance(gap_accuracy(train_accuracy=train, test_accuracy=test), Undefined)
