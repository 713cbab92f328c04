"""Record: parameters, metrics, tags, reports and the packed model, into MLflow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
from safetensors.torch import load_file

from configs.errors import InternalError
from tasks.data import encoding, synthetic
from tasks.dpsgd import networks
from tasks.fairness import suppression
from tasks.handover import Assessed, Attacked, Recorded, Records, Run, Trained, Validation
from tasks.planning import features_of, parameters_of, store_of
from tasks.policy import step
from tasks.progress import report
from tasks.registry import aliases, package, tracking


@step
def record(
    run: Run, records: Records, validation: Validation, trained: Trained, attacked: Attacked, assessed: Assessed
) -> Recorded:
    store = store_of(run)
    folder = _folder(run, trained)
    tags = {
        **dict(trained.tags),
        "discreet.data": records.digest,
        "discreet.split": trained.split,
        "discreet.configuration": run.config_digest,
        "discreet.simulated": str(run.config.data.source.kind == "simulated" or run.rehearsal).lower(),
        "discreet.reason": run.reason,
        "ledger.head": trained.ledger_head,
        "model.sha256": folder.weights_sha256,
    }
    logged = tracking.log_run(
        store=store,
        experiment=run.config.model,
        run_name=run.name,
        params=parameters_of(run.config, trained),
        metrics=_metrics(trained, attacked, assessed),
        series={"privacy/epsilon_by_step": trained.epsilon_path},
        tags=tags,
        artifacts=_artifacts(run, validation, trained, assessed),
        folder=folder,
        example=_example(run),
    )
    assert logged.model_uri is not None
    version = aliases.register(
        store=store, name=run.config.model, model_uri=logged.model_uri, run_id=logged.run_id, tags=tags
    )
    stored = aliases.digests(store=store, name=run.config.model, version=version)
    if stored is None:
        raise InternalError(f"version {version} of {run.config.model} cannot be read back from MLflow")
    report(step="record", note=f"MLflow run {logged.run_id}, version {version}")
    return Recorded(
        tracking_uri=store.uri,
        run_id=logged.run_id,
        model_version=version,
        metrics=tuple(logged.metrics.items()),
        weights_sha256=stored[0],
        files_sha256=stored[1],
    )


def _metrics(trained: Trained, attacked: Attacked, assessed: Assessed) -> dict[str, float | None]:
    """Every metric that applies; one that applies and is undefined is None, and is counted as such."""
    found: dict[str, float | None] = {
        "privacy/run_epsilon": trained.epsilon,
        "privacy/run_epsilon_rdp": trained.rdp_epsilon,
        "privacy/delta": trained.delta,
        "privacy/ledger_epsilon_used": trained.ledger_epsilon_used,
        "privacy/ledger_epsilon_cap": trained.ledger_epsilon_cap,
        "test/auc": assessed.auc.value,
        "test/auc_lower": assessed.auc.lower,
        "test/auc_upper": assessed.auc.upper,
    }
    if trained.person_epsilon is not None:
        found["privacy/person_epsilon"] = trained.person_epsilon
    if assessed.champion is not None:
        found |= {"test/auc_drop": assessed.auc_drop.value, "test/auc_drop_upper": assessed.auc_drop.upper}
    found |= {f"test/auc_{name}": estimate.value for name, estimate in assessed.others if estimate.value is not None}
    found |= dict(attacked.metrics)
    return found | (suppression.metrics(assessed.fairness) if assessed.fairness else {})


def _folder(run: Run, trained: Trained) -> package.ModelFolder:
    spec = json.loads(trained.encoding.read_text())
    return package.build_folder(
        into=run.work / "model",
        encoding=spec,
        network=json.loads(trained.network.read_text()),
        inputs=len(encoding.feature_names(spec)),
        weights=load_file(trained.weights),
        threshold=run.config.network.threshold,
        encoding_module=Path(encoding.__file__),
        networks_module=Path(networks.__file__),
    )


def _artifacts(run: Run, validation: Validation, trained: Trained, assessed: Assessed) -> Path:
    """What a reviewer opens beside the metrics; nothing in it holds a record's value."""
    folder = run.work / "artifacts"
    folder.mkdir()
    shutil.copy(validation.report, folder / "validation.html")
    shutil.copy(validation.details, folder / "validation.json")
    (folder / "configuration.yaml").write_text(run.config_text, encoding="utf-8")
    (folder / "claim.md").write_text(f"{trained.claim}\n\n{trained.statement}\n", encoding="utf-8")
    if assessed.fairness:  # names of any kind, which the tracking server's keys cannot hold
        named = json.dumps(suppression.names(assessed.fairness), indent=1, ensure_ascii=False)
        (folder / "groups.json").write_text(named, encoding="utf-8")
    return folder


def _example(run: Run) -> pd.DataFrame:
    """Two rows made from the schema: the model's example is shown to everybody."""
    data = run.config.data
    rows = synthetic.rows(
        features=features_of(run.config), label=data.label.model_dump(), person=None, max_rows=1, n=2, seed=0
    )
    return rows.loc[:, list(data.features)]
