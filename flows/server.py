"""The Prefect server: the one of PREFECT_API_URL, or one of our own that ends with this process.

`reached` is for serving; `boot` starts Prefect's embedded one for a single run.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console

from configs.errors import InternalError
from flows import environment


@contextmanager
def reached(home: Path, console: Console) -> Iterator[dict[Any, Any]]:
    """The Prefect settings that reach a server while the body runs.

    Args:
        home: `$DISCREET_HOME`; the server's log is `home`/prefect/server.log.
        console: where it is told that a server starts.

    Yields:
        None of them where PREFECT_API_URL names a server already, else those of one of our own, which listens on the
        loopback interface, asks for a password that only we know, and ends with this process.

    Raises:
        InternalError: the server of our own does not start.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

    if PREFECT_API_URL.value():
        yield {}
        return
    console.print("starting a Prefect server of its own, which takes some seconds …")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    password = f"discreet:{secrets.token_urlsafe(32)}"
    url, log = f"http://127.0.0.1:{port}/api", home / "prefect" / "server.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    process = _started(port, password, log)
    watcher = _ends_with_us(process.pid)
    try:
        _await(process, f"{url}/health", log)
        yield {PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password}
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()
        process.wait()
        watcher.kill()
        watcher.wait()


def boot() -> Thread | None:
    """Start Prefect's embedded server beside the imports of torch and MLflow; each takes seconds.

    Returns:
        The thread that starts it; None where PREFECT_API_URL names a server.
    """
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value():
        return None

    def start() -> None:
        from prefect.client.orchestration import get_client
        from prefect.server.api.server import SubprocessASGIServer

        with suppress(RuntimeError):  # the flow asks again, and then says what is wrong
            get_client(sync_client=True)
            _bind(SubprocessASGIServer())

    thread = Thread(target=start, daemon=True)
    thread.start()
    return thread


def _bind(server: Any) -> None:
    """End the embedded server with this process, also after kill -9."""
    if server.server_process is not None:
        atexit.register(_ends_with_us(server.server_process.pid).kill)  # an orderly end stops the server itself


def orchestrated(flow: Any, parameters: dict[str, str]) -> Any:
    """What a flow returns.

    Raises:
        InternalError: Prefect's embedded server does not answer.
    """
    try:
        return flow(**parameters)
    except RuntimeError as error:
        if "API server" not in str(error):
            raise
    raise InternalError(
        "Prefect's embedded server did not start or does not answer; nothing was read or spent. Try again on a "
        "quieter machine, or start one (prefect server start) and set PREFECT_API_URL"
    )


def _started(port: int, password: str, log: Path) -> subprocess.Popen[bytes]:
    own = {"PREFECT_SERVER_API_AUTH_STRING": password, "PREFECT_API_AUTH_STRING": password}
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", *address]
    with log.open("w") as file:
        return subprocess.Popen(  # noqa: S603  (a fixed command and a number)
            command,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,  # Ctrl-C is ours to handle: the schedules are paused on it before it ends
        )


def _ends_with_us(pid: int) -> subprocess.Popen[bytes]:
    """A watcher that ends the process `pid` when we are gone, also after kill -9: it reads a pipe that only we hold."""
    return subprocess.Popen(  # noqa: S603  (a fixed command and a number)
        ["/bin/sh", "-c", f"read _; kill {pid} 2>/dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    limit = time.monotonic() + float(environment.QUIET["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"])
    while time.monotonic() < limit and process.poll() is None:
        with suppress(urllib.error.URLError, OSError), opener.open(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise InternalError(
        f"the Prefect server did not start; {log} says why. Nothing is served. Or start one yourself "
        "(prefect server start) and set PREFECT_API_URL"
    )
