"""Records a run in MLflow: parameters, metrics, tags, files and the model.

The store needs no server: SQLite and a folder under `$DISCREET_HOME`, or any tracking URI. Nothing here
decides anything: MLflow lets finished runs be edited, so what the gate needs never comes from here.
"""

import fcntl
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from configs.errors import ConfigurationError, InternalError

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

    from tasks.registry.package import ModelFolder

# MLflow stores infinity as the largest double, which then looks like a number; nothing of ours is that large.
_LARGEST = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where MLflow keeps its records and its files.

    Attributes:
        uri: tracking and registry URI.
        artifacts: root of the artifacts, as a URI.
        home: folder of the locks that keep the processes of this machine apart.
    """

    uri: str
    artifacts: str
    home: Path

    @classmethod
    def at(cls, home: Path, *, uri: str | None = None, artifacts: str | None = None) -> "Store":
        """The store of a home: `mlflow.db` and `artifacts/` in it, unless told otherwise.

        Raises:
            ConfigurationError: the home's path has a character that ends or changes a database's URI.
        """
        home = home.expanduser().resolve()
        if uri is None and set("?#%") & set(str(home)):
            raise ConfigurationError(
                f"home = {home} holds `?`, `#` or `%`, with which MLflow would open another file: set DISCREET_HOME "
                "to a folder without them"
            )
        return cls(
            uri=uri or f"sqlite:///{home / 'mlflow.db'}",
            artifacts=artifacts or (home / "artifacts").as_uri(),
            home=home,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """What was logged.

    Attributes:
        run_id: MLflow's run.
        model_uri: of the logged model, `models:/m-…`; None without a model.
        metrics: what was stored, by name.
        undefined: names of the metrics that have no finite value, for which nothing was stored.
    """

    run_id: str
    model_uri: str | None
    metrics: dict[str, float]
    undefined: tuple[str, ...]


def log_run(
    *,
    store: Store,
    experiment: str,
    run_name: str,
    params: Mapping[str, object],
    metrics: Mapping[str, float | None],
    tags: Mapping[str, str],
    series: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    artifacts: Path | None = None,
    folder: "ModelFolder | None" = None,
    example: "pd.DataFrame | None" = None,
) -> LoggedRun:
    """Record one finished run.

    Args:
        store: where.
        experiment: its name, created if new; the model bears it too.
        run_name: what a reader sees in the list.
        params: what was set.
        metrics: what came out; those that are None, NaN or infinite are not stored but named in the tag
            `discreet.undefined` and counted in the metric `undefined`, since MLflow would show NaN, or
            infinity as 1.8e308.
        tags: what it is; a value above MLflow's 8,000 characters belongs in a file.
        series: by metric, its (step, value) pairs.
        artifacts: a folder whose files are copied.
        folder: the packed model.
        example: synthetic rows in the model's raw columns, stored with it and shown to everybody; never
            records.

    Raises:
        InternalError: MLflow refused, named by the kind of its error.
    """
    finite = {name: float(x) for name, x in metrics.items() if x is not None and _storable(float(x))}
    undefined = tuple(sorted(set(metrics) - set(finite)))
    finite["undefined"] = float(len(undefined))
    if undefined:
        tags = {**tags, "discreet.undefined": ", ".join(undefined)}
    prepare(store)
    try:
        with connected(store) as mlflow:
            place = _experiment(store, experiment)
            with mlflow.start_run(experiment_id=place, run_name=run_name) as run:
                model = None if folder is None else _log_model(mlflow, experiment, folder, example)
                mlflow.log_params({name: str(value) for name, value in params.items()})
                mlflow.log_metrics(finite, model_id=model.model_id if model else None)
                for name, points in (series or {}).items():
                    for number, value in points:
                        mlflow.log_metric(name, value, step=number)
                mlflow.set_tags(dict(tags))
                if artifacts is not None:
                    mlflow.log_artifacts(str(artifacts))
    except Exception as error:
        raise InternalError(f"MLflow at {_place(store)} refused the run: {_told(error)}") from None
    return LoggedRun(
        run_id=run.info.run_id,
        model_uri=model.model_uri if model else None,
        metrics=finite,
        undefined=undefined,
    )


def attach(*, store: Store, run_id: str, files: Mapping[str, bytes]) -> str:
    """Add files to a run that has ended, such as the card, which is written once the verdict is known.

    Args:
        store: where.
        run_id: MLflow's run.
        files: content by path within the run's artifacts.

    Returns:
        Where the run's artifacts lie: a folder of this machine by its path, anything else by its URI.

    Raises:
        InternalError: MLflow refused, named by the kind of its error.
    """
    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            connection = client(store)
            connection.log_artifacts(run_id, folder)
            place = str(connection.get_run(run_id).info.artifact_uri)
        except Exception as error:
            raise InternalError(f"MLflow at {_place(store)} refused files of run {run_id}: {_told(error)}") from None
    return readable(place)


def readable(uri: str) -> str:
    """The path that a `file:` URI of this machine names; any other URI as it is."""
    return url2pathname(urlsplit(uri).path) if uri.startswith("file:///") else uri


@contextmanager
def download(*, store: Store, uri: str) -> Iterator[str]:
    """A copy of an artifact, `models:/…` or `runs:/…`, that is gone afterwards: its path.

    Raises:
        InternalError: there is none, or MLflow refused, named by the kind of its error.
    """
    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        try:
            with connected(store) as mlflow:
                place = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder)
        except Exception as error:
            raise InternalError(f"MLflow at {_place(store)} does not give {uri}: {_told(error)}") from None
        yield place


def prepare(store: Store) -> None:
    """Create or migrate the store's tables, once, whoever comes first.

    Without the lock, of three processes that open a fresh database two die in MLflow's migrations.
    """
    import_mlflow()
    from mlflow.store.db import utils as tables

    # Two INFO lines on a first use, about tables.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    if "://" in store.uri and store.uri.split(":", 1)[0].startswith("http"):
        return  # a server migrates its own database
    with locked(store.home / "mlflow.lock"):
        engine = tables.create_sqlalchemy_engine_with_retry(store.uri)
        try:
            if not tables._all_tables_exist(engine):
                tables._initialize_tables(engine)
            elif tables._get_schema_version(engine) != tables._get_latest_schema_revision():
                tables._upgrade_db(engine)
        finally:
            engine.dispose()


def reach(store: Store, *, experiment: str) -> None:
    """Make sure that the store can be written before a run spends anything.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        prepare(store)
        number = _experiment(store, experiment)
        # its pages then open in the view for trained models, not for language models
        client(store).set_experiment_tag(number, "mlflow.experimentKind", "custom_model_development")
    except Exception as error:
        raise ConfigurationError(
            f"MLflow at {_place(store)} cannot be reached or written ({_told(error)}); nothing was spent. Start it, "
            "free it, or correct tracking_uri in the runtime's file"
        ) from None


def client(store: Store) -> "MlflowClient":
    """MLflow's client of a store that `prepare` has seen."""
    return import_mlflow().MlflowClient(tracking_uri=store.uri, registry_uri=store.uri)


@contextmanager
def connected(store: Store) -> Iterator[Any]:
    """MLflow's module, its process-wide URIs set to the store; afterwards they are what they were."""
    mlflow = import_mlflow()
    was_set, before = mlflow.tracking.is_tracking_uri_set(), mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store.uri)
    mlflow.set_registry_uri(store.uri)
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before if was_set else None)
        mlflow.set_registry_uri(None)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock among the processes and threads of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def import_mlflow() -> Any:
    """MLflow, with its telemetry off. Imported late: it takes more than a second."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"  # the word: MLflow does not take 1
    with warnings.catch_warnings():
        # SQLAlchemy 2.1 deprecates a loader strategy that MLflow 3.17's tables still use.
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")
        # MLflow 3.17 complains of its own type hints.
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow
        import mlflow.pyfunc
        import mlflow.store.model_registry.sqlalchemy_store
        import mlflow.store.tracking.sqlalchemy_store

    return mlflow


def _experiment(store: Store, name: str) -> str:
    """The experiment's id; created, or restored from MLflow's bin, if need be."""
    with locked(store.home / "mlflow.lock"):
        service = client(store)
        found = service.get_experiment_by_name(name)
        if found is None:
            return service.create_experiment(name, artifact_location=f"{store.artifacts}/{name}")
        if found.lifecycle_stage != "active":
            service.restore_experiment(found.experiment_id)
        return found.experiment_id


def _log_model(mlflow: Any, name: str, folder: "ModelFolder", example: "pd.DataFrame | None") -> Any:
    """Log a packed model as a pyfunc.

    Its columns are of type `any` in the signature: MLflow's `double` refuses text and int64 alike, its
    `string` refuses numbers, and records come as text from one source and typed from another. The encoding
    inside takes both; names are still enforced, and the kinds stand in the model's metadata.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    from tasks.registry.package import code_on_path, requirements

    kinds = {feature["name"]: feature["kind"] for feature in folder.features()}
    inputs = Schema([ColSpec(type=AnyType(), name=name) for name in kinds])
    with code_on_path(), _hushed():
        return mlflow.pyfunc.log_model(
            name=name,
            loader_module=f"{folder.package}.loader",
            data_path=str(folder.data),
            code_paths=[str(folder.code)],
            signature=ModelSignature(inputs=inputs, outputs=Schema([ColSpec("double", "probability")])),
            input_example=None if example is None else example[list(kinds)],
            pip_requirements=requirements(),
            metadata={
                "kinds": kinds,
                "weights_sha256": folder.weights_sha256,
                "folder_sha256": folder.digest,
            },
        )


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep from the reader what MLflow says of a good example: an INFO line, a warning of its own code."""
    logger = logging.getLogger("mlflow.pyfunc")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # MLflow 3.17 compares columns with a range, which pandas 3 deprecates.
            warnings.filterwarnings("ignore", message="Operation with range is deprecated")
            yield
    finally:
        logger.setLevel(level)


def _storable(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _LARGEST


def _place(store: Store) -> str:
    """The store's URI without a password."""
    scheme, _, rest = store.uri.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _told(error: Exception) -> str:
    """The kind of an error and its first line, which MLflow writes about names and settings, not rows."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
