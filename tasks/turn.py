"""One retraining per population at a time: each waits its turn, and a killed one holds nobody up.

Two retrainings of the same people at once would both be admitted against a budget that the other is spending, and
the second would be compared with a champion that the first is about to replace. The ledger stays right either way;
the turn makes the outcome one that a person can follow.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.errors import ConfigurationError


@contextmanager
def turn(*, home: Path, population: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the population's lock, `home`/locks/`population`.lock, while the body runs.

    The kernel drops the lock when its process ends, also by kill -9. The file itself stays: removing it would let
    one process lock the old file and another a new one.

    Args:
        home: `$DISCREET_HOME`.
        population: its name, already validated.
        on_wait: called once, before waiting, where another process has its turn.

    Raises:
        ConfigurationError: the lock's folder or file cannot be made.
    """
    path = home / "locks" / f"{population}.lock"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the population's lock cannot be made ({error.strerror}); make the folder writable, or set "
            "DISCREET_HOME to one that is"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
