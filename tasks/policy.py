"""What a task may do on its own: nothing that spends budget is retried, nothing that holds rows is cached or kept.

Prefect logs parameters, pickles a failed flow's exception with all its attributes, and retries by running the
whole body again (a retried training would spend again). So every body is a `step`: retries, caching and
persistence off, and *sealed*, so that what leaves it is a result of ours or an error of ours without row values.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE

from configs.errors import DiscreetError, InternalError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_ROOT = Path(__file__).resolve().parents[1]


def sealed(body: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let only errors of ours out, each made anew so that it carries no cause, no frames and no attributes.

    An error of another library can hold a record in its text or on the object itself; of such a one only the
    type and the place in our own code are told.
    """

    @functools.wraps(body)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return body(*args, **kwargs)
        except DiscreetError as error:
            failure: DiscreetError = type(error)(str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or type(error).__module__.startswith("prefect."):
                raise  # a signal, not a fault
            failure = InternalError(f"{body.__name__} failed: {type(error).__name__} at {_place(error)}")
        raise failure

    return wrapper


def _place(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in {"flows", "tasks", "configs"}:
            return f"{path.relative_to(_ROOT)}:{frame.lineno}"
    return "a library"


def step(body: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a Prefect task of a verb's body: sealed, never retried, cached or persisted."""
    options: Any = task(name=body.__name__, retries=0, cache_policy=NO_CACHE, persist_result=False, log_prints=False)
    return options(sealed(body))
