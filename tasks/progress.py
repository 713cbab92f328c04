"""Where a step says how far it is. The command line listens; a worker does not, and nothing is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a step is.

    Attributes:
        step: the verb, such as `train`.
        note: a few words, without any value of a record and without exact counts.
        done: part done, in the unit of `total`; None where there is nothing to count.
        total: the whole.
        epsilon: bound on epsilon so far at the run's delta; None outside training.
    """

    step: str
    note: str
    done: int | None = None
    total: int | None = None
    epsilon: float | None = None


_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[Progress], None]) -> Iterator[None]:
    """Send the progress of what runs inside to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(
    *, step: str, note: str, done: int | None = None, total: int | None = None, epsilon: float | None = None
) -> None:
    """Tell the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(step=step, note=note, done=done, total=total, epsilon=epsilon))


def about(count: int) -> str:
    """A count to two significant digits, for people: exact counts are not covered by epsilon and stay inside."""
    if count < 100:
        return "fewer than 100"
    magnitude = 10 ** (len(str(count)) - 2)
    return f"about {round(count / magnitude) * magnitude:,}"
