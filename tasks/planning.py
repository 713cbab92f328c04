"""From a configuration to the nouns' scalars: the one place that reads `Config` for more than one verb."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pandas as pd

from configs.errors import DataError
from configs.evidence_schema import OTHER, number_pairs
from configs.schema import Config
from tasks.data import split
from tasks.dpsgd.plan import DpSgdPlan
from tasks.fairness import groups
from tasks.handover import Run, Trained
from tasks.privacy.accounting import accountant_version, person_epsilon
from tasks.privacy.events import SampledGaussian
from tasks.privacy.statement import DpStatement
from tasks.privacy.tradeoff import Ceiling, ceiling, person_ceiling
from tasks.registry.tracking import Store


def plan_of(config: Config) -> DpSgdPlan:
    """The DP-SGD plan of a configuration, σ calibrated by the PLD accountant. Reads no record.

    Raises:
        BudgetError: no noise fits the run's budget.
    """
    privacy = config.privacy
    return DpSgdPlan.calibrated(
        epsilon=privacy.run.epsilon,
        delta=privacy.run.delta,
        units=privacy.units,
        expected_batch=privacy.expected_batch,
        epochs=privacy.epochs,
        clipping=privacy.clipping.kind,
        clipping_norm=privacy.clipping.norm,
        unit=privacy.unit,
        rows_per_unit=privacy.max_rows_per_person if privacy.unit == "person" else 1,
        moments_noise_multiplier=privacy.moments.noise_multiplier if privacy.moments else None,
    )


def features_of(config: Config) -> dict[str, dict[str, Any]]:
    """Feature specifications as plain values."""
    return {name: feature.model_dump() for name, feature in config.data.features.items()}


def network_of(config: Config) -> dict[str, Any]:
    """Specification of the network, without the deployment threshold."""
    network = config.network.model_dump(mode="json")
    threshold = network.pop("threshold")
    assert threshold is not None
    return {**network, "zero_last_layer": config.training.zero_last_layer}


def groups_of(config: Config) -> dict[str, tuple[str, groups.Values | groups.Bands]]:
    """By attribute, the column that tells the group, and how. Empty where no group is declared."""
    books, found = config.data.code_books(), dict[str, tuple[str, groups.Values | groups.Bands]]()
    for name, group in config.fairness.groups.items() if config.fairness else ():
        if group.bands is None:
            found[name] = (group.column, groups.Values(values=group.values or books[group.column]))
        else:
            codes = group.column in books  # a category's codes may look like numbers
            bands = group.bands if codes else number_pairs(group.bands) or group.bands
            found[name] = (group.column, groups.Bands(bands=bands, other=group.other or OTHER))
    return found


def part_of(frame: pd.DataFrame, run: Run, part: int) -> pd.DataFrame:
    """The rows of one part of the split: `split.TRAIN`, `split.AUDIT` or `split.POPULATION`."""
    data = run.config.data
    place = split.assign(
        persons=split.persons_of(frame, column=data.person),
        key=run.key,
        audit=data.holdout.audit,
        population=data.holdout.population,
    )
    found = frame.loc[place == part].reset_index(drop=True)
    if found.empty:
        raise DataError(
            "a part of the split holds no record: give more records, or larger shares in data.holdout "
            f"(audit {data.holdout.audit:g}, population {data.holdout.population:g})"
        )
    return found


def split_fingerprint(config: Config, *, key: bytes) -> str:
    """Names the split without telling it: two models with the same fingerprint held out the same persons."""
    holdout = config.data.holdout
    text = f"{config.data.person}|{holdout.audit!r}|{holdout.population!r}"
    return hashlib.sha256(hashlib.sha256(b"split" + key).digest() + text.encode()).hexdigest()[:16]


def claim_of(
    config: Config, plan: DpSgdPlan, *, epsilon: float, person_epsilon: float | None, used: float, rehearsed: bool
) -> DpStatement:
    """The claim of one run, and of the population after it; of a rehearsal, what a first run could claim."""
    guarantee = config.privacy.guarantee
    return DpStatement(
        epsilon=epsilon,
        delta=plan.delta,
        unit=plan.unit,
        rows_per_unit=config.privacy.max_rows_per_person,
        steps=plan.steps,
        sampling_rate=plan.sampling_rate,
        noise_multiplier=plan.noise_multiplier,
        clipping=plan.clipping,
        clipping_norm=plan.clipping_norm,
        accountant_version=accountant_version(),
        ledger_epsilon=guarantee.epsilon,
        ledger_delta=guarantee.delta,
        ledger_used=used,
        rehearsed=rehearsed,
        moments_noise_multiplier=plan.moments_noise_multiplier,
        person_epsilon=person_epsilon,
    )


def person_epsilon_of(config: Config, plan: DpSgdPlan) -> float | None:
    """With `unit: row`, what a person with the most allowed rows gets; None where the unit says it all."""
    if config.privacy.unit == "person" or config.data.person is None:
        return None
    *others, training = plan.mechanisms
    assert isinstance(training, SampledGaussian)
    return person_epsilon(mechanism=training, others=others, rows=config.privacy.max_rows_per_person, delta=plan.delta)


def ceiling_of(config: Config, plan: DpSgdPlan) -> Ceiling:
    """The most that epsilon allows an attack on a person, or on a row where there are no persons."""
    if config.privacy.unit == "person" or config.data.person is None:
        return ceiling(mechanisms=plan.mechanisms)
    *others, training = plan.mechanisms
    assert isinstance(training, SampledGaussian)
    return person_ceiling(mechanism=training, others=others, rows=config.privacy.max_rows_per_person)


def store_of(run: Run) -> Store:
    """Where MLflow keeps its records."""
    return Store.at(run.home, uri=run.runtime.tracking_uri)


def parameters_of(config: Config, trained: Trained) -> dict[str, object]:
    """The recipe as flat parameters, and what the plan made of it.

    Of `data` only what names no column and holds no environment variable: the file itself is an artifact, with its
    references unresolved.
    """
    tree = config.model_dump(mode="json", include={"privacy", "network", "training", "gates"})
    flat = dict(_flattened(tree, ""))
    return {
        **flat,
        "data.source.kind": config.data.source.kind,
        "data.features": len(config.data.features),
        "data.holdout.audit": config.data.holdout.audit,
        "data.holdout.population": config.data.holdout.population,
        "plan.sampling_rate": trained.sampling_rate,
        "plan.noise_multiplier": trained.noise_multiplier,
        "plan.steps": trained.planned_steps,
        "plan.engine": trained.engine,
    }


def _flattened(value: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flattened(item, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None:
        yield prefix, value
