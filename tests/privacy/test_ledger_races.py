"""Real processes on a real file: nobody overspends, and a killed run stays charged for what it claimed.

Each child is a fresh interpreter, as two scheduled retrainings are.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.privacy.accounting import rdp_units
from tasks.privacy.events import SampledGaussian, prefix
from tasks.privacy.ledger import Ledger

RUN = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
ROOT = Path(__file__).parents[2]

PRELUDE = """
import os, signal, sys
from configs.errors import BudgetError
from tasks.privacy.events import SampledGaussian
from tasks.privacy.ledger import Ledger

RUN = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
path, key = sys.argv[1:3]
ledger = Ledger.open(path)
print("ready", flush=True)
sys.stdin.readline()
"""

RACER = (
    PRELUDE
    + """
try:
    held = ledger.reserve(
        population="patients", mechanisms=(RUN,), idempotency_key=key, actor="engineer", reason="race"
    )
except BudgetError as error:
    print("difference" if "difference" in str(error) else repr(error), flush=True)
else:
    for upto in range(100, 1001, 100):
        ledger.claim(reservation_id=held.id, token=held.token, upto=upto)
    ledger.commit(reservation_id=held.id, token=held.token, executed=1000)
    print("won", flush=True)
"""
)

KILLED = (
    PRELUDE
    + """
held = ledger.reserve(
    population="patients", mechanisms=(RUN,), idempotency_key=key, actor="engineer", reason="killed"
)
ledger.claim(reservation_id=held.id, token=held.token, upto=400)
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def start(script: str, path: Path, key: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path), key],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def race(path: Path, keys: list[str]) -> list[str]:
    """Start a process for each key, let all go once all are ready, and return what each says."""
    children = [start(RACER, path, key) for key in keys]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    outcomes: list[str] = []
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        outcomes.append(out.strip())
    return outcomes


def fresh(path: Path, *, runs: int) -> None:
    """A population on which exactly `runs` such runs fit: the caps by runs are in test_budget.py."""
    epsilon = {1: 3.2, 5: 5.6}[runs]
    with Ledger.open(path) as ledger:
        state = ledger.create_population(
            name="patients",
            unit="person",
            epsilon=epsilon,
            delta=1e-6,
            planned_runs=12,
            planned=(RUN,),
            actor="officer",
        )
        assert state.fits((RUN,)) == runs


def test_two_processes_racing_for_the_last_run_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fresh(path, runs=1)
    assert sorted(race(path, ["a", "b"])) == ["difference", "won"]
    with Ledger.open(path) as ledger:
        state = ledger.population("patients")
        assert state is not None
        assert state.runs["committed"] == 1
        assert ledger.verify().faults == ()


@pytest.mark.proof
@pytest.mark.parametrize("repetition", range(3))
def test_of_twenty_processes_exactly_five_win_five_runs(tmp_path: Path, repetition: int) -> None:
    path = tmp_path / "ledger.db"
    fresh(path, runs=5)
    outcomes = race(path, [f"{repetition}-{number}" for number in range(20)])
    assert sorted(outcomes) == ["difference"] * 15 + ["won"] * 5
    with Ledger.open(path) as ledger:
        state = ledger.population("patients")
        assert state is not None
        assert state.used_epsilon <= state.epsilon
        assert state.committed == tuple(5 * units for units in rdp_units((RUN,), state.orders))
        assert ledger.verify().faults == ()


@pytest.mark.proof
def test_twenty_processes_may_create_the_ledger_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    children = [start(PRELUDE, path, str(number)) for number in range(20)]
    for child in children:
        out, err = child.communicate("\n", timeout=120)
        assert (out, child.returncode) == ("ready\n", 0), err
    with Ledger.open(path) as ledger:
        assert ledger.verify().faults == ()


def test_a_run_killed_between_claim_and_commit_stays_charged_for_its_claim(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fresh(path, runs=1)
    child = start(KILLED, path, "killed")
    _, err = child.communicate("\n", timeout=120)
    assert child.returncode == -signal.SIGKILL, err

    later = [4e9]  # long after the lease
    with Ledger.open(path, clock=lambda: later[0]) as ledger:
        state = ledger.population("patients")
        assert state is not None
        assert state.reserved == rdp_units((RUN,), state.orders)  # the worst case, as long as nobody settles
        ledger.reserve(
            population="patients",
            mechanisms=(prefix((RUN,), 100)),
            idempotency_key="next",
            actor="engineer",
            reason="after the crash",
        )
        state = ledger.population("patients")
        assert state is not None
        assert state.committed == rdp_units(prefix((RUN,), 400), state.orders)
        assert json.dumps(ledger.entries("patients")).count("lease_expired") == 1
        assert ledger.verify().faults == ()
