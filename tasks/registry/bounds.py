# pyright: strict
"""Holding an interval against a limit."""

import itertools
import math

from tasks.registry.evidence import Interval, Missing, Outcome, Reason


def bounded(
    *,
    gate: str,
    what: str,
    found: Interval | Missing,
    span: tuple[float, float],
    limit: float,
    at_least: bool,
    group: str | None = None,
) -> Reason:
    """Hold an interval against a limit: inside passes, outside blocks, astride is insufficient.

    Args:
        gate: its name in the policy.
        what: the metric in words.
        found: the metric's interval, or why there is none.
        span: the metric's range; an interval that leaves it is a fault and blocks.
        limit: the policy's limit.
        at_least: the metric must reach the limit; otherwise it must not exceed it.
        group: whom it concerns; None for all.
    """
    if isinstance(found, Missing):
        words = f"{what} is missing: {found.why}; the limit is {limit:g}"
        return Reason(gate=gate, outcome="blocked", words=words, limit=limit, group=group)
    bounds = (span[0], found.lower, found.estimate, found.upper, span[1])
    if not all(a <= b for a, b in itertools.pairwise(bounds)):  # false for every NaN
        words = (
            f"{what} is {found.estimate} in [{found.lower}, {found.upper}], which is no interval within "
            f"[{span[0]:g}, {span[1]:g}]; the limit is {limit:g}"
        )
        return Reason(
            gate=gate, outcome="blocked", words=words, number=finite(found.estimate), limit=limit, group=group
        )
    low, high = apart(found.lower, limit), apart(found.upper, limit)
    inside = found.lower >= limit if at_least else found.upper <= limit
    outside = found.upper < limit if at_least else found.lower > limit
    if inside:
        outcome: Outcome = "passed"
        end = f"lower bound {low} reaches" if at_least else f"upper bound {high} is within"
    elif outside:
        outcome = "blocked"
        end = f"upper bound {high} misses" if at_least else f"lower bound {low} exceeds"
    else:
        outcome = "insufficient"
        end = f"interval from {low} to {high} is too wide for a verdict: it straddles"
    words = f"{what} is {found.estimate:.4g}; its {end} the limit of {limit:g}"
    return Reason(gate=gate, outcome=outcome, words=words, number=found.estimate, limit=limit, group=group)


def finite(number: float) -> float | None:
    """The number, or None in place of NaN and infinity."""
    return number if math.isfinite(number) else None


def apart(number: float, limit: float) -> str:
    """`number` with as many digits, from four on, as it takes to tell it from `limit`."""
    digits = 4
    while number != limit and float(f"{number:.{digits}g}") == limit and digits < 17:
        digits += 1
    return f"{number:.{digits}g}"
