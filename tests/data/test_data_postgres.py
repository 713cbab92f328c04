"""Records from a real PostgreSQL server, started here on loopback as an ordinary user."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa

from configs.errors import DataError
from tasks.data.sources import read_records

pytestmark = pytest.mark.postgres
PASSWORD = "hunter2-planted"


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an empty database."""
    programs = _programs()
    if programs is None:
        pytest.skip("needs PostgreSQL's server programs (apt-get install postgresql)")
    folder = tmp_path_factory.mktemp("postgres")
    as_owner: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == 0 and parent.is_relative_to(tmp_path_factory.getbasetemp().parent):
                parent.chmod(0o755)
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        as_owner = ["runuser", "-u", "postgres", "--"]
    secret, port = folder / "password", _free_port()
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data, options = folder / "data", f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    run = [
        *as_owner,
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "me",
        "-A",
        "scram-sha-256",
        "--pwfile",
        str(secret),
    ]
    subprocess.run(run, check=True, capture_output=True, cwd=folder)
    control = [*as_owner, str(programs / "pg_ctl"), "-D", str(data), "-w"]
    log = str(folder / "log")
    subprocess.run([*control, "-l", log, "-o", options, "start"], check=True, capture_output=True, cwd=folder)
    try:
        yield f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd=folder)


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
