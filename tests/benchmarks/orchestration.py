"""What a run costs besides its work: its wall time less the seconds of its steps.

The run is `discreet run` on a few thousand simulated rows, in a process and a home of its own, so the figure holds
all that a user waits for: Python and its imports (Prefect, torch), Prefect's server where none is running, what
happens between steps, and the end of the process. What steps import themselves (MLflow, Great Expectations,
accounting, Opacus), and Prefect's bookkeeping around a task, are inside the steps' seconds and not in the figure.

    cold   a new home without a server: Prefect starts its embedded one, on a new database
    warm   a new home, and a `prefect server start` that already answers
"""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flows.environment import QUIET
from tests.benchmarks.results import conditions, load, table

ROOT = Path(__file__).parents[2]
_LIMIT_SECONDS = 900
_VERDICTS = {0, 40, 41}  # promoted, blocked, insufficient: the run went to its end
_SHRINK = {
    ("data", "source", "rows"): 6000,
    ("data", "checks", "groups", "min_rows"): 30,
    ("privacy", "guarantee", "epsilon"): 20.0,
    ("privacy", "guarantee", "delta"): 1e-5,
    ("privacy", "run", "epsilon"): 8.0,
    ("privacy", "run", "delta"): 1e-5,
    ("privacy", "units"): 2500,
    ("privacy", "expected_batch"): 500,
    ("privacy", "epochs"): 4,
    ("network", "hidden"): [8],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One run, in seconds.

    Attributes:
        wall: from the start of the process to its end.
        steps: the sum that the run reports for its steps.
        before: from the start of the process to the flow's; None where Prefect's database does not tell.
        between: within the flow, outside its steps.
        after: from the flow's end to the process's.
    """

    wall: float
    steps: float
    before: float | None = None
    between: float | None = None
    after: float | None = None

    @property
    def orchestration(self) -> float:
        """What is not the steps' own."""
        return self.wall - self.steps


def measure() -> tuple[dict[str, float], dict[str, Any]]:
    """The figures under their keys, and the conditions."""
    about = conditions(runs=1)
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as name:
        folder = Path(name)
        config = shrunk(folder / "small.yaml")
        cold_home = folder / "cold"
        timings = {"cold": _timed(config, cold_home, cold_home / "prefect" / "prefect.db", {})}
        with _server(folder / "server") as url:
            database = folder / "server" / "prefect.db"
            timings["warm"] = _timed(config, folder / "warm", database, {"PREFECT_API_URL": url})
        imports, leaving = _without_a_run(folder / "alone")
    table(
        "Orchestration, one run each, seconds. The steps' own imports (MLflow, Great Expectations) count as steps",
        ["", "wall", "steps", "orchestration", "process to flow", "between steps", "flow to exit"],
        [[name, *_cells(timing)] for name, timing in timings.items()],
    )
    print(
        f"  Of that, a process that only imports the flow (Prefect, torch) takes {imports:.1f} s until it has, "
        f"and {leaving:.1f} s to end"
    )
    parts = {name: {"wall": timing.wall, "steps": timing.steps} | _parts(timing) for name, timing in timings.items()}
    values = {f"orchestration_seconds/{name}": timing.orchestration for name, timing in timings.items()}
    return values, about | {
        "load_after": load(),
        "parts": parts | {"imports_alone": {"before": round(imports, 2), "after": round(leaving, 2)}},
    }


def shrunk(path: Path) -> Path:
    """Write the shipped configuration with few rows and a small network."""
    yaml = YAML()
    config = yaml.load((ROOT / "configs" / "readmission.yaml").read_text())
    for keys, value in _SHRINK.items():
        place = config
        for key in keys[:-1]:
            place = place[key]
        if keys[-1] not in place:
            raise KeyError(f"configs/readmission.yaml has no {'.'.join(keys)}")
        place[keys[-1]] = value
    with path.open("w") as file:
        yaml.dump(config, file)
    return path


def timing_of(*, started: float, ended: float, steps: float, flow: tuple[float, float] | None) -> Timing:
    """Split a run's wall time; all but `steps` in seconds since the epoch, `flow` its start and end."""
    wall = ended - started
    if flow is None:
        return Timing(wall=wall, steps=steps)
    return Timing(
        wall=wall,
        steps=steps,
        before=flow[0] - started,
        between=flow[1] - flow[0] - steps,
        after=ended - flow[1],
    )


def seconds_of_steps(config: Path, home: Path, more: dict[str, str]) -> dict[str, float]:
    """Run a configuration in a process and a home of its own: seconds of each step, as the run reports them.

    Args:
        config: the YAML file.
        home: its home.
        more: environment variables on top.

    Raises:
        RuntimeError: the run ended without a verdict.
    """
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "run", str(config), "--json"],
        cwd=ROOT,
        env=_environment(home, more),
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode not in _VERDICTS:
        raise RuntimeError(f"the run ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return json.loads(done.stdout)["seconds"]


def _timed(config: Path, home: Path, database: Path, more: dict[str, str]) -> Timing:
    started = time.time()
    steps = sum(seconds_of_steps(config, home, more).values())
    ended = time.time()
    return timing_of(started=started, ended=ended, steps=steps, flow=_flow(database))


def _without_a_run(home: Path) -> tuple[float, float]:
    """Seconds that Python needs to import the flow, and to end after that."""
    command = [sys.executable, "-c", "import flows.retraining, time; print(time.time())"]
    environment = _environment(home, {**QUIET, "PREFECT_HOME": str(home)})
    started = time.time()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    imported = float(done.stdout.split()[-1])
    return imported - started, time.time() - imported


def _environment(home: Path, more: dict[str, str]) -> dict[str, str]:
    """This process's environment without what an operator may have set for Discreet, Prefect and MLflow."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISCREET_", "PREFECT_", "MLFLOW_"))}
    return kept | {"DISCREET_HOME": str(home)} | more


def _flow(database: Path) -> tuple[float, float] | None:
    """Start and end of the one flow run in Prefect's database."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT start_time, end_time FROM flow_run").fetchall()
        start, end = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in rows[0])
    except (sqlite3.Error, IndexError, TypeError, ValueError):
        return None  # another release of Prefect may keep it elsewhere; the figure does not need it
    return start, end


@contextmanager
def _server(home: Path) -> Iterator[str]:
    """A Prefect server on a free port of the loopback interface, with a database of its own."""
    home.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    environment = _environment(home, {**QUIET, "PREFECT_HOME": str(home)})
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=subprocess.STDOUT)
        try:
            _await(server, f"http://127.0.0.1:{port}/api/health")
            yield f"http://127.0.0.1:{port}/api"
        finally:
            server.terminate()
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _await(server: subprocess.Popen[bytes], url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    limit = time.monotonic() + 300
    while time.monotonic() < limit and server.poll() is None:
        try:
            with opener.open(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("prefect server start did not answer")


def _cells(timing: Timing) -> list[str]:
    numbers = (timing.wall, timing.steps, timing.orchestration, timing.before, timing.between, timing.after)
    return ["?" if number is None else f"{number:.1f}" for number in numbers]


def _parts(timing: Timing) -> dict[str, float]:
    parts = {"before": timing.before, "between": timing.between, "after": timing.after}
    return {name: round(value, 2) for name, value in parts.items() if value is not None}
