"""Opening a run: its configuration, its home, its key, and a work folder that is gone afterwards."""

from __future__ import annotations

import getpass
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from configs.errors import ConfigurationError, UsageError
from configs.load import load, load_runtime
from tasks.data.workfolder import sweep, work_folder
from tasks.handover import Run
from tasks.privacy.keys import population_key
from tasks.privacy.ledger import Ledger, checked_text
from tasks.progress import report
from tasks.turn import turn


@contextmanager
def opened(config_path: str, *, runtime: str, reason: str, rehearsal: bool) -> Iterator[Run]:
    """Everything that the steps of one run need; the work folder is removed whatever happens.

    A real run first waits until no other is under way on its population.

    Raises:
        UsageError: the ledger would not keep the reason.
        ConfigurationError: the configuration, the runtime or the population's key is wrong.
    """
    check_reason(reason)
    loaded, place = load(config_path), load_runtime(runtime)
    name = f"{loaded.config.model}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    population = loaded.config.privacy.population
    with ExitStack() as stack:
        if rehearsal:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="discreet-rehearsal-")))
            environment: dict[str, str] = {}  # a key of its own: the population's is not even read
        else:
            home, environment = Path(place.home).expanduser().resolve(), dict(os.environ)
            stack.enter_context(turn(home=home, population=population, on_wait=lambda: _told(population)))
            sweep(home)
        key = population_key(
            home=home, population=population, environment=environment, create=not _known(home, population)
        )
        yield Run(
            config=loaded.config,
            config_text=loaded.text,
            config_digest=loaded.digest,
            runtime=place,
            home=home,
            work=stack.enter_context(work_folder(home, name)),
            name=name,
            reason=reason,
            actor=getpass.getuser(),
            rehearsal=rehearsal,
            key=key,
        )


def check_reason(reason: str) -> None:
    """Refuse a reason that the ledger would not keep, before anything else.

    Raises:
        UsageError: it would not.
    """
    try:
        checked_text("reason", reason)
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def _told(population: str) -> None:
    report(step="turn", note=f"another retraining of {population} is running; this one waits until it has ended")


def _known(home: Path, population: str) -> bool:
    path = home / "ledger.db"
    if not path.is_file():
        return False
    with Ledger.open(path) as ledger:
        return ledger.population(population) is not None
