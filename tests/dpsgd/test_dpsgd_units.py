import numpy as np
import pytest
import torch

from configs.errors import DataError
from tasks.dpsgd.units import UnitRecords

ROWS = torch.arange(12, dtype=torch.float32).view(6, 2)
LABELS = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])


def persons(codes, most=3):
    return UnitRecords.of_persons(features=ROWS, labels=LABELS, persons=np.array(codes), rows_per_person=most)


def test_rows_of_a_person_stay_together_and_the_rest_is_padding():
    assert persons([7, 5, 7, 9, 7, 5]).index.tolist() == [[1, 5, -1], [0, 2, 4], [3, -1, -1]]


def test_every_row_is_a_unit_where_the_unit_is_a_row():
    records = UnitRecords.of_rows(features=ROWS, labels=LABELS)
    assert records.index.tolist() == [[0], [1], [2], [3], [4], [5]]
    assert len(records) == 6
    assert records.rows_per_unit == 1


def test_padding_is_zero_and_masked():
    batch = persons([7, 5, 7, 9, 7, 5]).gather(torch.tensor([2, 0]))
    assert batch.mask.tolist() == [[True, False, False], [True, True, False]]
    assert batch.features.tolist() == [[[6, 7], [0, 0], [0, 0]], [[2, 3], [10, 11], [0, 0]]]
    assert batch.labels.tolist() == [[1, 0, 0], [1, 1, 0]]


def test_the_row_that_stands_in_for_padding_is_no_part_of_another_unit():
    spoiled = ROWS.clone()
    spoiled[0] = float("nan")
    records = UnitRecords.of_persons(
        features=spoiled, labels=LABELS, persons=np.array([0, 1, 1, 2, 3, 4]), rows_per_person=2
    )
    assert records.gather(torch.tensor([1, 2, 3, 4])).features.isfinite().all()


@pytest.mark.parametrize("size", [1, 2, 100])
def test_micro_batches_hold_every_sampled_unit_once_with_all_its_rows(make_records, size):
    records = make_records(50, features=1, most=7)
    units = torch.arange(0, 50, 3)
    seen: list[float] = []
    for batch in records.batches(units, physical_batch=size):
        assert 1 <= len(batch) <= size
        assert batch.mask[:, 0].all()
        seen += batch.features[batch.mask].flatten().tolist()
    rows = records.index[units]
    assert sorted(seen) == sorted(records.features[rows[rows >= 0]].flatten().tolist())


def test_no_unit_gives_no_micro_batch(make_records):
    none = torch.empty(0, dtype=torch.int64)
    assert not list(make_records(5).batches(none, physical_batch=8))


def test_more_rows_than_the_cap_are_refused():
    with pytest.raises(DataError, match="max_rows_per_person = 2"):
        persons([7, 5, 7, 9, 7, 5], most=2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"index": torch.tensor([[0], [0]])}, "two units"),
        ({"index": torch.tensor([[-1, -1]])}, "no row"),
        ({"index": torch.tensor([[-1, 0]])}, "on the right"),
        ({"index": torch.tensor([[6]])}, "outside"),
        ({"index": torch.tensor([[-2]])}, "outside"),
        ({"index": torch.tensor([0, 1])}, "index"),
        ({"index": torch.tensor([[0]], dtype=torch.int32)}, "int64"),
        ({"features": ROWS.double()}, "float32"),
        ({"labels": LABELS[:5]}, "labels"),
    ],
)
def test_records_that_would_break_the_claim_are_refused(changes, named):
    fields = {"features": ROWS, "labels": LABELS, "index": torch.tensor([[0], [1]])}
    with pytest.raises(DataError, match=named):
        UnitRecords(**(fields | changes))


def test_no_rows_at_all_are_no_units():
    records = UnitRecords.of_persons(
        features=ROWS[:0], labels=LABELS[:0], persons=np.empty(0, dtype=np.int64), rows_per_person=2
    )
    assert len(records) == 0
