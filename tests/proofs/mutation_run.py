"""Runs the tests of a file against its mutants: `python -m tests.proofs.mutation_run [--share 0.25] [file …]`.

One mutant at a time, in a temporary copy of the tree. The process has imported the libraries but nothing of ours,
and forks for each mutant, so that a mutant costs its tests and no imports. Its tests are those that reach the
changed line, the fast ones first; the first that fails ends them.

Of the maintained tools, mutmut 3.8 mutates only undecorated functions, so none of the limits of the configuration
nor the gate's tables, and every message in them; cosmic-ray 8 works in place, starts a process a mutant, replaces
each operator by eleven others (`|` of annotations too) and removes no `raise`.
"""

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.proofs.mutators import Mutant, mutants

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    *(
        "coverage",
        "cronsim",
        "hypothesis",
        "numpy",
        "pydantic",
        "pytest",
        "ruamel.yaml",
        "scipy.optimize",
        "sqlalchemy",
    ),
    *("scipy.stats", "dp_accounting.pld.privacy_loss_distribution", "dp_accounting.rdp.rdp_privacy_accountant"),
)
_PRIVACY = "tests/privacy/test_"
_ACCOUNTING = [f"{_PRIVACY}{name}.py" for name in ("accounting", "events", "statement")]
_BUDGET = [f"{_PRIVACY}{name}.py" for name in ("budget", "events", "ledger", "ledger_refusal")]
_LEDGER = [
    f"{_PRIVACY}ledger{name}.py"
    for name in ("", "_evidence", "_integrity", "_properties", "_races", "_refusal", "_schema")
]
_CONFIGS = ["tests/configs"]
_GATE = [
    "--noconftest",
    "tests/registry/test_gate.py",
    "tests/registry/test_gate_groups.py",
]  # its conftest is for MLflow
TESTS = {  # files with the same tests are measured together, so few lists are fast
    **{f"tasks/registry/{name}.py": _GATE for name in ("gate", "limits", "standing", "bounds", "evidence")},
    "tasks/privacy/tradeoff.py": [f"{_PRIVACY}tradeoff.py"],
    "tasks/privacy/budget.py": _BUDGET,
    "tasks/privacy/events.py": _BUDGET,
    "tasks/privacy/ledger.py": _LEDGER,
    "tasks/privacy/ledger_replay.py": _LEDGER,
    "tasks/privacy/ledger_rows.py": _LEDGER,
    "tasks/privacy/ledger_schema.py": _LEDGER,
    "tasks/privacy/ledger_state.py": _LEDGER,
    "tasks/privacy/guard.py": _ACCOUNTING,
    "tasks/privacy/keys.py": [f"{_PRIVACY}keys.py"],
    "configs/load.py": _CONFIGS,
    "configs/faults.py": _CONFIGS,
    "configs/yaml_text.py": _CONFIGS,
    "configs/schema.py": _CONFIGS,
    "configs/section.py": _CONFIGS,
    "configs/data_schema.py": _CONFIGS,
    "configs/evidence_schema.py": _CONFIGS,
    "configs/feature_schema.py": _CONFIGS,
    "configs/privacy_schema.py": _CONFIGS,
    "configs/runtime_schema.py": _CONFIGS,
    "configs/errors.py": [*_CONFIGS, f"{_PRIVACY}events.py"],
    "tasks/privacy/calibration.py": [f"{_PRIVACY}calibration.py"],
    "tasks/privacy/accounting.py": _ACCOUNTING,
    "tasks/privacy/losses.py": _ACCOUNTING,
    "tasks/privacy/statement.py": [f"{_PRIVACY}statement.py"],
    "tasks/privacy/refusal.py": [f"{_PRIVACY}ledger_refusal.py"],
}
LEAST_SECONDS = 5  # of processor time; a mutant may take twice as long on top as the file does unchanged
WALL_FACTOR = 10  # of wall clock over processor time: other processes may be using the machine
MEMORY = 6 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one mutant: killed, timeout (which counts as killed) or survived."""

    file: str
    where: str
    change: str
    line: int
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The tests of an unchanged file: how long each takes, and which reach which line."""

    seconds: float
    durations: dict[str, float]
    reached: dict[int, list[str]]


class _Clock:
    """A pytest plugin for the unchanged file."""

    def __init__(self, cover: Any) -> None:
        self.cover, self.durations = cover, dict[str, float]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cover.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration


class _Order:
    """A pytest plugin for a mutant: the tests that reach the change, the fast ones first.

    All tests reach what runs on import, and what no test was seen to reach (a test's child process may).
    """

    def __init__(self, mutant: Mutant, base: Baseline) -> None:
        self.near = {test for line in mutant.lines for test in base.reached.get(line, [])}
        self.all = not self.near or "" in self.near
        self.durations = base.durations

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self.all or item.nodeid in self.near]
        items.sort(key=lambda item: self.durations.get(item.nodeid, 0.0))


class Tree:
    """A copy of the project in which files are changed, and a process that only forks."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in ("configs", "flows", "tasks", "tests"):
            shutil.copytree(ROOT / name, self.root / name, ignore=skipped)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        if (ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        self.scratch = folder / "scratch"
        self.said = folder / "said.txt"

    def baselines(self, files: Sequence[str]) -> dict[str, Baseline]:
        """Run the tests that some files share, unchanged; they must pass."""
        found = self.scratch.with_name("baseline.json")
        code, seconds, _ = self._forked(lambda: self._measured(files, found), math.inf)
        if code != 0:
            raise RuntimeError(f"tests fail without a mutant of {', '.join(files)}:\n{self.said.read_text()[-3000:]}")
        durations, reached = json.loads(found.read_text())
        return {
            file: Baseline(
                seconds=seconds,
                durations=durations,
                reached={int(line): tests for line, tests in reached[file].items()},
            )
            for file in files
        }

    def judge(self, mutant: Mutant, base: Baseline) -> Result:
        """Run a mutant's tests; the file is as it was afterwards."""
        path = self.root / mutant.file
        whole = path.with_suffix(".whole")
        path.rename(whole)
        path.write_text(mutant.source)
        try:
            plugin = _Order(mutant, base)
            code, seconds, late = self._forked(
                lambda: self._pytest(mutant.file, plugin), LEAST_SECONDS + 2 * base.seconds
            )
        finally:
            path.unlink()
            whole.rename(path)  # with its old date, so that its compiled file stays valid
        outcome = "survived" if code == 0 else "timeout" if late else "killed"
        if code == 5:
            raise RuntimeError(f"no test was found for {mutant.file}")
        return Result(
            file=mutant.file,
            where=mutant.where,
            change=mutant.change,
            line=mutant.lines[0],
            outcome=outcome,
            seconds=seconds,
        )

    def _forked(self, work: Any, limit: float) -> tuple[int, float, bool]:
        """Exit code, processor seconds, and whether the limit was reached, of `work` in a forked process."""
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # unchanged too: it must not be what kills
                if math.isfinite(limit):
                    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 2))
                    sys.dont_write_bytecode = True
                    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                output = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for stream in (1, 2):
                    os.dup2(output, stream)
                os.chdir(self.root)
                os.environ |= {"PYTHONPATH": str(self.root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
                sys.path[:] = [str(self.root), *(path for path in sys.path if path not in {"", str(ROOT)})]
                for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
                    del sys.modules[name]
                code = work()
            finally:
                os._exit(code)
        late = threading.Timer(min(limit, 86_400) * WALL_FACTOR, os.killpg, (child, signal.SIGKILL))
        late.start()
        _, status, usage = os.wait4(child, 0)
        late.cancel()
        late.join()
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever a test has started
        code = os.waitstatus_to_exitcode(status)
        return code, usage.ru_utime + usage.ru_stime, -code in (signal.SIGXCPU, signal.SIGKILL)

    def _pytest(self, file: str, *plugins: Any) -> int:
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not proof", f"--basetemp={self.scratch}"]
        code = int(pytest.main([*options, *TESTS[file]], plugins=list(plugins)))
        ours = sys.modules.get(file.removesuffix(".py").replace("/", "."))
        if ours is not None and not str(ours.__file__).startswith(str(self.root)):
            return 5
        return code

    def _measured(self, files: Sequence[str], found: Path) -> int:
        import coverage

        only = [str(self.root / file) for file in files]
        cover = coverage.Coverage(data_file=None, config_file=False, include=only)  # the project's would trace all
        clock = _Clock(cover)
        cover.start()
        code = self._pytest(files[0], clock)
        cover.stop()
        reached = {file: cover.get_data().contexts_by_lineno(str(self.root / file)) for file in files}
        found.write_text(json.dumps([clock.durations, reached]))
        return code


def chosen(file: str, share: float, seed: str) -> list[Mutant]:
    """A file's mutants, or a drawn share of them, at least one."""
    every = mutants(file, (ROOT / file).read_text())
    if share >= 1 or not every:
        return every
    places = random.Random(f"{seed} {file}").sample(range(len(every)), math.ceil(share * len(every)))
    return [every[place] for place in sorted(places)]


def run_together(files: Sequence[str], share: float, seed: str, log: Path | None = None) -> list[Result]:
    """Judge the mutants of files with the same tests in this process."""
    for name in LIBRARIES:
        __import__(name)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder))
        bases = tree.baselines(files)
        for file in files:
            for mutant in chosen(file, share, seed):
                results.append(tree.judge(mutant, bases[file]))
                if log is not None:
                    with log.open("a") as lines:
                        lines.write(json.dumps(asdict(results[-1])) + "\n")
    return results


def run(files: Sequence[str], *, share: float, seed: str, workers: int, log: Path | None = None) -> list[Result]:
    """Judge the mutants of several files, `workers` sets of tests at a time."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        alike.setdefault(tuple(TESTS[file]), []).append(file)
    with get_context("spawn").Pool(workers, maxtasksperchild=1) as pool:
        parts = [pool.apply_async(run_together, (group, share, seed, log)) for group in alike.values()]
        return [result for part in parts for result in part.get()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", default=list(TESTS))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    for each in run(asked.files, share=asked.share, seed=asked.seed, workers=asked.workers, log=asked.log):
        if each.outcome == "survived":
            print(f"{each.file}:{each.line} {each.where}: {each.change}")
