"""`make bench`: time, memory, orchestration and the attack, side by side in one run.

Prints tables and merges the figures into `$DISCREET_HOME/bench.json`. About eight minutes on two quiet cores.
"""

import argparse
import time
from pathlib import Path

from configs.load import load_runtime
from tests.benchmarks import attack, memory, orchestration, speed
from tests.benchmarks.results import merge

PARTS = ("steps", "memory", "orchestration", "attack")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    parser.add_argument("--rounds", type=_positive, default=5, help="rounds of the steps' timings (default 5)")
    parser.add_argument(
        "--batches", nargs="+", type=_positive, default=list(speed.BATCHES), help="expected batches of the steps"
    )
    parser.add_argument(
        "--clock",
        choices=list(speed.CLOCKS),
        default="wall",
        help="of the steps: wall, or processor time on one thread",
    )
    chosen = parser.parse_args(arguments)
    path = Path(load_runtime("local").home).expanduser() / "bench.json"
    started = time.monotonic()
    for part in (part for part in PARTS if part in chosen.only):
        if part == "steps":
            values, about = speed.measure(
                speed.Effort(rounds=chosen.rounds, clock=chosen.clock), batches=chosen.batches
            )
        elif part == "memory":
            values, about = memory.measure()
        elif part == "attack":
            values, about = attack.measure()
        else:
            values, about = orchestration.measure()
        merge(path, values, {part: about})
    print(f"\n{time.monotonic() - started:.0f} s; load {about['load_before']} before the last part; wrote {path}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number


if __name__ == "__main__":
    main()
