"""Train: split, encode, reserve the budget, train by DP-SGD, and charge what ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from safetensors.torch import save_file

from configs.errors import DataError
from tasks.data import encoding, labels, split
from tasks.data.workfolder import read_frame
from tasks.dpsgd import loop, moments, networks, preflight
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords
from tasks.handover import Records, Run, Trained
from tasks.planning import (
    claim_of,
    features_of,
    network_of,
    part_of,
    person_epsilon_of,
    plan_of,
    split_fingerprint,
    store_of,
)
from tasks.policy import step
from tasks.privacy.accounting import epsilon_path, pld_epsilon, rdp_epsilon
from tasks.privacy.ledger import Ledger, Reservation
from tasks.progress import about, report
from tasks.registry import tracking

# features lie in [0, 1]; centring and dividing by a standard deviation of at least the floor widens that at most to
_RANGE = (-1 / moments.STD_FLOOR, 1 / moments.STD_FLOOR)


@step
def train(run: Run, records: Records) -> Trained:
    if run.runtime.threads is not None:
        torch.set_num_threads(run.runtime.threads)
    plan, spec = plan_of(run.config), encoding.build(features_of(run.config), missing=run.config.data.missing)
    path, rows, network = _path(plan), _rows(run, records, spec), _network(run, spec)
    _ready(run, records)
    preflight.check(plan=plan, network=network, features=rows.features.shape[1], feature_range=_RANGE)
    with Ledger.open(run.home / "ledger.db") as ledger:
        with _budget(run, plan, ledger) as reservation:
            claim = partial(_claim, ledger, reservation)
            spec, rows = _centred(plan, spec, rows, claim)
            result = loop.train(
                plan=plan,
                network=network,
                records=rows,
                **run.config.training.model_dump(exclude={"zero_last_layer", "seed"}),
                claim=claim,
                progress=_bar(plan, path),
                physical_batch=run.runtime.physical_batch,
                feature_range=_RANGE,
            )
            ran = plan.claims_before_training + result.executed_steps
            ledger.commit(reservation_id=reservation.id, token=reservation.token, executed=ran)
        return _trained(run, plan, spec, path, result, ledger)


def _ready(run: Run, records: Records) -> None:
    """Everything after training that could fail for a reason that is known already, before anything is spent."""
    tracking.reach(store_of(run), experiment=run.config.model)
    held_out = part_of(read_frame(records.path), run, split.AUDIT)
    outcome = labels.binary(held_out, **run.config.data.label.model_dump())
    if outcome.min() == outcome.max():
        raise DataError(
            "the audit hold-out holds labels of one class only, so that no model could be judged on it; give more "
            "records, or a larger data.holdout.audit. Nothing was spent"
        )


def _claim(ledger: Ledger, reservation: Reservation, upto: int) -> None:
    ledger.claim(reservation_id=reservation.id, token=reservation.token, upto=upto)


def _rows(run: Run, records: Records, spec: dict[str, object]) -> UnitRecords:
    """The training units: split before anything is computed, rows a person capped, features encoded."""
    data, privacy = run.config.data, run.config.privacy
    frame = part_of(read_frame(records.path), run, split.TRAIN)
    by_person = privacy.unit == "person"
    if data.person is not None:
        capped = split.cap_rows(
            persons=split.persons_of(frame, column=data.person),
            key=run.key,
            max_rows=privacy.max_rows_per_person,
            ids=None if by_person else split.row_ids(frame),
        )
        frame = frame.loc[capped].reset_index(drop=True)
    outcome = labels.binary(frame, **data.label.model_dump())
    index = split.unit_index(
        persons=split.persons_of(frame, column=data.person) if by_person else None,
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
    return networks.build(network_of(run.config), len(encoding.feature_names(spec)), seed=run.config.training.seed)


def _centred(
    plan: DpSgdPlan, spec: dict[str, object], rows: UnitRecords, claim: Callable[[int], None]
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
    spec = encoding.with_moments(spec, mean=found.mean.tolist(), std=found.std.tolist())
    features = (rows.features - torch.from_numpy(found.mean).float()) / torch.from_numpy(found.std).float()
    return spec, UnitRecords(features=features, labels=rows.labels, index=rows.index)


@contextmanager
def _budget(run: Run, plan: DpSgdPlan, ledger: Ledger) -> Iterator[Reservation]:
    """Reserve the worst case; whatever goes wrong inside, what was claimed is charged."""
    privacy = run.config.privacy
    ledger.ensure_sound()
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


def _path(plan: DpSgdPlan) -> tuple[tuple[int, float], ...]:
    """(steps, epsilon under PLD) at each tenth of the run."""
    marks = sorted({max(1, round(plan.steps * part / 10)) for part in range(1, 11)})
    return tuple(zip(marks, epsilon_path(mechanisms=plan.mechanisms, delta=plan.delta, steps=marks), strict=True))


def _bar(plan: DpSgdPlan, path: tuple[tuple[int, float], ...]) -> Callable[[int], None]:
    """Progress with epsilon so far, bounded between the marks of the path by the next one's."""

    def progress(done: int) -> None:
        epsilon = next((epsilon for mark, epsilon in path if mark >= done), path[-1][1])
        report(step="train", note="training", done=done, total=plan.steps, epsilon=epsilon)

    return progress


def _trained(
    run: Run,
    plan: DpSgdPlan,
    spec: dict[str, object],
    path: tuple[tuple[int, float], ...],
    result: loop.TrainingResult,
    ledger: Ledger,
) -> Trained:
    """Write what was trained into the work folder, and say what it cost."""
    names = ("weights.safetensors", "encoding.json", "network.json")
    weights, encoded, network = (run.work / name for name in names)
    save_file(result.state_dict, weights)
    encoded.write_text(json.dumps(spec), encoding="utf-8")
    network.write_text(json.dumps(network_of(run.config)), encoding="utf-8")
    epsilon, person = (
        pld_epsilon(mechanisms=plan.mechanisms, delta=plan.delta),
        person_epsilon_of(run.config, plan),
    )
    balance = ledger.population(run.config.privacy.population)
    assert balance is not None
    claim = claim_of(run.config, plan, epsilon=epsilon, person_epsilon=person, used=balance.used_epsilon)
    report(
        step="train",
        note=f"{result.executed_steps} steps by {result.engine}, ε = {epsilon:.4f} at δ = {plan.delta:g}",
    )
    return Trained(
        weights=weights,
        encoding=encoded,
        network=network,
        engine=result.engine,
        sampling_rate=plan.sampling_rate,
        noise_multiplier=plan.noise_multiplier,
        planned_steps=plan.steps,
        claimed_steps=result.claimed,
        executed_steps=result.executed_steps,
        self_test_passed=result.self_test.sensitivity <= plan.clipping_norm * (1 + 1e-4),
        epsilon=epsilon,
        rdp_epsilon=rdp_epsilon(mechanisms=plan.mechanisms, delta=plan.delta),
        delta=plan.delta,
        person_epsilon=person,
        ledger_epsilon_used=balance.used_epsilon,
        ledger_epsilon_cap=balance.epsilon,
        ledger_head=ledger.head(),
        split=split_fingerprint(run.config, key=run.key),
        epsilon_path=path,
        claim=claim.plain(),
        statement=claim.exact(),
        tags=tuple(sorted(claim.tags().items())),
    )
