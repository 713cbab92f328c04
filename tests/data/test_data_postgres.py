"""Records from a real PostgreSQL server, started here on loopback as an ordinary user."""

from collections.abc import Iterator

import pandas as pd
import pytest
import sqlalchemy as sa

from configs.errors import DataError
from tasks.data.sources import read_records
from tests.postgresql import running

pytestmark = pytest.mark.postgres
PASSWORD = "hunter2-planted"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of an empty database."""
    with running(password=PASSWORD, initialise=["-U", "me", "-A", "scram-sha-256"]) as found:
        yield f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{found.port}/postgres"


def test_a_query_on_postgresql_gives_the_text_of_its_typed_columns(server: str) -> None:
    engine = sa.create_engine(server)
    with engine.begin() as connection:
        connection.execute(
            sa.text("create table stays (who text, age integer, weight numeric(5,1), back boolean, day date)")
        )
        connection.execute(
            sa.text(
                "insert into stays values ('p1', 80, 71.5, true, '2026-01-02'), ('p2', null, 64.0, false, '2026-02-03')"
            )
        )
    engine.dispose()
    frame = read_records(
        source={"kind": "sql", "url": server, "query": "select * from stays order by who"},
        columns=["who", "age", "weight", "back", "day"],
        missing=[""],
    )
    expected = {
        "who": ["p1", "p2"],
        "age": ["80", None],
        "weight": ["71.5", "64"],
        "back": ["True", "False"],
        "day": ["2026-01-02", "2026-02-03"],
    }
    pd.testing.assert_frame_equal(frame, pd.DataFrame(expected, dtype="str"))


@pytest.mark.parametrize("query", ["select jane_roe from stays", "drop table", "select 1 / 0 as who"])
def test_a_failing_query_tells_neither_the_password_nor_a_value(server: str, query: str) -> None:
    with pytest.raises(DataError) as caught:
        read_records(source={"kind": "sql", "url": server, "query": query}, columns=["who"], missing=[])
    assert PASSWORD not in str(caught.value)
    assert "jane_roe" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_wrong_password_is_not_repeated(server: str) -> None:
    wrong = server.replace(PASSWORD, "other-secret")
    with pytest.raises(DataError) as caught:
        read_records(source={"kind": "sql", "url": wrong, "query": "select 1 as who"}, columns=["who"], missing=[])
    assert "other-secret" not in str(caught.value)
