"""The Prefect server of our own: one that fails is told with its log, and it never outlives us."""

import io
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from configs.errors import InternalError
from flows import server

ROOT = Path(__file__).parents[2]


def test_where_there_is_a_server_already_none_is_started(tmp_path: Path) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    said = io.StringIO()
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        server.reached(tmp_path, Console(file=said)) as settings,
    ):
        assert settings == {}
    assert said.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    broken = tmp_path / "python"
    broken.write_text('#!/bin/sh\necho "no: $*"\nexit 3\n')
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    log = tmp_path / "home" / "prefect" / "server.log"
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(InternalError, match=r"the Prefect server did not start; .*server\.log says why") as caught,
        server.reached(tmp_path / "home", Console(file=io.StringIO())),
    ):
        pytest.fail("there is nothing to reach")
    assert caught.value.exit_code == 50
    assert str(log) in str(caught.value)
    assert log.read_text().startswith("no: -m prefect server start --no-ui --host 127.0.0.1 --port ")
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700


WATCHED = """
import subprocess, sys
from flows import server
watched = subprocess.Popen(["/bin/sleep", "600"])
keep = server._ends_with_us(watched.pid)
print(watched.pid, flush=True)
sys.stdin.read()
"""


def test_the_server_ends_with_us_also_when_we_are_killed() -> None:
    command = [sys.executable, "-c", WATCHED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as us:
        assert us.stdout is not None
        assert int(us.stdout.readline()) > 1
        us.send_signal(signal.SIGKILL)
        assert us.stdout.read() == ""  # returns only when the watched process, which holds the pipe too, is gone
    assert us.returncode == -signal.SIGKILL
