"""What the attack costs beside the training: the seconds of the two steps in one run of the shipped configuration.

The attack holds the same recipe without noise, which is a training by itself, the control, the baseline without a
model, and the ceiling from the accountant's curve; the training holds accounting, self-test and the ledger's claims.
"""

import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.orchestration import ROOT, seconds_of_steps
from tests.benchmarks.results import conditions, load, table


def measure(config: Path | None = None) -> tuple[dict[str, float], dict[str, Any]]:
    """The ratio under its key, and the conditions with the seconds of every step."""
    about = conditions(runs=1)
    with tempfile.TemporaryDirectory(prefix="discreet-bench-") as folder:
        seconds = seconds_of_steps(config or ROOT / "configs" / "readmission.yaml", Path(folder) / "home", {})
    ratio = seconds["attack"] / seconds["train"]
    table(
        f"Where a run's time goes, seconds; the attack takes {ratio:.2f} of the training's",
        list(seconds),
        [[f"{value:.1f}" for value in seconds.values()]],
    )
    return {"attack_over_training": ratio}, about | {"load_after": load(), "seconds": seconds}
