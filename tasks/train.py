"""Train: split, encode, reserve the budget, train by DP-SGD, and charge what ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from safetensors.torch import save_file

from tasks.data import encoding, labels, split
from tasks.data.workfolder import read_frame
from tasks.dpsgd import loop, moments, networks
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords
from tasks.handover import Records, Run, Trained
from tasks.planning import claim_of, features_of, network_of, plan_of, split_fingerprint
from tasks.policy import step
from tasks.privacy.accounting import epsilon_path
from tasks.privacy.ledger import Ledger, Reservation
from tasks.progress import report


@step
def train(run: Run, records: Records) -> Trained:
    if run.runtime.threads is not None:
        torch.set_num_threads(run.runtime.threads)
    plan, spec = plan_of(run.config), encoding.build(features_of(run.config), missing=list(run.config.data.missing))
    report(step="train", note="checking the noise path", done=0, total=plan.steps)
    rows = _rows(run, records, spec)
    loop.check(plan=plan, network=_network(run, spec), feature_range=_RANGE)
    with Ledger.open(run.home / "ledger.db") as ledger, _budget(run, plan, ledger) as reservation:

        def claim(upto: int) -> None:
            ledger.claim(reservation_id=reservation.id, token=reservation.token, upto=upto)

        spec, rows = _centred(run, plan, spec, rows, claim)
        result = loop.train(
            plan=plan,
            network=_network(run, spec),
            records=rows,
            **run.config.training.model_dump(exclude={"zero_last_layer", "seed"}),
            claim=claim,
            progress=_bar(plan),
            physical_batch=run.runtime.physical_batch,
            feature_range=_RANGE,
        )
        ledger.commit(
            reservation_id=reservation.id,
            token=reservation.token,
            executed=plan.claims_before_training + result.executed_steps,
        )
        return _trained(run, plan, spec, result, ledger)


_RANGE = (-1 / moments.STD_FLOOR, 1 / moments.STD_FLOOR)  # [0, 1] features, centred and divided by a std of at least the floor


def _rows(run: Run, records: Records, spec: dict[str, object]) -> UnitRecords:
    """The training units: split before anything is computed, rows a person capped, features encoded."""
    data, privacy = run.config.data, run.config.privacy
    frame = read_frame(records.path)
    persons = split.row_ids(frame) if data.person is None else frame[data.person]
    place = split.assign(persons=persons, key=run.key, audit=data.holdout.audit, population=data.holdout.population)
    kept = np.flatnonzero(place == split.TRAIN)
    if data.person is not None:
        kept = kept[split.cap_rows(persons=persons.iloc[kept], key=run.key, max_rows=privacy.max_rows_per_person)]
    frame = frame.iloc[kept].reset_index(drop=True)
    outcome = labels.binary(frame, **data.label.model_dump())
    by_person = privacy.unit == "person"
    index = split.unit_index(
        persons=frame[data.person] if by_person else None,
        max_rows=privacy.max_rows_per_person if by_person else 1,
        rows=len(frame),
    )
    report(step="train", note=f"{about(len(index))} {privacy.unit}s", done=0)
    return UnitRecords(
        features=torch.from_numpy(encoding.encode(frame, spec)),
        labels=torch.from_numpy(outcome),
        index=torch.from_numpy(index),
    )


def _network(run: Run, spec: dict[str, object]) -> torch.nn.Module:
    return networks.build(
        network_of(run.config), len(encoding.feature_names(spec)), seed=run.config.training.seed
    )


def _centred(
    run: Run, plan: DpSgdPlan, spec: dict[str, object], rows: UnitRecords, claim: Callable[[int], None]
) -> tuple[dict[str, object], UnitRecords]:
    """Centre and scale by the charged moments, if the configuration asks for them."""
    if plan.moments_noise_multiplier is None:
        return spec, rows
    numeric = np.zeros(rows.features.shape[1], dtype=np.bool_)
    numeric[encoding.numeric_columns(spec)] = True
    found = moments.release_moments(
        records=rows,
        numeric=numeric,
        bound=encoding.norm_bound(spec),
        noise_multiplier=plan.moments_noise_multiplier,
        units=plan.units,
        claim=claim,
    )
    spec = encoding.with_moments(spec, mean=found.mean, std=found.std)
    features = (rows.features - torch.from_numpy(found.mean).float()) / torch.from_numpy(found.std).float()
    return spec, UnitRecords(features=features, labels=rows.labels, index=rows.index)


@contextmanager
def _budget(run: Run, plan: DpSgdPlan, ledger: Ledger) -> Iterator[Reservation]:
    """Reserve the worst case; whatever goes wrong inside, what was claimed is charged."""
    privacy = run.config.privacy
    ledger.create_population(
        name=privacy.population,
        unit=privacy.unit,
        epsilon=privacy.guarantee.epsilon,
        delta=privacy.guarantee.delta,
        planned_runs=privacy.guarantee.planned_runs,
        planned=plan.mechanisms,
        actor=run.actor,
    )
    reservation = ledger.reserve(
        population=privacy.population,
        mechanisms=plan.mechanisms,
        idempotency_key=run.name,
        actor=run.actor,
        reason=run.reason,
        lease_seconds=run.runtime.lease_seconds,
    )
    try:
        yield reservation
    except BaseException as error:
        ledger.abandon(reservation_id=reservation.id, token=reservation.token, reason=type(error).__name__)
        raise


def _bar(plan: DpSgdPlan) -> Callable[[int], None]:
    """Progress with epsilon so far: at each tenth the PLD figure, between tenths the next one's, which bounds it."""
    marks = sorted({round(plan.steps * part / 10) for part in range(1, 11)} - {0})
    reached = epsilon_path(mechanisms=plan.mechanisms, delta=plan.delta, steps=marks)

    def progress(done: int) -> None:
        epsilon = next((value for mark, value in zip(marks, reached, strict=True) if mark >= done), reached[-1])
        report(step="train", note="training", done=done, total=plan.steps, epsilon=epsilon)

    return progress
