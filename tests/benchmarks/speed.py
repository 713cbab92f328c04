"""How long a private step takes, as a ratio to a non-private one; and that it does not depend on n.

Wall time with torch's default threads. Engines take turns, round by round, in one process; a ratio is formed
within a round, and its median over the rounds is the figure. So a machine that other work slows down for a while
slows all engines alike.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tasks.dpsgd.units import UnitRecords
from tests.benchmarks.engines import ENGINES, NETWORK, Discreet, Engine, make, synthetic
from tests.benchmarks.results import conditions, load, table

ROWS = 200_000
BATCHES = (512, 2048, 8192)
EPOCH_BATCH = 2048
SIZES = (100_000, 10_000_000)
SIZES_BATCH = 512
_WARM_UP = 3  # steps; not timed
_BLOCK_SECONDS = 0.4
_EPOCH_BUDGET_SECONDS = 10.0  # an engine whose epochs took so long together is not asked for another


def seconds_per_step(engine: Engine, *, steps: int) -> float:
    """Mean wall time of `steps` consecutive steps after the warm-up."""
    marks: list[tuple[int, float]] = []
    engine.run(steps=_WARM_UP + steps, mark=lambda done: marks.append((done, time.perf_counter())))
    first = next(mark for mark in marks if mark[0] >= _WARM_UP)
    last = marks[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


def rounds_of(engines: Mapping[str, Engine], *, rounds: int, block_seconds: float) -> dict[str, list[float]]:
    """Seconds per step of each engine in each round; a round gives each about `block_seconds`, at least 3 steps."""
    guess = {name: seconds_per_step(engine, steps=2) for name, engine in engines.items()}
    steps = {name: min(150, max(3, round(block_seconds / seconds))) for name, seconds in guess.items()}
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            taken[name].append(seconds_per_step(engine, steps=steps[name]))
    return taken


def ratio(taken: Sequence[float], base: Sequence[float]) -> float:
    """Median over the rounds of taken / base."""
    return median(mine / other for mine, other in zip(taken, base, strict=True))


def measure(
    *,
    rounds: int,
    batches: Sequence[int],
    rows: int = ROWS,
    epoch_batch: int = EPOCH_BATCH,
    sizes: tuple[int, int] = SIZES,
    block_seconds: float = _BLOCK_SECONDS,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Steps, epochs and sizes: the figures under their keys, and the conditions."""
    about = conditions(rounds=rounds, batches=list(batches), rows=rows)
    print(f"\nsteps: torch uses {about['threads']} threads, load {about['load_before']}")
    records = synthetic(rows)
    values: dict[str, float] = {}
    for batch in batches:
        values |= _steps(records, batch, rounds, block_seconds)
    values |= _epochs(records, epoch_batch, rounds)
    del records
    values |= _sizes(sizes, rounds, block_seconds)
    return values, about | {"load_after": load()}


def _steps(records: UnitRecords, batch: int, rounds: int, block_seconds: float) -> dict[str, float]:
    engines = {name: make(name, records, batch) for name in ENGINES}
    taken = rounds_of(engines, rounds=rounds, block_seconds=block_seconds)
    base = taken["non_private"]
    ratios = {name: ratio(times, base) for name, times in taken.items()}
    rows = []
    for name, times in taken.items():
        each = sorted(mine / other for mine, other in zip(times, base, strict=True))
        milliseconds = 1000 * median(times)
        rows.append(
            [
                name,
                f"{milliseconds:.2f} ms",
                f"{batch / milliseconds:.0f}k",
                f"{ratios[name]:.2f}",
                f"{each[0]:.2f} – {each[-1]:.2f}",
            ]
        )
    table(
        f"A step, {NETWORK}, n = {len(records):,}, batch {batch}, median of {rounds} rounds",
        ["engine", "step", "rows/s", "ratio", "rounds' range"],
        rows,
    )
    return {f"dp_step_ratio/{name}/{NETWORK}/{batch}": value for name, value in ratios.items()}


def _epochs(records: UnitRecords, batch: int, rounds: int) -> dict[str, float]:
    steps = max(1, round(len(records) / batch))
    engines = {name: make(name, records, batch) for name in ENGINES}
    taken: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(rounds):
        for name, engine in engines.items():
            if sum(taken[name]) < _EPOCH_BUDGET_SECONDS:
                taken[name].append(steps * seconds_per_step(engine, steps=steps))
    table(
        f"An epoch: all its {steps} steps run and timed, n = {len(records):,}, batch {batch}",
        ["engine", "seconds", "epochs timed"],
        [[name, f"{median(times):.2f}", str(len(times))] for name, times in taken.items()],
    )
    return {f"epoch_seconds/{name}": median(times) for name, times in taken.items()}


def _sizes(sizes: tuple[int, int], rounds: int, block_seconds: float) -> dict[str, float]:
    few, many = sizes
    needed = 6e9 * many / 10_000_000
    if _available() < needed:
        print(f"\nn = {many:,} is left out: it needs {needed / 1e9:.0f} GB of free memory")
        return {}
    engines = {str(rows): Discreet(synthetic(rows), SIZES_BATCH) for rows in sizes}
    taken = rounds_of(engines, rounds=rounds, block_seconds=block_seconds)
    value = ratio(taken[str(many)], taken[str(few)])
    table(
        f"This project's step at batch {SIZES_BATCH} and growing n (float32 rows of 60 columns in memory)",
        ["n", "step", "ratio"],
        [
            [f"{few:,}", f"{1000 * median(taken[str(few)]):.2f} ms", "1.00"],
            [f"{many:,}", f"{1000 * median(taken[str(many)]):.2f} ms", f"{value:.2f}"],
        ],
    )
    names = [f"n{rows // 10**6}M" if rows >= 10**6 else f"n{rows // 1000}k" for rows in (many, few)]
    return {f"dp_step_ratio/discreet_{names[0]}_over_{names[1]}/{NETWORK}/{SIZES_BATCH}": value}


def _available() -> float:
    """Free memory in bytes; unlimited where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
