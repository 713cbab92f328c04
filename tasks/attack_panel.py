"""What the card and the tracking server show of an attack."""

from __future__ import annotations

import numpy as np

from tasks.membership.results import AttackResult, Rate, published, published_auc
from tasks.membership.verdict import AttackEvidence, AttackVerdict
from tasks.privacy.tradeoff import Ceiling
from tasks.registry.card_content import AttackLine, AttackPanel, Figure
from tasks.statistics.roc import AucEstimate, Undefined

_CEILING_RATES = tuple(10 ** (-3 + 3 * point / 40) for point in range(41))
_LINES = {
    "auc": "AUC",
    "accuracy": "balanced accuracy",
    "advantage": "advantage (true positives less false positives)",
    "tpr_at_1pct": "true positives at 1 % false positives",
    "tpr_at_01pct": "true positives at 0.1 % false positives",
}


def panel(
    *,
    unit: str,
    judged: AttackVerdict,
    evidence: AttackEvidence,
    twin: AttackResult | Undefined,
    ceiling: Ceiling,
) -> AttackPanel:
    """What of an attack may be published: rounded, without counts, with the words of the verdict.

    Args:
        unit: what was attacked, "person" or "row".
        judged: the verdict.
        evidence: what it rests on; its ceiling is known.
        twin: the attack on the recipe without noise.
        ceiling: what epsilon allows any attack.
    """
    allowed = evidence.ceiling
    assert allowed is not None
    return AttackPanel(
        verdict=judged.verdict,
        words=judged.words,
        unit=unit,
        lines=tuple(
            AttackLine(name=words, measured=_figure(evidence.target, name), allowed=_up(getattr(allowed, name)))
            for name, words in _LINES.items()
        ),
        control=_figure(evidence.control, "accuracy"),
        blind=_figure(evidence.blind, "auc"),
        twin=_figure(twin, "auc"),
        roc=published(evidence.target).roc if isinstance(evidence.target, AttackResult) else (),
        twin_roc=published(twin).roc if isinstance(twin, AttackResult) else (),
        ceiling=tuple((rate, ceiling.true_positive_rate(rate)) for rate in _CEILING_RATES),
    )


def _up(number: float) -> float:
    """To four decimals, upwards: a ceiling is never told too low."""
    return float(np.ceil(number * 1e4) / 1e4)


def _figure(found: AttackResult | AucEstimate | Undefined | None, name: str) -> Figure:
    if found is None or isinstance(found, Undefined):
        return Figure(why="not computed" if found is None else found.reason)
    told = published_auc(found) if isinstance(found, AucEstimate) else getattr(published(found), name)
    if not isinstance(told, Rate):
        return Figure(why=told.reason)
    return Figure(value=told.value, lower=told.lower, upper=told.upper)


def metrics(panel: AttackPanel) -> dict[str, float | None]:
    """By the names of the tracking server; what applies and is undefined is None."""
    found: dict[str, float | None] = {}
    for name, line in zip(_LINES, panel.lines, strict=True):
        figure = line.measured
        found |= {f"attack/{name}": figure.value, f"attack/{name}_allowed": line.allowed}
        found |= {f"attack/{name}_lower": figure.lower, f"attack/{name}_upper": figure.upper}
    found |= {"attack/control_accuracy": panel.control.value, "attack/control_accuracy_lower": panel.control.lower}
    return found | {"attack/blind_auc": panel.blind.value, "attack/twin_auc": panel.twin.value}


def advantage(panel: AttackPanel) -> Figure:
    """The figure that `attack.max_advantage` limits."""
    return next(line.measured for line in panel.lines if line.name == _LINES["advantage"])
