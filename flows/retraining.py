"""Retraining: ingest → validate → train → attack → assess → record → promote.

No parameter of the flow changes epsilon: what does is in the configuration file, under review.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from configs.errors import BudgetError, DiscreetError
from tasks.assess import assess
from tasks.attack import attack
from tasks.handover import Outcome, Run
from tasks.ingest import ingest
from tasks.opening import opened
from tasks.policy import sealed
from tasks.promote import promote
from tasks.record import record
from tasks.summary import markdown
from tasks.train import train
from tasks.validate import validate

_T = TypeVar("_T")
LATEST = timedelta(days=1)


@flow(name="retraining", retries=0, persist_result=False, log_prints=False)
@sealed
def retrain(config_path: str, runtime: str = "local", reason: str = "scheduled") -> Outcome:
    """Retrain one model on its records, charge its population, and promote it if it passes every gate.

    Args:
        config_path: path of the model's YAML file.
        runtime: name of a file in `configs/runtime/`, or its path.
        reason: why, in the operator's words; kept in the ledger.
    """
    _refuse_late()
    with opened(config_path, runtime=runtime, reason=reason, rehearsal=False) as run:
        return _chain(run)


@flow(name="rehearsal", retries=0, persist_result=False, log_prints=False)
@sealed
def rehearse(config_path: str, runtime: str = "local") -> Outcome:
    """The same on rows generated from the configuration: touches no record, spends and promotes nothing.

    Args:
        config_path: path of the model's YAML file.
        runtime: name of a file in `configs/runtime/`, or its path.
    """
    with opened(config_path, runtime=runtime, reason="rehearsal", rehearsal=True) as run:
        return _chain(run)


def _refuse_late() -> None:
    """What was missed is not caught up: after an outage a work pool starts every run that fell due meanwhile.

    Each would be paid for in full, on the same records.
    """
    due = flow_run.scheduled_start_time
    if datetime.now(UTC) - due > LATEST:
        raise BudgetError(
            f"this run was due on {due:%Y-%m-%d at %H:%M} UTC, more than {LATEST.days * 24} hours ago, and a missed "
            "retraining is not caught up, for each is paid for in full; nothing was read or spent. Start one by hand "
            "if it is still wanted: discreet run CONFIG"
        )


def _chain(run: Run) -> Outcome:
    watch = _Stopwatch()
    records = watch("ingest", lambda: ingest(run))
    validation = watch("validate", lambda: validate(run, records))
    trained = watch("train", lambda: train(run, records))
    with _charged(run):
        attacked = watch("attack", lambda: attack(run, records, trained))
        assessed = watch("assess", lambda: assess(run, records, trained, attacked))
        recorded = watch("record", lambda: record(run, records, validation, trained, attacked, assessed))
        outcome = watch("promote", lambda: promote(run, records, validation, trained, attacked, assessed, recorded))
    create_markdown_artifact(markdown=markdown(outcome), key=f"{run.config.model.lower()}-run".replace("_", "-"))
    return replace(outcome, seconds=tuple(watch.seconds.items()))


@contextmanager
def _charged(run: Run) -> Iterator[None]:
    """Errors from here on say that the training was paid for."""
    try:
        yield
    except DiscreetError as error:
        paid = "" if run.rehearsal else "\nThe training itself ran, is charged in the ledger, and stays charged."
        failure = type(error)(f"{error}{paid}")
    else:
        return
    raise failure


class _Stopwatch:
    """Where a run's time goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, body: Callable[[], _T]) -> _T:
        start = time.perf_counter()
        try:
            return body()
        finally:
            self.seconds[name] = time.perf_counter() - start
