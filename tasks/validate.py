"""Validate: the records against the configuration's expectations. A failure stops the run before anything is spent."""

from __future__ import annotations

import shutil

from configs.errors import DataError
from tasks.data import validation
from tasks.data.workfolder import read_frame
from tasks.handover import Records, Run, Validation
from tasks.planning import features_of
from tasks.policy import step
from tasks.progress import report


@step
def validate(run: Run, records: Records) -> Validation:
    data = run.config.data
    result = validation.validate(
        read_frame(records.path),
        features=features_of(run.config),
        label=data.label.model_dump(),
        person=data.person,
        checks=data.checks.model_dump(),
        name=run.config.model,
    )
    page, details = run.work / "validation.html", run.work / "validation.json"
    page.write_text(validation.to_html(result, title=run.config.model), encoding="utf-8")
    details.write_text(validation.to_json(result), encoding="utf-8")
    if not result.success:
        failures, kept = result.failures(), run.home / "reports" / f"{run.name}.html"
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(page, kept)
        raise DataError(
            f"{len(failures)} of {len(result.checks)} expectations failed; nothing was spent (report: {kept})"
            + "".join(f"\n  - {sentence}" for sentence in failures)
        )
    report(step="validate", note=f"{len(result.checks)} expectations met")
    return Validation(passed=result.success, checks=len(result.checks), report=page, details=details)
