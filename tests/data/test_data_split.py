from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import DataError, InternalError
from tasks.data import split

KEY = b"k" * 32
people = st.lists(st.sampled_from([f"p{number}" for number in range(12)]), min_size=1, max_size=40)


def places(persons, key=KEY):
    return dict(zip(persons, split.assign(persons=persons, key=key, audit=0.3, population=0.2).tolist(), strict=True))


@settings(max_examples=80, deadline=None)
@given(people, people)
def test_adding_or_removing_persons_moves_nobody_else(some, others):
    alone, together = places(some), places(some + others)
    assert all(together[person] == place for person, place in alone.items())


@settings(max_examples=80, deadline=None)
@given(people, people, st.integers(1, 4))
def test_other_persons_do_not_change_which_rows_of_mine_are_kept(mine, others, cap):
    mine = [f"mine-{person}" for person in mine]
    alone = split.cap_rows(persons=mine, key=KEY, max_rows=cap)
    mixed = split.cap_rows(persons=others + mine, key=KEY, max_rows=cap)[len(others) :]
    assert alone.tolist() == mixed.tolist()
    assert pd.Series(mine)[alone].value_counts().max() <= cap
    counts = pd.Series(mine).value_counts()
    assert alone.sum() == counts.clip(upper=cap).sum()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20), st.integers(0, 19), st.integers(1, 4))
def test_with_ids_one_row_more_displaces_at_most_one(contents, at, cap):
    def kept(rows):
        keep = split.cap_rows(persons=["one"] * len(rows), key=KEY, max_rows=cap, ids=rows)
        assert keep.sum() == min(cap, len(rows))
        return Counter(row for row, here in zip(rows, keep, strict=True) if here)

    fewer = contents[: at % len(contents)] + contents[at % len(contents) + 1 :]
    assert sum((kept(fewer) - kept(contents)).values()) <= 1
    assert sum((kept(contents) - kept(fewer)).values()) <= 1


def test_rows_of_one_person_stay_together():
    persons = [f"p{number % 50}" for number in range(500)]
    placed = split.assign(persons=persons, key=KEY, audit=0.3, population=0.2)
    assert pd.Series(placed).groupby(persons).nunique().max() == 1


def test_another_key_gives_another_split_and_another_draw():
    persons = [f"p{number}" for number in range(200)]
    assert places(persons) != places(persons, key=b"other")
    rows = ["one"] * 20
    first, second = (split.cap_rows(persons=rows, key=key, max_rows=10) for key in (KEY, b"other"))
    assert first.tolist() != second.tolist()


@pytest.mark.statistical
@pytest.mark.parametrize(("audit", "population"), [(0.2, 0.05), (0.5, 0.0), (0.0, 0.3)])
def test_shares_are_those_asked_for(audit, population):
    # A share of n = 20,000 persons is binomial; 5.2 standard errors
    # are exceeded with probability 2e-7 each, 6e-7 in all three.
    placed = split.assign(persons=[f"p{n}" for n in range(20_000)], key=KEY, audit=audit, population=population)
    for place, share in (
        (split.TRAIN, 1 - audit - population),
        (split.AUDIT, audit),
        (split.POPULATION, population),
    ):
        error = np.sqrt(share * (1 - share) / 20_000)
        assert abs((placed == place).mean() - share) <= 5.2 * error
        assert abs((placed == place).mean() - (share + 0.03)) > 5.2 * error  # the control: a share off by .03


@pytest.mark.statistical
def test_the_draw_of_rows_is_fair():
    # Each of 10 rows of 4,000 persons is kept with probability .3; exceeding 5.5 standard errors
    # has probability 3.8e-8 a row, 3.8e-7 for the ten.
    persons = np.repeat([f"p{number}" for number in range(4000)], 10)
    kept = split.cap_rows(persons=persons, key=KEY, max_rows=3).reshape(4000, 10).mean(axis=0)
    assert np.abs(kept - 0.3).max() <= 5.5 * np.sqrt(0.3 * 0.7 / 4000)
    first_three = np.tile(np.arange(10) < 3, (4000, 1)).mean(axis=0)  # the control: the first rows always
    assert np.abs(first_three - 0.3).max() > 5.5 * np.sqrt(0.3 * 0.7 / 4000)


def test_a_person_with_10000_rows_keeps_the_cap():
    persons = ["one"] * 10_000 + ["two"]
    keep = split.cap_rows(persons=persons, key=KEY, max_rows=3)
    assert keep.sum() == 4
    assert keep[-1]


@settings(max_examples=80, deadline=None)
@given(people)
def test_units_hold_every_row_once_and_only_their_own(persons):
    most = pd.Series(persons).value_counts().max()
    index = split.unit_index(persons=persons, max_rows=int(most))
    assert index.shape == (len(set(persons)), most)
    assert index.dtype == np.int64
    assert sorted(index[index >= 0].tolist()) == list(range(len(persons)))
    for line in index:
        rows = line[line >= 0]
        assert len({persons[row] for row in rows}) == 1
        assert (line[len(rows) :] == -1).all()


def test_units_come_in_the_order_of_their_first_row():
    assert split.unit_index(persons=["b", "a", "b"], max_rows=3).tolist() == [[0, 2, -1], [1, -1, -1]]


def test_without_persons_each_row_is_a_unit():
    assert split.unit_index(persons=None, max_rows=1, rows=3).tolist() == [[0], [1], [2]]


def test_units_over_the_cap_are_refused():
    with pytest.raises(InternalError):
        split.unit_index(persons=["a", "a"], max_rows=1)
    with pytest.raises(InternalError):
        split.unit_index(persons=None, max_rows=1)
    with pytest.raises(InternalError):
        split.cap_rows(persons=["a"], key=KEY, max_rows=0)


@pytest.mark.parametrize(("audit", "population"), [(0.6, 0.4), (-0.1, 0.0), (1.0, 0.0), (float("nan"), 0.0)])
def test_fractions_that_leave_nobody_to_train_on_are_refused(audit, population):
    with pytest.raises(InternalError):
        split.assign(persons=["a"], key=KEY, audit=audit, population=population)


@pytest.mark.parametrize("call", [split.cap_rows, split.assign, split.unit_index])
def test_a_row_without_a_person_is_refused_with_a_mend(call):
    options = {
        split.cap_rows: {"key": KEY, "max_rows": 1},
        split.assign: {"key": KEY, "audit": 0.2, "population": 0.0},
        split.unit_index: {"max_rows": 1},
    }[call]
    with pytest.raises(DataError, match=r"fewer than 11 rows have no id.*data\.exclude"):
        call(persons=pd.Series(["a", None], dtype="str"), **options)


def test_a_row_id_depends_on_the_row_alone_and_tells_rows_apart():
    frame = pd.DataFrame({"a": ["x", "xy", "x", None, "", "x"], "b": ["yz", "z", None, "x", "x", "yz"]}, dtype="str")
    ids = split.row_ids(frame)
    assert ids.nunique() == 5
    assert ids[0] == ids[5]
    assert split.row_ids(frame[3:]).tolist() == ids[3:].tolist()
