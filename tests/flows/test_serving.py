"""Serving: schedules become deployments that say where and why, and what was missed is never caught up."""

import asyncio
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from configs.errors import ConfigurationError
from configs.schema import Schedule
from flows import serving
from tasks.privacy.ledger import Ledger

ROOT = Path(__file__).parents[2]
Small = Callable[..., Path]
SCHEDULE = 'schedule: {cron: "0 3 1 * *", timezone: Europe/Zurich}'


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user's environment: none of Prefect's settings, and a home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, "PYTHONPATH": str(ROOT), "DISCREET_HOME": str(home), **more}


def test_a_service_says_where_and_why_and_nothing_else(
    home: Path, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place.yaml").write_text("home: somewhere\n")
    (tmp_path / "link.yaml").symlink_to(small())
    monkeypatch.chdir(tmp_path)
    (service,) = serving.services(["link.yaml"], runtime="place.yaml")
    assert service.parameters == {
        "config_path": str(tmp_path / "link.yaml"),
        "runtime": str(tmp_path / "place.yaml"),
        "reason": "scheduled",
    }
    assert (service.model, service.population) == ("readmission", "simulated-discharges")
    assert serving.services([str(small())], runtime="local")[0].runtime == "local"


def test_a_configuration_without_a_schedule_is_refused_with_key_and_mend(home: Path, small: Small) -> None:
    path = small({SCHEDULE: ""})
    with pytest.raises(
        ConfigurationError, match=r"schedule is missing.*; add a line such as `schedule: \{cron"
    ) as caught:
        serving.services([str(path)], runtime="local")
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.exit_code == 10


def test_all_faults_of_all_files_are_told_at_once(home: Path, small: Small, tmp_path: Path) -> None:
    good, bare = small(), small({SCHEDULE: ""}, name="bare.yaml")
    broken = small({"min_auc: 0.50": "min_auk: 0.50"}, name="broken.yaml")
    twin = small({"population: simulated-discharges": "population: others"}, name="twin.yaml")
    (tmp_path / "link.yaml").symlink_to(good)
    paths = [good, bare, broken, twin, tmp_path / "link.yaml", tmp_path / "none.yaml"]
    with pytest.raises(ConfigurationError) as caught:
        serving.services([str(path) for path in paths], runtime="local")
    for words in (
        f"{bare}: schedule is missing",
        "min_auk is an unknown key",
        f"{twin}: model = readmission is the model of {good} too",
        f"{tmp_path / 'link.yaml'}: is the same file as {good}",
        f"{tmp_path / 'none.yaml'}: there is no such file",
    ):
        assert words in str(caught.value), words


def test_two_models_of_one_population_may_be_served(home: Path, small: Small) -> None:
    other = small({"model: readmission": "model: readmission-linear"}, name="other.yaml")
    found = serving.services([str(small()), str(other)], runtime="local")
    assert [service.model for service in found] == ["readmission", "readmission-linear"]


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("0 3 1 * *", "2026-06-15T00:00", "2026-07-01T03:00+02:00"),
        ("0 3 1 * *", "2026-12-31T23:30", "2027-01-01T03:00+01:00"),
        ("30 1 * * *", "2026-03-28T23:00", "2026-03-29T01:30+01:00"),  # the clocks go forward an hour later
        ("30 3 * * *", "2026-03-29T00:31", "2026-03-29T03:30+02:00"),  # and this is an hour after 01:30
    ],
)
def test_the_next_run_is_told_in_the_schedules_own_time_zone(cron: str, now: str, expected: str) -> None:
    schedule = Schedule(cron=cron, timezone="Europe/Zurich")
    service = serving.Service(model="m", population="p", path=Path("/m.yaml"), runtime="local", schedule=schedule)
    assert service.next_run(datetime.fromisoformat(now).replace(tzinfo=UTC)).isoformat(timespec="minutes") == expected


def test_the_deployment_is_what_prefect_would_make_of_the_flow(home: Path, small: Small) -> None:
    from prefect.types.entrypoint import EntrypointType

    from flows.retraining import retrain

    (service,) = serving.services([str(small())], runtime="local")
    ours = serving.deployment(service)
    theirs = retrain.to_deployment(name=service.model, entrypoint_type=EntrypointType.MODULE_PATH)
    for name in ("name", "flow_name", "entrypoint", "_parameter_openapi_schema", "enforce_parameter_schema"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.parameters == service.parameters
    assert ours.paused is False
    (schedule,) = ours.schedules or []
    assert schedule.schedule is not None
    assert schedule.schedule.model_dump(include={"cron", "timezone"}) == {
        "cron": "0 3 1 * *",
        "timezone": "Europe/Zurich",
    }


def test_a_schedule_that_prefect_cannot_read_is_refused_by_name(home: Path, small: Small) -> None:
    (service,) = serving.services([str(small({"0 3 1 * *": "0 3 LW * *"}))], runtime="local")
    with pytest.raises(
        ConfigurationError, match=r"small\.yaml: schedule\.cron = 0 3 LW \* \* cannot be read by Prefect"
    ):
        serving.deployment(service)


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
def test_missed_runs_are_dropped_and_those_that_a_person_asked_for_are_not(home: Path, small: Small) -> None:
    from prefect.client.orchestration import get_client

    (service,) = serving.services([str(small({"0 3 1 * *": "* * * * *"}))], runtime="local")
    made = serving.deployment(service)

    async def story() -> tuple[int, int, list[tuple[str, str, bool]]]:
        now = datetime.now(UTC)
        number: UUID = await made.aapply()
        async with get_client() as client:
            # what a server that ran on alone has left: 250 runs of the schedule, one a minute, and one to come
            past = {"start_time": now - timedelta(minutes=250, seconds=1), "end_time": now - timedelta(seconds=1)}
            ahead = {"start_time": now + timedelta(days=1), "end_time": now + timedelta(days=1, minutes=1)}
            for span, counts in ((past, {"min_runs": 250, "max_runs": 300}), (ahead, {"min_runs": 1, "max_runs": 1})):
                body = {name: moment.isoformat() for name, moment in span.items()}
                answer = await client.request(
                    "POST", "/deployments/{id}/schedule", path_params={"id": number}, json={**body, **counts}
                )
                answer.raise_for_status()
            await client.create_flow_run_from_deployment(number, name="by hand")
            dropped = await serving.drop_missed([number]), await serving.drop_missed([number])
            left = await client.read_flow_runs()
            await client.delete_deployment(number)
        ours = [run for run in left if run.deployment_id == number and run.state_name != "Cancelled"]
        return *dropped, [(run.state_name or "", run.name, bool(run.auto_scheduled)) for run in ours]

    first, second, left = asyncio.run(story())
    assert (first, second) == (250, 0)
    assert ("Scheduled", "by hand", False) in left
    assert [kind for kind, _, automatic in left if automatic] == ["Scheduled"]


def test_faults_end_in_10_before_prefect_is_imported(home: Path, small: Small) -> None:
    code = f"""
import sys
sys.argv = ["discreet", "serve", {str(small())!r}, {str(small({SCHEDULE: ""}, name="bare.yaml"))!r}]
from flows import cli
try:
    cli.main()
except SystemExit as leave:
    print(leave.code, "prefect" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout.split() == ["10", "False"]
    assert "schedule is missing" in result.stderr
    assert not home.exists()


def test_a_prefect_server_that_does_not_answer_is_told_and_nothing_is_started(home: Path, small: Small) -> None:
    command = [sys.executable, "-m", "flows.cli", "serve", str(small())]
    settings = environment(home, PREFECT_API_URL="http://127.0.0.1:9/api", PREFECT_HOME=str(home / "prefect"))
    result = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert result.returncode == 10
    assert "the Prefect server at http://127.0.0.1:9/api does not answer" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home / "ledger.db").exists()


SOURCE = """
import json, os
from pathlib import Path
from tasks.data import simulate
def records():
    seen = {name: value for name, value in os.environ.items() if not name.startswith("DISCREET_")}
    os.umask(seen.setdefault("umask", os.umask(0)))
    Path(__file__).with_name("seen.json").write_text(json.dumps(seen))
    return simulate.discharges(rows=6000, seed=1)
"""


class Said:
    """What a process says, line by line; five silent minutes mean that it says no more."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.pipe, self.text = process.stdout.fileno(), ""

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until `pattern` is found, and forget what came before it."""
        while (found := re.search(pattern, self.text)) is None:
            assert select.select([self.pipe], [], [], 300)[0], self.text
            more = os.read(self.pipe, 65_536)
            assert more, f"it ended without {pattern}: {self.text}"
            self.text += more.decode()
        self.text = self.text[found.end() :]
        return found


@pytest.mark.orchestration
def test_a_schedule_fires_on_a_real_server_and_sigterm_leaves_nothing_running(
    home: Path, small: Small, tmp_path: Path
) -> None:
    (tmp_path / "watched.py").write_text(SOURCE)
    source = {"{kind: simulated, rows: 6000, seed: 20260101}": "{kind: python, function: 'watched:records'}"}
    path = small({**source, "0 3 1 * *": "* * * * *"})
    settings = environment(home, PYTHONPATH=f"{ROOT}:{tmp_path}")
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "flows.cli", "serve", str(path)],
        cwd=tmp_path,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    try:
        said = Said(server)
        said.until(r"readmission on simulated-discharges(.|\n)+serving until stopped")
        run = said.until(r"Beginning flow run '(\S+)' for flow 'retraining'")[1]
        state = said.until(rf"'{run}' - Finished in state (.*)\n")[1]
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate()  # returns only when nobody holds the pipe: neither server nor run is left
    finally:
        server.kill()
    assert state == "Completed()"
    last = said.text + rest.decode()
    assert server.returncode == 0, last
    assert last.endswith("stopped; nothing runs until discreet serve is started again\n")
    assert "Traceback" not in last
    with Ledger.open(home / "ledger.db") as ledger:
        reserved = [
            entry["payload"] for entry in ledger.entries("simulated-discharges") if entry["kind"] == "run_reserved"
        ]
    assert reserved[0]["reason"] == "scheduled"
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["umask"] == 0o077
    assert {seen[name] for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY")} == {"true"}
    assert (seen["PREFECT_SERVER_ANALYTICS_ENABLED"].lower(), seen["PREFECT_LOGGING_LEVEL"]) == ("false", "INFO")
    assert seen["PREFECT_HOME"] == str(home / "prefect")
    loose = [file for file in home.rglob("*") if not file.is_dir() and stat.S_IMODE(file.stat().st_mode) & 0o077]
    assert loose == []
    assert not list((home / "work").glob("*/"))
