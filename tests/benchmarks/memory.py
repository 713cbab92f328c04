"""How much memory steps need: the highest resident size while they run, over what was resident before the first.

Each engine runs in a fresh process. Before the meter starts, records and engine exist and torch has done one small
step of its own, so that its libraries' pages are not counted against whoever comes first.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.engines import ENGINES, NETWORK, make, synthetic, touch_torch
from tests.benchmarks.results import conditions, load, table
from tests.benchmarks.speed import ROWS

BATCH = 8192
_ROOT = Path(__file__).parents[2]
_STEPS = 6


def measure(*, rows: int = ROWS, batch: int = BATCH) -> tuple[dict[str, float], dict[str, Any]]:
    """The figures under their keys, and the conditions."""
    about = conditions(steps=_STEPS, rows=rows)
    if not Path("/proc/self/clear_refs").exists():
        print("\nmemory is left out: the meter reads Linux's /proc")
        return {}, about
    grown = {name: _in_a_fresh_process(name, rows, batch) for name in ENGINES}
    table(
        f"Memory: peak over {_STEPS} steps less what was there before, {NETWORK}, batch {batch}, fresh processes",
        ["engine", "MB", "over non_private"],
        [[name, f"{value:.0f}", f"{value - grown['non_private']:+.0f}"] for name, value in grown.items()],
    )
    values = {f"memory_mb/{name}/{NETWORK}/{batch}": value for name, value in grown.items()}
    return values, about | {"load_after": load()}


def grown_mb(name: str, *, rows: int, batch: int, steps: int = _STEPS) -> float:
    """Run the engine in this process and return the growth of its resident memory at the peak, in 10⁶ bytes."""
    engine = make(name, synthetic(rows), batch)
    touch_torch()
    before = 0

    def mark(done: int) -> None:
        nonlocal before
        if done == 0:
            Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
            before = _status("VmRSS")

    engine.run(steps=steps, mark=mark)
    return (_status("VmHWM") - before) / 1e6


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _in_a_fresh_process(name: str, rows: int, batch: int) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.memory", name, str(rows), str(batch)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"memory of {name}: {done.stderr.strip()[-2000:]}")
    return float(json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(grown_mb(sys.argv[1], rows=int(sys.argv[2]), batch=int(sys.argv[3]))))
