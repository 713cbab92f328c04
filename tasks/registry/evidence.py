# pyright: strict
"""What the gate looks at and what it answers: frozen records without behaviour."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["promoted", "blocked", "insufficient"]
Outcome: TypeAlias = Literal["passed", "blocked", "insufficient", "noted"]

EXIT_CODES: Mapping[str, int] = MappingProxyType(
    {"promoted": 0, "blocked": 40, "insufficient": 41, "awaiting_approval": 42}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its bounds: lower ≤ estimate ≤ upper, in the unit of the metric."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Evidence that does not exist. `why` completes the sentence "… is missing: "."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the gate looks at.

    Attributes:
        self_test_passed: the noise path proved itself private before step 1.
        executed_steps: noisy steps that ran, over all mechanisms of the run.
        planned_steps: steps that the plan, and with it epsilon, was computed for.
        claimed_steps: steps that the ledger holds as claimed.
        run_epsilon: epsilon of this run, at `delta`.
        run_epsilon_limit: what the configuration allows one run.
        ledger_epsilon_used: epsilon of the population over all its runs.
        ledger_epsilon_cap: the population's guarantee.
        delta: of `run_epsilon`, in (0, 1).
        ledger_delta: of the population's epsilon, in (0, 1).
        unit: what every epsilon here protects, "person" or "row".
        validation_passed: the records met every expectation.
        auc: AUC on the hold-out with its two-sided interval, or why there is none.
        champion_version: the version that holds the alias now; None if none does.
        auc_drop: AUC of the champion minus that of this model on the same rows, with one-sided bounds, or why
            the two cannot be compared. Not looked at without a champion.
    """

    self_test_passed: bool
    executed_steps: int
    planned_steps: int
    claimed_steps: int
    run_epsilon: float
    run_epsilon_limit: float
    ledger_epsilon_used: float
    ledger_epsilon_cap: float
    delta: float
    ledger_delta: float
    unit: str
    validation_passed: bool
    auc: Interval | Missing
    champion_version: str | None
    auc_drop: Interval | Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What one gate found. `number` is None where there is no finite one; `group` where it concerns all."""

    gate: str
    outcome: Outcome
    words: str
    number: float | None = None
    limit: float | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict and every reason for it, those that stand in the way first."""

    verdict: Verdict
    reasons: tuple[Reason, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict."""
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Plain types, without NaN or infinity."""
        return {"verdict": self.verdict, "reasons": [asdict(reason) for reason in self.reasons]}
