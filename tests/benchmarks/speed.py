"""How long a private step takes, as a ratio to a non-private one; and that it does not depend on n.

Wall time with torch's default threads. On a machine with other work on it threads wait for each other and wall time
says little: `--clock cpu` takes the processor time of one thread instead. Engines take turns, round by round, in one
process; a ratio is formed within a round, and its median over the rounds is the figure, so that a while of other work
slows all engines alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tasks.dpsgd.units import UnitRecords
from tests.benchmarks.engines import COLUMNS, ENGINES, NETWORK, Engine, make, synthetic
from tests.benchmarks.results import available, conditions, load, table, threads

ROWS = 200_000
BATCHES = (512, 2048, 8192)
EPOCH_BATCH = 2048
SIZES = (100_000, 10_000_000)
SIZES_BATCH = 512
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
_WARM_UP = 3  # steps; not timed
_EPOCH_BUDGET_SECONDS = 10.0  # an engine whose epochs took so long together is not asked for another


def seconds_per_step(engine: Engine, *, steps: int, clock: Clock = time.perf_counter) -> float:
    """Mean time of `steps` consecutive steps after the warm-up."""
    marks: list[tuple[int, float]] = []
    engine.run(steps=_WARM_UP + steps, mark=lambda done: marks.append((done, clock())))
    first = next(mark for mark in marks if mark[0] >= _WARM_UP)
    last = marks[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How engines are timed.

    Attributes:
        rounds: how often each engine has its turn.
        clock: a key of `CLOCKS`.
        block_seconds: about how long a turn lasts; at least 3 steps, at most 150.
    """

    rounds: int
    clock: str = "wall"
    block_seconds: float = 0.4

    def seconds(self, engine: Engine, steps: int) -> float:
        """Time per step."""
        return seconds_per_step(engine, steps=steps, clock=CLOCKS[self.clock])

    def turns(self, engines: Mapping[str, Engine]) -> dict[str, list[float]]:
        """Seconds per step of each engine in each round."""
        guess = {name: self.seconds(engine, 2) for name, engine in engines.items()}
        steps = {name: min(150, max(3, round(self.block_seconds / each))) for name, each in guess.items()}
        taken: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(self.rounds):
            for name, engine in engines.items():
                taken[name].append(self.seconds(engine, steps[name]))
        return taken


def ratio(taken: Sequence[float], base: Sequence[float]) -> float:
    """Median over the rounds of taken / base."""
    return median(mine / other for mine, other in zip(taken, base, strict=True))


def measure(
    effort: Effort,
    *,
    batches: Sequence[int] = BATCHES,
    rows: int = ROWS,
    epoch_batch: int = EPOCH_BATCH,
    sizes: tuple[int, int] = SIZES,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Steps, epochs and sizes: the figures under their keys, and the conditions."""
    with threads(1 if effort.clock == "cpu" else None):
        about = conditions(rounds=effort.rounds, clock=effort.clock, batches=list(batches), rows=rows)
        print(f"\nsteps: {effort.clock} time, torch uses {about['threads']} threads, load {about['load_before']}")
        if effort.clock == "wall" and about["load_before"][0] > about["cpus"] / 2:
            print("  other work keeps this machine busy: wall times and their ratios say little (see --clock cpu)")
        records = synthetic(rows)
        values: dict[str, float] = {}
        for batch in batches:
            values |= _steps(records, batch, effort)
        values |= _epochs(records, epoch_batch, effort)
        del records
        values |= _sizes(sizes, effort)
    return values, about | {"load_after": load()}


def _steps(records: UnitRecords, batch: int, effort: Effort) -> dict[str, float]:
    taken = effort.turns({name: make(name, records, batch) for name in ENGINES})
    base = taken["non_private"]
    ratios = {name: ratio(times, base) for name, times in taken.items()}
    rows: list[list[str]] = []
    for name, times in taken.items():
        each = sorted(mine / other for mine, other in zip(times, base, strict=True))
        took = 1000 * median(times)
        spread = f"{each[0]:.2f} – {each[-1]:.2f}"
        rows.append([name, f"{took:.2f} ms", f"{batch / took:.0f}k", f"{ratios[name]:.2f}", spread])
    table(
        f"A step, {NETWORK}, n = {len(records):,}, batch {batch}, median of {effort.rounds} rounds",
        ["engine", "step", "rows/s", "ratio", "lowest – highest"],
        rows,
    )
    return {f"dp_step_ratio/{name}/{NETWORK}/{batch}": value for name, value in ratios.items()}


def _epochs(records: UnitRecords, batch: int, effort: Effort) -> dict[str, float]:
    steps = max(1, round(len(records) / batch))
    engines = {name: make(name, records, batch) for name in ENGINES}
    taken: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(effort.rounds):
        for name, engine in engines.items():
            if sum(taken[name]) < _EPOCH_BUDGET_SECONDS:
                taken[name].append(steps * effort.seconds(engine, steps))
    table(
        f"An epoch: all its {steps} steps run and timed, n = {len(records):,}, batch {batch}",
        ["engine", "seconds", "epochs timed"],
        [[name, f"{median(times):.2f}", str(len(times))] for name, times in taken.items()],
    )
    return {f"epoch_seconds/{name}": median(times) for name, times in taken.items()}


def _sizes(sizes: tuple[int, int], effort: Effort) -> dict[str, float]:
    few, many = sizes
    needed = 5e9 * many / 10_000_000
    if available() < needed:
        print(f"\nn = {many:,} is left out: it needs {needed / 1e9:.0f} GB of free memory")
        return {}
    taken = effort.turns({str(rows): make("discreet", synthetic(rows), SIZES_BATCH) for rows in sizes})
    value = ratio(taken[str(many)], taken[str(few)])
    table(
        f"This project's step at batch {SIZES_BATCH} and growing n (float32 rows of {COLUMNS} columns in memory)",
        ["n", "step", "ratio"],
        [
            [f"{few:,}", f"{1000 * median(taken[str(few)]):.2f} ms", "1.00"],
            [f"{many:,}", f"{1000 * median(taken[str(many)]):.2f} ms", f"{value:.2f}"],
        ],
    )
    return {f"dp_step_ratio/discreet_n{_short(many)}_over_n{_short(few)}/{NETWORK}/{SIZES_BATCH}": value}


def _short(number: int) -> str:
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)
