"""One retraining per population at a time: the second waits for the first, however the first ends."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from configs.errors import ConfigurationError
from tasks import progress
from tasks.privacy.ledger import Ledger
from tasks.turn import turn

ROOT = Path(__file__).parents[2]
Small = Callable[..., Path]

# Says when it waits, begins and ends, the latter two also in a file; ends when its standard input does.
HOLDER = """
import sys
from pathlib import Path
from tasks.turn import turn
home, population, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def say(word):
    with (home / "log").open("a") as log:
        log.write(f"{name} {word}\\n")
    print(word, flush=True)
with turn(home=home, population=population, on_wait=lambda: say("waits")):
    say("begins")
    sys.stdin.read()
    say("ends")
"""


def holder(home: Path, population: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(home), population, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def word(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_waits_once_until_the_first_has_ended(tmp_path: Path) -> None:
    first = holder(tmp_path, "people", "first")
    assert word(first) == "begins"
    second = holder(tmp_path, "people", "second")
    assert word(second) == "waits"
    first.communicate("")
    assert word(second) == "begins"
    second.communicate("")
    assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "log").read_text().splitlines() == [
        "first begins",
        "second waits",
        "first ends",
        "second begins",
        "second ends",
    ]


def test_a_killed_one_holds_nobody_up(tmp_path: Path) -> None:
    killed = holder(tmp_path, "people", "killed")
    assert word(killed) == "begins"
    waiting = holder(tmp_path, "people", "waiting")
    assert word(waiting) == "waits"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert word(waiting) == "begins"
    waiting.communicate("")
    assert (killed.returncode, waiting.returncode) == (-signal.SIGKILL, 0)


def test_two_populations_do_not_wait_for_each_other(tmp_path: Path) -> None:
    first, second = holder(tmp_path, "people", "first"), holder(tmp_path, "others", "second")
    assert (word(first), word(second)) == ("begins", "begins")
    first.communicate("")
    second.communicate("")


def test_a_child_of_the_holder_does_not_keep_the_turn(tmp_path: Path) -> None:
    with turn(home=tmp_path, population="people", on_wait=pytest.fail):
        child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    with turn(home=tmp_path, population="people", on_wait=lambda: pytest.fail("the child holds the lock")):
        child.communicate()


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_lock_is_its_owners_alone_and_stays(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with pytest.raises(KeyError), turn(home=tmp_path / "home", population="people", on_wait=pytest.fail):
            raise KeyError
    finally:
        os.umask(before)
    path = tmp_path / "home" / "locks" / "people.lock"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_home_that_cannot_hold_the_lock_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with (
        pytest.raises(ConfigurationError, match=r"locks/people\.lock: .* cannot be made \(.+\); make the folder"),
        turn(home=tmp_path, population="people", on_wait=pytest.fail),
    ):
        pass


def test_a_real_run_says_once_that_it_waits_and_a_rehearsal_does_not_wait(home: Path, small: Small) -> None:
    from tasks.opening import opened

    path, heard = str(small()), list[progress.Progress]()
    home.mkdir()
    first = holder(home, "simulated-discharges", "first")
    assert word(first) == "begins"

    def hear(report: progress.Progress) -> None:
        heard.append(report)
        first.communicate("")

    with progress.listening(hear):
        with opened(path, runtime="local", reason="test", rehearsal=True):
            assert heard == []
        with opened(path, runtime="local", reason="test", rehearsal=False) as run:
            assert first.returncode == 0
            assert run.work.is_dir()
        with opened(path, runtime="local", reason="test", rehearsal=False):
            pass
    (only,) = heard
    assert (only.step, only.done) == ("turn", None)
    assert "another retraining of simulated-discharges is running" in only.note


# A retraining as a worker or `discreet serve` starts one: a process of its own, that also says when it waits.
RETRAINING = """
import sys
from flows.environment import quiet
quiet()
from flows.retraining import retrain
from tasks import progress
with progress.listening(lambda told: told.step == "turn" and print("waits", flush=True)):
    retrain(config_path=sys.argv[1], reason=sys.argv[2])
"""


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
def test_of_two_retrainings_released_at_once_one_ends_before_the_other_begins(home: Path, small: Small) -> None:
    from prefect.settings import PREFECT_API_URL

    paths = [small(), small({"model: readmission": "model: readmission-too"}, name="too.yaml")]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    home.mkdir()
    first = holder(home, "simulated-discharges", "first")
    assert word(first) == "begins"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RETRAINING, str(path), path.stem],
            env=settings,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for path in paths
    ]
    assert [word(run) for run in runs] == ["waits", "waits"]
    assert not (home / "ledger.db").exists()
    first.communicate("")
    for run in runs:
        run.communicate()
    assert [run.returncode for run in runs] == [0, 0]
    with Ledger.open(home / "ledger.db") as ledger:
        charged = [entry["payload"] for entry in ledger.entries("simulated-discharges")]
    owners = [entry["reservation"] for entry in charged if "reservation" in entry]
    assert len(owners) > 20
    assert len([owner for owner, _ in groupby(owners)]) == 2, "the steps of two runs are interleaved"
    assert {entry["reason"] for entry in charged if "reason" in entry} == {path.stem for path in paths}
