"""Retraining: ingest → validate → train → assess → record → promote.

No parameter of the flow changes epsilon: what does is in the configuration file, under review.
"""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from tasks.assess import assess
from tasks.handover import Outcome, Run
from tasks.ingest import ingest
from tasks.opening import opened
from tasks.policy import sealed
from tasks.promote import promote
from tasks.record import record
from tasks.train import train
from tasks.validate import validate


@flow(name="retraining", retries=0, persist_result=False, log_prints=False)
@sealed
def retrain(config_path: str, runtime: str = "local", reason: str = "") -> Outcome:
    """Retrain one model on its records, charge its population, and promote it if it passes every gate.

    Args:
        config_path: path of the model's YAML file.
        runtime: name of a file in `configs/runtime/`, or its path.
        reason: why, in the operator's words; kept in the ledger.
    """
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


def _chain(run: Run) -> Outcome:
    records = ingest(run)
    validation = validate(run, records)
    trained = train(run, records)
    assessed = assess(run, records, trained)
    recorded = record(run, records, validation, trained, assessed)
    outcome = promote(run, trained, assessed, recorded)
    create_markdown_artifact(markdown=outcome.markdown(), key="retraining", description=outcome.verdict)
    return outcome
