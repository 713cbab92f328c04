"""Where the figures go, and under which conditions they were taken."""

import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ABOUT = "_about"


def merge(path: Path, values: Mapping[str, float], about: Mapping[str, Any]) -> None:
    """Add the figures to the file in one atomic step; keys that it already holds and that are not new stay.

    Args:
        path: the JSON file; it and its folder are created when missing.
        values: key → figure.
        about: part of the bench → its conditions, kept under `_about`.
    """
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    merged = {**known, **values, ABOUT: {**known.get(ABOUT, {}), **about}}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        json.dump(merged, file, indent=2, sort_keys=True, allow_nan=False)
        file.write("\n")
    Path(file.name).replace(path)


def conditions(**more: Any) -> dict[str, Any]:
    """The machine and the libraries, to be read beside the figures.

    `load_before` is the machine's load average over 1, 5 and 15 minutes: with other work on it, times grow and
    only ratios mean something.
    """
    import torch

    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "load_before": load(),
        "machine": platform.machine(),
        "opacus": version("opacus"),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **more,
    }


def load() -> list[float]:
    """The load average over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def available() -> float:
    """Free memory in bytes; unlimited where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads meanwhile; as many as it likes with None."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print rows under a title: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}")
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join(cells).rstrip())
