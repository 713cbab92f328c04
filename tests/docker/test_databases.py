"""databases.sql, run as the PostgreSQL image runs it: each service gets a database that the other cannot open."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
PASSWORDS = {"prefect": "it's $HOME \\ 1", "mlflow": "a:b@c/d%20"}


def programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a server on loopback that has run databases.sql once."""
    place = programs()
    if place is None or shutil.which("psql") is None:
        pytest.skip("needs PostgreSQL's server programs (apt-get install postgresql)")
    folder, owner = tmp_path_factory.mktemp("postgres"), list[str]()
    if os.geteuid() == 0:  # the server refuses to run as root
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == 0 and parent.is_relative_to(tmp_path_factory.getbasetemp().parent):
                parent.chmod(0o755)
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        owner = ["runuser", "-u", "postgres", "--"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]

    def call(*words: str, **more: str) -> None:
        subprocess.run(words, check=True, capture_output=True, cwd=folder, env={**os.environ, **more})

    initialise = ["-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "--auth-host=scram-sha-256"]
    call(*owner, str(place / "initdb"), *initialise)
    control = [*owner, str(place / "pg_ctl"), "-D", f"{folder}/data", "-w", "-l", f"{folder}/log"]
    call(*control, "-o", f"-p {number} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}", "start")
    try:
        given = {f"{role.upper()}_DB_PASSWORD": password for role, password in PASSWORDS.items()}
        options = ["-v", "ON_ERROR_STOP=1", "--no-password", "--no-psqlrc", "-h", str(folder), "-p", str(number)]
        call("psql", *options, "-U", "postgres", "-f", str(ROOT / "docker" / "databases.sql"), **given)
        yield number
    finally:
        call(*control, "-m", "immediate", "stop")


@pytest.mark.parametrize("role", PASSWORDS)
def test_a_service_owns_its_database_and_its_password_is_taken_literally(port: int, role: str) -> None:
    login = {"host": "127.0.0.1", "port": port, "user": role, "password": PASSWORDS[role]}
    with psycopg.connect(**login, dbname=role) as connection:
        connection.execute("create table mine (number integer)")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(**{**login, "password": "guess"}, dbname=role)


@pytest.mark.parametrize(("role", "other"), [("prefect", "mlflow"), ("mlflow", "prefect")])
def test_a_service_cannot_open_the_other_ones_database(port: int, role: str, other: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=f'permission denied for database "{other}"'):
        psycopg.connect(host="127.0.0.1", port=port, user=role, password=PASSWORDS[role], dbname=other)
