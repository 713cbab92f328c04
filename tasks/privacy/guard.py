"""Fails closed: whatever goes wrong while epsilon is computed counts as over budget.

The accounting library returns an epsilon of 0 for some inputs that are not numbers, infinity for others,
raises for the rest, and can loop for long on extreme ones; a caller must never read any of these as "within
budget".
"""

import math
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from configs.errors import AccountingError, DiscreetError

TIME_LIMIT_SECONDS: Final = 120.0

Result = TypeVar("Result")


def guarded(*, what: str, compute: Callable[[], Result], time_limit_seconds: float = TIME_LIMIT_SECONDS) -> Result:
    """Run `compute` under a wall-clock limit; any failure becomes an AccountingError.

    The work runs in a daemon thread: one that hangs is abandoned, and cannot keep the process alive.

    Args:
        what: what is computed, for the message.
        compute: takes nothing; must not change anything that outlives it.
        time_limit_seconds: wall-clock limit.

    Raises:
        AccountingError: `compute` raised, or did not end in time.
        DiscreetError: an error of ours, as it was raised.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(compute())
        except BaseException as failure:  # MemoryError too must read as over budget
            failures.append(failure)

    thread = threading.Thread(target=work, name="privacy-accounting", daemon=True)
    thread.start()
    thread.join(time_limit_seconds)
    if failures:
        failure = failures[0]
        if isinstance(failure, DiscreetError):
            raise failure
        raise AccountingError(
            f"{what} could not be computed ({type(failure).__name__}), which counts as over budget"
        ) from failure
    if not results:
        raise AccountingError(
            f"{what} was not computed within {time_limit_seconds:g} seconds, which counts as over budget; "
            "use fewer steps or more noise"
        )
    return results[0]


def checked_epsilon(*, what: str, value: object) -> float:
    """Pass on only a finite epsilon ≥ 0.

    Raises:
        AccountingError: it is NaN, infinite, negative, or no number.
    """
    number = float(value) if isinstance(value, int | float) else math.nan  # numpy's float64 is a float
    if not math.isfinite(number) or number < 0:
        raise AccountingError(
            f"{what} came out as {number}, which counts as over budget; use a larger delta or more noise"
        )
    return number


def checked_delta(delta: object) -> float:
    """Pass on only a delta strictly between 0 and 1.

    Raises:
        AccountingError: it is outside, NaN, or no number.
    """
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise AccountingError(f"delta = {delta!r} must be in (0, 1), and well below 1 / privacy.units")
    return float(delta)
