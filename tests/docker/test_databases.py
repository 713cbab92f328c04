"""databases.sql, run as the PostgreSQL image runs it: each service gets a database that the other cannot open."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgresql import running

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
PASSWORDS = {"prefect": "it's $HOME \\ 1", "mlflow": "a:b@c/d%20"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Port of a server on loopback that has run databases.sql once."""
    if shutil.which("psql") is None:
        pytest.skip("needs PostgreSQL's client (apt-get install postgresql)")
    with running(password=None, initialise=["-U", "postgres", "-A", "trust", "--auth-host=scram-sha-256"]) as server:
        given = {f"{role.upper()}_DB_PASSWORD": password for role, password in PASSWORDS.items()}
        place = ["--no-password", "--no-psqlrc", "-h", str(server.folder), "-p", str(server.port), "-U", "postgres"]
        script = ["-v", "ON_ERROR_STOP=1", "-f", str(ROOT / "docker" / "databases.sql")]
        subprocess.run(["psql", *place, *script], check=True, capture_output=True, env={**os.environ, **given})
        yield server.port


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
