"""What `--json` prints: the same as the terminal shows, as one object."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from configs.errors import BudgetError, DiscreetError

if TYPE_CHECKING:
    from tasks.forecast import Forecast
    from tasks.handover import Outcome


def outcome(result: Outcome, standing: Forecast | DiscreetError | None = None) -> dict[str, Any]:
    """An outcome; of a rehearsal with how the real run would stand, or why it would be refused."""
    reasons = [dict(zip(("gate", "outcome", "words"), reason, strict=True)) for reason in result.reasons]
    plain = dataclasses.asdict(result) | {"reasons": reasons}
    plain |= {"metrics": dict(result.metrics), "seconds": dict(result.seconds)}
    if standing is None:
        return plain
    if isinstance(standing, DiscreetError):
        ledger, refused = {"refusal": str(standing)}, standing.exit_code
    else:
        names = ("known", "used_epsilon", "epsilon_after", "guarantee_epsilon", "runs_that_fit", "refusal")
        ledger = {name: getattr(standing, name) for name in names}
        refused = BudgetError.exit_code if standing.refusal else 0
    return plain | {"exit_code": 0, "would_exit": refused or result.exit_code, "ledger": ledger}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def show(value: Any) -> None:
    """Print one JSON object, without NaN or infinity."""
    sys.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")
