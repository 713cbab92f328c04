"""Registers model versions and moves the alias `champion`: on a promotion, and by compare-and-swap.

MLflow moves aliases silently and takes whatever it is told last. Here the move happens under a lock, only on
a decision `promoted`, and only if the champion is still the one the model was compared with.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import InternalError
from tasks.registry.evidence import Decision, Missing, Reason
from tasks.registry.package import code_on_path, stored_digest
from tasks.registry.tracking import Store, client, connected, download, locked, prepare

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from mlflow import MlflowClient

CHAMPION = "champion"
SPLIT_TAG = "discreet.split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The version that holds the alias.

    Attributes:
        name: the registered model.
        version: its number, as text.
        split: fingerprint of the split it was trained on; None if the version does not say.
    """

    name: str
    version: str
    split: str | None


def register(*, store: Store, name: str, model_uri: str, run_id: str, tags: Mapping[str, str]) -> str:
    """Register a logged model as the next version.

    Args:
        store: where.
        name: the registered model, created if new; no `/` and no `:`.
        model_uri: what `log_run` returned.
        run_id: its run.
        tags: of the version; `discreet.split` is what a later model's comparison needs.

    Returns:
        The version, as text.
    """
    prepare(store)
    service = client(store)
    # MLflow's registry looks the model up at the process-wide URI, not at the client's.
    with locked(store.home / "registry.lock"), connected(store):
        if _registered(service, name) is None:
            service.create_registered_model(name)
        version = service.create_model_version(
            name, source=model_uri, run_id=run_id, tags=dict(tags), model_id=model_uri.rpartition("/")[2]
        )
    return str(version.version)


def champion(*, store: Store, name: str) -> Champion | None:
    """The version that holds the alias now; None if none does, or the model is not registered."""
    prepare(store)
    service = client(store)
    found = _registered(service, name)
    if found is None or CHAMPION not in found.aliases:
        return None
    # Not through search_model_versions, which leaves aliases empty in MLflow 3.17.
    version = service.get_model_version(name, str(found.aliases[CHAMPION]))
    return Champion(name=name, version=str(version.version), split=version.tags.get(SPLIT_TAG))


def settle(*, store: Store, name: str, version: str, decision: Decision, compared_with: str | None) -> Decision:
    """Write a decision on a version, and on a promotion move the alias to it.

    Args:
        store: where.
        name: the registered model.
        version: the version judged.
        decision: the gate's.
        compared_with: the champion's version when the evidence was gathered; None if there was none.

    Returns:
        The decision as it stands: a promotion turns `insufficient` if the champion has changed meanwhile,
        since nothing is known of this model against the new one.
    """
    prepare(store)
    service = client(store)
    with locked(store.home / "registry.lock"):
        holder = champion(store=store, name=name)
        now = holder.version if holder else None
        if decision.verdict == "promoted" and now != compared_with:
            decision = _overtaken(decision, compared_with, now)
        write(store=store, name=name, version=version, decision=decision)
        service.set_model_version_tag(name, version, "discreet.compared_with", compared_with or "none")
        if decision.verdict == "promoted":
            service.set_registered_model_alias(name, CHAMPION, version)
    return decision


def write(*, store: Store, name: str, version: str, decision: Decision) -> None:
    """Write a decision on a version and on its run, as tags. No alias moves."""
    service = client(store)
    service.set_model_version_tag(name, version, "discreet.verdict", decision.verdict)
    service.set_model_version_tag(name, version, "discreet.reasons", _short(decision))
    run_id = service.get_model_version(name, version).run_id
    if run_id:
        service.set_tag(run_id, "discreet.verdict", decision.verdict)


_TAG_LIMIT = 50_000  # characters; MLflow refuses a version's tag above 100,000


def _short(decision: Decision) -> str:
    """The reasons as JSON, those in the way first, as many as a tag takes."""
    reasons = decision.to_json()["reasons"]
    kept: list[dict[str, Any]] = []
    size = 0
    for reason in reasons:
        size += len(json.dumps(reason)) + 2
        if size > _TAG_LIMIT:
            words = f"{len(reasons) - len(kept)} more reasons stand in the ledger and on the model card"
            kept.append({"gate": "reasons", "outcome": "noted", "words": words})
            break
        kept.append(reason)
    return json.dumps(kept)


def describe(*, store: Store, name: str, version: str, text: str) -> None:
    """Show a page of Markdown as the description of a version and of its run: what a reviewer reads first.

    Raises:
        InternalError: MLflow refused, named by the kind of its error.
    """
    service = client(store)
    try:
        service.update_model_version(name, version, description=text)
        run_id = service.get_model_version(name, version).run_id
        if run_id:
            service.set_tag(run_id, "mlflow.note.content", text)
    except Exception as error:
        raise InternalError(f"MLflow refused the description of {name} {version}: {type(error).__name__}") from None


def champion_scores(
    *, store: Store, holder: Champion, files_sha256: str | None, split: str, records: "pd.DataFrame"
) -> "np.ndarray | Missing":
    """Score records with the champion, if the comparison would be a fair one.

    Args:
        store: where.
        holder: the champion.
        files_sha256: digest of its files when it was judged; None if nobody knows of a judgement.
        split: fingerprint of the split that held these records out.
        records: raw records, held out from the model to be judged.

    Returns:
        Probabilities float64 [rows], or why there are none: the champion was trained on another split, so
        that these rows may be among those it learnt from; its files are not those that were judged, so that
        neither its code is run nor its word taken; it needs a column they lack; it does not load.
    """
    who = f"the champion (version {holder.version})"
    if files_sha256 is None:
        return Missing(why=f"{who} was never judged: the ledger holds no decision on it")
    if holder.split != split:
        return Missing(why=f"{who} was trained on another split, so some of these rows may be its own training rows")
    try:
        with download(store=store, uri=f"models:/{holder.name}/{holder.version}") as place:
            if stored_digest(Path(place)) != files_sha256:
                return Missing(why=f"{who} is not the one that was judged: its files were changed since")
            return _scores(load(store=store, uri=place), who, records)
    except Exception as error:
        return Missing(why=f"{who} cannot be used: {type(error).__name__}")


def _scores(model: Any, who: str, records: "pd.DataFrame") -> "np.ndarray | Missing":
    columns = [column.name for column in model.metadata.get_input_schema().inputs]
    absent = [column for column in columns if column not in records.columns]
    if absent:
        return Missing(why=f"{who} reads columns that these records lack: {', '.join(absent)}")
    return model.predict(records[columns])["probability"].to_numpy(dtype="float64")


def load(*, store: Store, uri: str) -> Any:
    """Load a registered version, or a copy of one, as pyfunc: `predict(frame)` gives one column `probability`."""
    with connected(store) as mlflow, code_on_path():
        return mlflow.pyfunc.load_model(uri, suppress_warnings=True)


def digests(*, store: Store, name: str, version: str) -> tuple[str, str] | None:
    """The sha256 of a version's weights and of all its files as they lie there now; None where there are none."""
    try:
        with download(store=store, uri=f"models:/{name}/{version}") as place:
            weights = sorted(Path(place).rglob("weights.safetensors"))
            if len(weights) != 1:
                return None
            return hashlib.sha256(weights[0].read_bytes()).hexdigest(), stored_digest(Path(place))
    except InternalError:
        return None


def _registered(service: "MlflowClient", name: str) -> Any:
    """The registered model, or None if there is no such name."""
    from mlflow.exceptions import MlflowException

    try:
        return service.get_registered_model(name)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _overtaken(decision: Decision, compared_with: str | None, now: str | None) -> Decision:
    """The same decision without the promotion, since the comparison is out of date."""
    before = f"version {compared_with}" if compared_with else "no version"
    after = f"version {now}" if now else "no version"
    words = f"this model was compared with {before}, and the champion is now {after}: retrain to compare with that"
    reason = Reason(gate="champion", outcome="insufficient", words=words)
    return replace(decision, verdict="insufficient", reasons=(reason, *decision.reasons))
