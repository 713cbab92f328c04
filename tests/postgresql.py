"""A real PostgreSQL server for tests, started on the loopback interface as an ordinary user."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server.

    Attributes:
        port: on 127.0.0.1.
        folder: of its socket.
    """

    port: int
    folder: Path


@contextmanager
def running(*, password: str | None, initialise: Sequence[str]) -> Iterator[Server]:
    """A server that is gone afterwards; the test is skipped, saying so, where PostgreSQL's programs are absent.

    Args:
        password: of the administrator; None leaves it to `initialise`.
        initialise: options of initdb besides the place.
    """
    programs = _programs()
    if programs is None:
        pytest.skip("needs PostgreSQL's server programs (apt-get install postgresql)")
    # not below pytest's own folder, which another user may not enter
    folder, owner = Path(tempfile.mkdtemp(prefix="discreet-postgresql-")), list[str]()

    def call(*words: str) -> None:
        subprocess.run([*owner, *words], check=True, capture_output=True, cwd=folder)

    if os.geteuid() == 0:  # the server refuses to run as root
        account = pwd.getpwnam("postgres")
        folder.chmod(0o755)
        os.chown(folder, account.pw_uid, account.pw_gid)
        owner += ["runuser", "-u", "postgres", "--"]
    try:
        options = list(initialise)
        if password is not None:
            secret = folder / "password"
            secret.write_text(password)
            options += ["--pwfile", str(secret)]
        call(str(programs / "initdb"), "-D", f"{folder}/data", *options)
        port = _free_port()
        control = [str(programs / "pg_ctl"), "-D", f"{folder}/data", "-w", "-l", f"{folder}/log"]
        call(*control, "-o", f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}", "start")
        try:
            yield Server(port=port, folder=folder)
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
