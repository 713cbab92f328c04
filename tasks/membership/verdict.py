"""The verdict on an attack: a pure function of the evidence.

The first that applies, in this order:

    VETO            the caller names a reason why no number counts, such as attacked weights that are not the artifact's
    CONTRADICTION   a lower bound lies above what epsilon allows any attack: the claim or the training is wrong
    INVALID_SPLIT   members and non-members are told apart without the model
    ATTACK_BROKEN   the attack missed the control, is weaker than it must be, or a number is missing
    FAIL            the advantage is above its limit
    INCONCLUSIVE    the interval straddles the limit
    PASS            the advantage is below its limit, by its upper bound

Every comparison is of published numbers, rounded outwards, so that a verdict tells nothing that they do not.
Rounding can turn a PASS or a FAIL into INCONCLUSIVE, and never the other way.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tasks.membership.metrics import CONTRADICTION_ERROR
from tasks.membership.results import AttackResult, Published, Rate, down, published, published_auc
from tasks.statistics.roc import AucEstimate, Undefined

Verdict = Literal["VETO", "CONTRADICTION", "INVALID_SPLIT", "ATTACK_BROKEN", "FAIL", "INCONCLUSIVE", "PASS"]

CAUGHT: Final = 0.60  # balanced accuracy that the control's lower bound must reach
BLIND_TOLERANCE: Final = 0.02
GAP_TOLERANCE: Final = 0.01  # the gap is an estimate too
REVERSAL_TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that the accountant's curve allows any attack, in the claim's adjacency; 1 where nothing is claimed."""

    auc: float
    accuracy: float
    advantage: float
    tpr_at_1pct: float
    tpr_at_01pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackEvidence:
    """What is known of an attack. None stands for what was not computed, and never passes.

    Attributes:
        target: the attack on the artifact to be promoted.
        ceiling: what epsilon allows.
        control: the same attack on the network that memorised.
        blind: AUC of a classifier without a model.
        gap_accuracy: balanced accuracy of the gap attack on the target.
        max_advantage: limit of the advantage, in [0, 1].
        vetoes: reasons why no number counts, one sentence each; empty if the caller looked and found none.
    """

    target: AttackResult | Undefined | None
    ceiling: Ceiling | None
    control: AttackResult | Undefined | None
    blind: AucEstimate | Undefined | None
    gap_accuracy: float | Undefined | None
    max_advantage: float
    vetoes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackVerdict:
    """The verdict; the sentences that decided it; and the sentences of all checks, in the order of the verdicts."""

    verdict: Verdict
    words: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The evidence in its published form; None where there is none, or a number in it is not finite."""

    evidence: AttackEvidence
    target: Published | None
    control: Published | None
    blind: Rate | None
    ceiling: Ceiling | None


def judge(evidence: AttackEvidence) -> AttackVerdict:
    """Judge an attack.

    Error rates: a CONTRADICTION is found with probability at most .01 where no true figure exceeds the ceiling
    (Bonferroni over five figures and all attacks); a FAIL, or a PASS, with probability at most .025 where the attack's
    true advantage lies on the other side of the limit.
    """
    shown = _shown(evidence)
    findings: list[tuple[Verdict, str]] = [
        (verdict, sentence) for verdict, check in _CHECKS for sentence in check(shown)
    ]
    reasons = tuple(sentence for _, sentence in findings)
    # The checks end with exactly one of FAIL, INCONCLUSIVE and PASS wherever all numbers are there, and with none
    # of them otherwise, when ATTACK_BROKEN says what is missing.
    decided = findings[0][0]
    words = " ".join(sentence for verdict, sentence in findings if verdict == decided)
    return AttackVerdict(verdict=decided, words=words, reasons=reasons)


def _shown(evidence: AttackEvidence) -> _Shown:
    target, control, blind, ceiling = evidence.target, evidence.control, evidence.blind, evidence.ceiling
    return _Shown(
        evidence=evidence,
        target=published(target) if isinstance(target, AttackResult) and _sound(target) else None,
        control=published(control) if isinstance(control, AttackResult) and _sound(control) else None,
        blind=published_auc(blind) if isinstance(blind, AucEstimate) and _sound(blind) else None,
        ceiling=ceiling if ceiling is not None and all(_is_share(part) for part in _numbers(ceiling)) else None,
    )


def _sound(result: AttackResult | AucEstimate) -> bool:
    """Whether every number is finite."""
    return all(math.isfinite(number) for number in _numbers(result))


def _numbers(part: object) -> Iterator[float]:
    """All numbers within dataclasses and tuples, however deep."""
    if isinstance(part, int | float):
        yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from _numbers(inner)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from _numbers(getattr(part, field.name))


def _is_share(number: object) -> bool:
    return isinstance(number, int | float) and 0 <= number <= 1  # NaN compares false


def _vetoed(shown: _Shown) -> Iterator[str]:
    vetoes = shown.evidence.vetoes
    if vetoes is None:
        yield "Nobody looked for reasons to refuse the attack's numbers, such as weights that are not the artifact's."
    else:
        yield from vetoes


def _contradicted(shown: _Shown) -> Iterator[str]:
    target, ceiling = shown.target, shown.ceiling
    if target is None or ceiling is None:
        return
    for name, what in _FIGURES.items():
        floor, most = getattr(target.floors, name), getattr(ceiling, name)
        if floor is not None and floor > most:
            yield (
                f"The attack's {what} is at least {floor:.3f}, and the claimed epsilon allows no attack more than "
                f"{most:.4g} (error rate {CONTRADICTION_ERROR:.0%} over all comparisons): the claim or the training is "
                "wrong. Check the unit, people with two ids, the sampling, the accountant's arguments, and that "
                "these weights came out of that run."
            )


_FIGURES: Final = {
    "auc": "AUC",
    "accuracy": "balanced accuracy",
    "advantage": "advantage",
    "tpr_at_1pct": "true positive rate at 1 % false positives",
    "tpr_at_01pct": "true positive rate at .1 % false positives",
}


def _told_apart(shown: _Shown) -> Iterator[str]:
    limit = 0.5 + BLIND_TOLERANCE
    if shown.blind is not None and shown.blind.lower > limit:
        yield (
            f"Members and non-members are told apart without the model: the AUC of a classifier that sees only their "
            f"records is at least {shown.blind.lower:.3f}, above {limit:.2f}. The hold-out is no random part of the "
            "people, so no attack on this split counts."
        )


def _broken(shown: _Shown) -> Iterator[str]:
    yield from _missing(shown)
    if shown.control is not None and shown.control.accuracy.lower < CAUGHT:
        yield (
            f"The attack did not catch the control, a network that memorised its members: balanced accuracy at "
            f"least {shown.control.accuracy.lower:.3f}, where {CAUGHT:.2f} is asked for."
        )
    if shown.target is None:
        return
    if shown.target.auc.upper < 0.5 - REVERSAL_TOLERANCE:
        yield (
            f"The attack ranks members below non-members: AUC at most {shown.target.auc.upper:.3f}. A sign is wrong, "
            "or members and non-members are swapped."
        )
    gap = shown.evidence.gap_accuracy
    if _is_share(gap) and isinstance(gap, int | float):
        least, most = down(gap, shown.target.step), shown.target.accuracy.upper
        if most + GAP_TOLERANCE < least:
            yield (
                f"The attack's balanced accuracy is at most {most:.3f}, and the gap between training and test "
                f"accuracy alone gives {least:.3f}: an attack that misses the gap is broken."
            )


def _missing(shown: _Shown) -> Iterator[str]:
    evidence = shown.evidence
    if shown.target is None:
        yield f"The attack on the model has no result: {_why(evidence.target)}."
    if shown.control is None:
        yield f"The attack on the control has no result: {_why(evidence.control)}."
    if shown.blind is None:
        yield f"The baseline without a model has no result: {_why(evidence.blind)}."
    if not _is_share(evidence.gap_accuracy):
        yield f"The gap between training and test accuracy is not known: {_why(evidence.gap_accuracy)}."
    if shown.ceiling is None:
        yield f"What epsilon allows an attack is not known: {_why(evidence.ceiling)}."
    if not _is_share(evidence.max_advantage):
        yield "attack.max_advantage is not a number from 0 to 1, so there is no limit to judge by."


def _why(part: object) -> str:
    if part is None:
        return "it was not computed"
    return part.reason if isinstance(part, Undefined) else "a number in it is not finite or out of range"


def _failed(shown: _Shown) -> Iterator[str]:
    limit = _limit(shown)
    if shown.target is not None and limit is not None and shown.target.advantage.lower > limit:
        yield f"The attack's advantage is at least {shown.target.advantage.lower:.3f}, above the limit of {limit:g}."


def _inconclusive(shown: _Shown) -> Iterator[str]:
    limit = _limit(shown)
    if shown.target is None or limit is None:
        return
    found = shown.target.advantage
    if found.lower <= limit < found.upper:
        yield (
            f"The attack's advantage lies between {found.lower:.3f} and {found.upper:.3f} (95 % interval), on both "
            f"sides of the limit of {limit:g}: not enough evidence either way."
        )


def _limit(shown: _Shown) -> float | None:
    return shown.evidence.max_advantage if _is_share(shown.evidence.max_advantage) else None


def _passed(shown: _Shown) -> Iterator[str]:
    limit, target, control = _limit(shown), shown.target, shown.control
    if any(_missing(shown)) or target is None or control is None or limit is None:
        return
    if target.advantage.upper <= limit:
        yield (
            f"The loss attack's advantage is at most {target.advantage.upper:.3f}, within the limit of "
            f"{limit:g}; the same attack caught the control with a balanced accuracy of at least "
            f"{control.accuracy.lower:.3f}. Stronger attacks may find more: only epsilon bounds them all."
        )


_CHECKS: Final[tuple[tuple[Verdict, Callable[[_Shown], Iterator[str]]], ...]] = (
    ("VETO", _vetoed),
    ("CONTRADICTION", _contradicted),
    ("INVALID_SPLIT", _told_apart),
    ("ATTACK_BROKEN", _broken),
    ("FAIL", _failed),
    ("INCONCLUSIVE", _inconclusive),
    ("PASS", _passed),
)
