"""Promotion: judge a registered version again by the evidence that the ledger keeps. Costs no privacy."""

from __future__ import annotations

import getpass
from pathlib import Path

from prefect import flow

from configs.load import load, load_runtime
from tasks.handover import Outcome
from tasks.judging import judged_again
from tasks.policy import sealed
from tasks.registry.tracking import Store


@flow(name="promotion", retries=0, persist_result=False, log_prints=False)
@sealed
def promote_again(
    model: str, version: str, config_path: str | None = None, runtime: str = "local", reason: str = "by hand"
) -> Outcome:
    """Judge a version again, and promote it if it passes every gate.

    Args:
        model: the registered model's name.
        version: its version.
        config_path: a model's YAML file, whose gates and `attack.max_advantage` are today's; those of the last
            decision when None.
        runtime: name of a file in `configs/runtime/`, or its path.
        reason: why, in the operator's words; kept in the ledger.
    """
    place = load_runtime(runtime)
    config = None if config_path is None else load(config_path).config
    home = Path(place.home).expanduser().resolve()
    return judged_again(
        home=home,
        store=Store.at(home, uri=place.tracking_uri),
        model=model,
        version=version,
        config=config,
        actor=getpass.getuser(),
        reason=reason,
    )
