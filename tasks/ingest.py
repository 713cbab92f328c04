"""Ingest: read the wanted columns, leave out what the configuration excludes, keep them in the work folder."""

from __future__ import annotations

import pandas as pd

from configs.errors import DataError
from configs.schema import Config
from tasks.data import sources, synthetic
from tasks.data.workfolder import write_frame
from tasks.handover import Records, Run
from tasks.planning import features_of
from tasks.policy import step
from tasks.progress import about, report


@step
def ingest(run: Run) -> Records:
    data = run.config.data
    if run.rehearsal:
        frame = _rehearsed(run)
    else:
        columns = run.config.columns()
        frame = sources.read_records(source=data.source.model_dump(), columns=columns, missing=data.missing)
        frame = sources.exclude(frame, [rule.model_dump() for rule in data.exclude])
    if data.person is not None:  # `7` and `7 ` are one person, who must not count as two
        frame[data.person] = frame[data.person].str.strip()
    if len(frame) < 2:
        raise DataError("the source holds fewer than two records; nothing can be trained or tested on that")
    path = run.work / "records.parquet"
    write_frame(frame, path)
    report(step="ingest", note=f"{about(len(frame))} rows, {len(frame.columns)} columns")
    return Records(path=path, digest=sources.digest(frame, key=run.key), about=about(len(frame)))


def _rehearsed(run: Run) -> pd.DataFrame:
    """Rows from the schema, about as many as the run will train and test on."""
    config, data = run.config, run.config.data
    holdout = data.holdout.audit + data.holdout.population
    return synthetic.rows(
        features=features_of(config),
        label=data.label.model_dump(),
        person=data.person,
        max_rows=config.privacy.max_rows_per_person,
        n=max(data.checks.min_rows, round(config.privacy.units / (1 - holdout))),
        seed=0,
        prior_rate=config.network.prior_rate,
        unique=data.checks.unique,
        max_missing=data.checks.max_missing,
        extra=_extra(config),
    )


def _extra(config: Config) -> dict[str, list[str]]:
    """Values of the columns that are no features: what decides an exclusion, and what tells a group."""
    found = {rule.column: ["kept"] for rule in config.data.exclude if rule.column not in config.data.features}
    for group in config.fairness.groups.values() if config.fairness else ():
        if group.column not in config.data.features:
            bands = (group.bands or {}).values()
            found[group.column] = [*(group.values or ()), *(text for texts in bands for text in texts)]
    return found
