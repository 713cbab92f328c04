# pyright: strict
"""What the gate looks at and what it answers: frozen records without behaviour."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

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
class Attacked:
    """What the membership-inference attack concluded.

    Attributes:
        verdict: PASS, FAIL, INCONCLUSIVE, ATTACK_BROKEN, INVALID_SPLIT, CONTRADICTION or VETO.
        words: why, in one sentence.
        advantage: true positive rate less false positive rate, with 95 % bounds; None if it could not be estimated.
        limit: the largest allowed.
    """

    verdict: str
    words: str
    advantage: Interval | None
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One group's evidence.

    Attributes:
        attribute: such as `sex`, or `race × sex`.
        group: its name.
        why_not: why the group is not gated; "" if it is.
        auc: its AUC with bounds that hold for all gated groups at once, one-sided 95 %.
        loss: AUC of the same recipe without noise less this model's, on the same rows, with such bounds.
    """

    attribute: str
    group: str
    why_not: str
    auc: Interval | Missing
    loss: Interval | Missing

    @property
    def name(self) -> str:
        """As a policy writes it."""
        return f"{self.attribute}/{self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Largest difference in AUC between gated groups of one attribute, with simultaneous bounds."""

    attribute: str
    auc: Interval | Missing


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
        attack: what the membership-inference attack concluded, or why it did not.
        groups: every declared group, or why there is no report; empty where the configuration declares none.
        gaps: by attribute.
        min_count: positives and negatives that made a group gated.
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
    attack: Attacked | Missing
    groups: tuple[Judged, ...] | Missing
    gaps: tuple[Gap, ...]
    min_count: int

    def to_json(self) -> dict[str, Any]:
        """Plain types, for the ledger; `evidence_of` reads them."""
        return _without_nan(asdict(self))


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


def evidence_of(plain: Mapping[str, Any]) -> Evidence:
    """The evidence that `Evidence.to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    groups: Any = plain["groups"]
    parts: dict[str, Any] = {name: float(value) if name in _FLOATS else value for name, value in plain.items()}
    parts["auc"], parts["auc_drop"] = _found(plain["auc"]), _found(plain["auc_drop"])
    parts["attack"] = _attacked(plain["attack"])
    parts["groups"] = _missing(groups) if isinstance(groups, dict) else tuple(map(_judged, groups))
    parts["gaps"] = tuple(Gap(attribute=gap["attribute"], auc=_found(gap["auc"])) for gap in plain["gaps"])
    return Evidence(**parts)


_FLOATS = {"run_epsilon", "run_epsilon_limit", "ledger_epsilon_used", "ledger_epsilon_cap", "delta", "ledger_delta"}


def _missing(plain: Any) -> Missing:
    return Missing(why=plain["why"])


def _found(plain: Mapping[str, Any]) -> Interval | Missing:
    if "why" in plain:
        return _missing(plain)
    return Interval(**{name: float(value) for name, value in plain.items()})


def _attacked(plain: Mapping[str, Any]) -> Attacked | Missing:
    if "why" in plain:
        return _missing(plain)
    advantage: Any = plain["advantage"]
    numbers = None if advantage is None else {name: float(value) for name, value in advantage.items()}
    return Attacked(
        verdict=plain["verdict"],
        words=plain["words"],
        advantage=None if numbers is None else Interval(**numbers),
        limit=float(plain["limit"]),
    )


def _judged(plain: Mapping[str, Any]) -> Judged:
    words: dict[str, str] = {name: plain[name] for name in ("attribute", "group", "why_not")}
    return Judged(**words, auc=_found(plain["auc"]), loss=_found(plain["loss"]))


def _without_nan(value: Any) -> Any:
    """Numbers that JSON cannot hold as the text that `float` reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in cast("list[Any]", value)]
    return value
