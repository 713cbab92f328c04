import datetime
import decimal
import sqlite3
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import ConfigurationError, DataError
from tasks.data.sources import counts, digest, exclude, read_records

SECRET = "someone@example.org"
KEY = b"k" * 32


def read(source: dict, columns=("a",), missing=("",)) -> pd.DataFrame:
    return read_records(source=source, columns=columns, missing=missing)


def refusal(source: dict, **options) -> str:
    with pytest.raises(DataError) as caught:
        read(source, **options)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


@pytest.fixture
def from_python(monkeypatch):
    """A source that returns whatever the test hands over."""

    def source(frame, **arguments) -> dict:
        module = type(sys)("records_of_a_test")
        module.records = frame if callable(frame) else lambda: frame
        monkeypatch.setitem(sys.modules, "records_of_a_test", module)
        return {"kind": "python", "function": "records_of_a_test:records", "arguments": arguments}

    return source


CELLS = [
    (1.0, "1"),
    (-0.0, "0"),
    (0.1, "0.1"),
    (np.float32(0.1), "0.1"),
    (1e30, "1e+30"),
    (float("inf"), "inf"),
    (float("nan"), None),
    (None, None),
    (pd.NaT, None),
    (7, "7"),
    (2**63 - 1, "9223372036854775807"),
    (True, "True"),
    (np.bool_(False), "False"),
    (decimal.Decimal("1.50"), "1.5"),
    (decimal.Decimal("1E+3"), "1000"),
    (datetime.date(2024, 2, 1), "2024-02-01"),
    (datetime.datetime(2024, 2, 1, 3, 4), "2024-02-01T03:04:00"),  # noqa: DTZ001
    (pd.Timestamp("2024-02-01"), "2024-02-01T00:00:00"),
    ("No", "No"),
    ("", None),
]


@pytest.mark.parametrize(("cell", "text"), CELLS, ids=repr)
def test_a_typed_cell_has_one_text_alone_and_among_others(cell, text, from_python):
    alone = read(from_python(pd.DataFrame({"a": [cell, "x"]}, dtype=object))).a[0]
    mixed = read(from_python(pd.DataFrame({"a": [True, 1, 1.0, cell]}, dtype=object))).a[3]
    for found in (alone, mixed):
        assert pd.isna(found) if text is None else found == text


def test_equal_cells_of_different_kinds_keep_their_own_text(from_python):
    frame = pd.DataFrame({"a": [True, 1, 1.0, 0, False, "1"]}, dtype=object)
    assert read(from_python(frame)).a.tolist() == ["True", "1", "1", "0", "False", "1"]


def test_a_whole_float_column_reads_as_whole_numbers(from_python):
    frame = pd.DataFrame({"a": [1.0, float("nan"), 3.0]})
    assert read(from_python(frame)).a.tolist()[::2] == ["1", "3"]


@pytest.mark.parametrize("cell", [b"x", [1], {"x": 1}, (1,), np.array([1, 2])], ids=repr)
def test_cells_without_a_text_are_refused(cell, from_python):
    assert "column 'a' holds" in refusal(from_python(pd.DataFrame({"a": [cell, SECRET]}, dtype=object)))


def test_text_that_is_not_unicode_is_refused(from_python):
    assert "not Unicode" in refusal(from_python(pd.DataFrame({"a": ["\ud800", SECRET]}, dtype=object)))


def test_a_cell_over_1_mib_is_refused(from_python):
    assert "longer than 1 MiB" in refusal(from_python(pd.DataFrame({"a": ["x" * (2**20 + 1)]})))


def test_parquet_keeps_long_ids_with_gaps_exact(tmp_path):
    path = tmp_path / "records.parquet"
    columns = {
        "id": pd.array([2**62 + 1, None], dtype="Int64"),
        "day": pd.Series([datetime.date(2024, 1, 31), None]),
        "flag": pd.array([True, None], dtype="boolean"),
        "kind": pd.Categorical(["x", None]),
        "value": [0.5, 2.0],
    }
    pd.DataFrame(columns).to_parquet(path)
    frame = read({"kind": "parquet", "path": path}, columns=("flag", "id", "day", "kind", "value"))
    assert frame.iloc[0].tolist() == ["True", str(2**62 + 1), "2024-01-31", "x", "0.5"]
    assert frame.iloc[1, :4].isna().all()
    assert frame.value[1] == "2"


def test_what_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "records.parquet"
    assert "does not exist" in refusal({"kind": "parquet", "path": path})
    assert "is a folder" in refusal({"kind": "parquet", "path": tmp_path})
    assert "cannot be read" in refusal({"kind": "parquet", "path": "x" * 5000})
    path.write_text(f"a\n{SECRET}\n")
    assert "cannot be read as Parquet" in refusal({"kind": "parquet", "path": path})
    pd.DataFrame({"b": [SECRET]}).to_parquet(path)
    assert "'a' not found" in refusal({"kind": "parquet", "path": path})


@pytest.fixture
def database(tmp_path) -> str:
    path = tmp_path / "records.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"""
        create table stay (a integer, b text, c real);
        insert into stay values (1, 'x', 1.5), (2, null, 2.0), (3, '{SECRET}', null);
    """)
    connection.close()
    return f"sqlite:///{path}"


def test_a_query_is_read_as_text(database):
    frame = read({"kind": "sql", "url": database, "query": "select c, a, b from stay order by a"}, columns=("a", "c"))
    assert frame.a.tolist() == ["1", "2", "3"]
    assert frame.c.tolist()[:2] == ["1.5", "2"]
    assert frame.c.isna()[2]


def test_a_query_changes_nothing(database):
    with pytest.raises(DataError):
        read({"kind": "sql", "url": database, "query": "delete from stay"})
    query = {"kind": "sql", "url": database, "query": "delete from stay returning a"}
    read(query)
    assert len(read({"kind": "sql", "url": database, "query": "select a from stay"})) == 3


@pytest.mark.parametrize(
    "query",
    [
        "select nonsense(",
        "select none from stay",
        f"select * from stay where a = '{SECRET}",
        "select b from stay",
    ],
)
def test_a_query_that_fails_is_told_without_the_databases_text(database, query):
    assert "query" in refusal({"kind": "sql", "url": database, "query": query})


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "nosuchdialect://user:hunter2@host/db",
        "postgresql+psycopg://user:hunter2@127.0.0.1:1/db?password=hunter2&connect_timeout=1",
        "sqlite:////nowhere/at/all.db",
    ],
)
def test_a_database_that_cannot_be_reached_is_told_without_the_password(url):
    assert "hunter2" not in refusal({"kind": "sql", "url": url, "query": "select 1"})


def test_a_function_gets_its_arguments(from_python):
    def records(size):
        return pd.DataFrame({"a": range(int(size))})

    assert read(from_python(records, size="3")).a.tolist() == ["0", "1", "2"]


def test_a_function_that_fails_is_told_without_its_text(from_python):
    def failing():
        raise ValueError(SECRET)

    assert "failed with ValueError" in refusal(from_python(failing))
    assert "must return a pandas DataFrame" in refusal(from_python([SECRET]))
    assert "no record" in refusal(from_python(pd.DataFrame({"a": []})))
    assert "cannot be imported" in refusal({"kind": "python", "function": "no.such.module:f"})
    with pytest.raises(ConfigurationError):
        read({"kind": "python", "function": "no_colon"})


def test_names_from_a_schema_are_listed_and_those_that_may_be_a_record_are_not(from_python, tmp_path):
    frame = pd.DataFrame({"ages": ["1"], SECRET: ["2"]})
    said = refusal(from_python(frame), columns=("age", "b"))
    assert "'age' (column 1 is named much like it), 'b' not found; none of its 2 columns has a wanted name" in said
    frame.rename(columns={SECRET: "other"}).to_parquet(tmp_path / "records.parquet")
    said = refusal({"kind": "parquet", "path": tmp_path / "records.parquet"}, columns=("age", "b"))
    assert "'age' (did you mean 'ages'?), 'b' not found; it has 'ages', 'other'" in said


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigurationError, match="csv, parquet, sql, python or simulated"):
        read({"kind": "excel"})


def test_the_simulated_source_reads_like_any_other():
    frame = read({"kind": "simulated", "rows": 50, "seed": 1}, columns=("age", "readmitted"))
    assert frame.shape == (50, 2)
    assert "simulated" in refusal({"kind": "simulated", "rows": 5, "seed": 1}, columns=("agee", "sex"))


def test_rules_leave_out_rows_by_text_and_keep_missing_ones():
    frame = pd.DataFrame({"a": ["1", "11", None, "2"]}, dtype="str")
    assert exclude(frame, [{"column": "a", "values": ["11", "2"]}]).a.tolist()[:1] == ["1"]
    assert len(exclude(frame, [{"column": "a", "values": ["11", "2"]}])) == 2
    assert exclude(frame, []).equals(frame)
    with pytest.raises(DataError, match="'b' not found"):
        exclude(frame, [{"column": "b", "values": ["1"]}])
    with pytest.raises(DataError, match="leaves no record"):
        exclude(frame[:1], [{"column": "a", "values": ["1"]}])


def test_counts_are_of_rows_and_of_persons():
    frame = pd.DataFrame({"p": ["x", "y", "x"]}, dtype="str")
    assert counts(frame, person="p") == {"rows": 3, "persons": 2}
    assert counts(frame, person=None) == {"rows": 3, "persons": None}


cells = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3))
frames = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
)


def text_frame(rows, names="abc") -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(names[: len(rows[0])]), dtype="str")


def content(rows) -> list:
    return [list(row) for row in rows]


@settings(max_examples=150, deadline=None)
@given(frames, frames)
def test_two_frames_have_one_digest_only_if_they_are_the_same(left, right):
    same = content(left) == content(right)
    assert (digest(text_frame(left), key=KEY) == digest(text_frame(right), key=KEY)) == same


def test_the_digest_sees_names_order_missing_cells_boundaries_and_the_key():
    base = text_frame([["x", "yz"], ["", None]])
    variants = [
        base,
        base.rename(columns={"a": "c"}),
        base[["b", "a"]],
        base[::-1],
        text_frame([["xy", "z"], ["", None]]),
        text_frame([["x", "yz"], [None, None]]),
        text_frame([["x", "yz"], ["", ""]]),
        text_frame([["x", "yz"]]),
    ]
    digests = [digest(frame, key=KEY) for frame in variants] + [digest(base, key=b"other")]
    assert len(set(digests)) == len(digests)


def test_the_digest_does_not_see_the_index_nor_how_the_frame_was_cut():
    frame = text_frame([["x", None], ["y", "z"], ["v", "w"]])
    joined = pd.concat([frame[:1], frame[1:]])
    joined.index = pd.Index([9, 9, 9])
    assert digest(joined, key=KEY) == digest(frame, key=KEY)
    assert digest(frame[1:], key=KEY) == digest(text_frame([["y", "z"], ["v", "w"]]), key=KEY)
