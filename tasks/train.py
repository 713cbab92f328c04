"""Train: split, encode, reserve the budget, train by DP-SGD, and charge what ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from safetensors.torch import save_file

from configs.errors import DataError
from tasks import fitting
from tasks.data import labels, split
from tasks.data.workfolder import read_frame
from tasks.dpsgd import loop, preflight
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords
from tasks.handover import Records, Run, Trained
from tasks.planning import (
    claim_of,
    groups_of,
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
from tasks.registry.limits import check_policy


@step
def train(run: Run, records: Records) -> Trained:
    if run.runtime.threads is not None:
        torch.set_num_threads(run.runtime.threads)
    plan, spec = plan_of(run.config), fitting.encoder(run)
    path, rows = _path(plan), _rows(run, records, spec)
    members = fitting.digest(rows, key=run.key)
    _ready(run, records)
    inputs = rows.features.shape[1]
    network = fitting.untrained(run, inputs)
    preflight.check(plan=plan, network=network, features=inputs, feature_range=fitting.FEATURE_RANGE)
    with Ledger.open(run.home / "ledger.db") as ledger:
        with _budget(run, plan, ledger) as reservation:
            claim = partial(_claim, ledger, reservation)
            if plan.moments_noise_multiplier is not None:
                noise = plan.moments_noise_multiplier
                spec, rows = fitting.centred(plan, spec, rows, claim, noise_multiplier=noise)
            result = fitting.fit(run, plan, rows, claim, _bar(plan, path))
            ran = plan.claims_before_training + result.executed_steps
            ledger.commit(reservation_id=reservation.id, token=reservation.token, executed=ran)
        return _trained(run, plan, spec, members, path, result, ledger)


def _ready(run: Run, records: Records) -> None:
    """Everything after training that could fail for a reason that is known already, before anything is spent."""
    tracking.reach(store_of(run), experiment=run.config.model)
    check_policy(run.config.gates.policy())
    groups_of(run.config)
    held_out = part_of(read_frame(records.path), run, split.AUDIT)
    outcome = labels.binary(held_out, **run.config.data.label.model_dump())
    if outcome.min() == outcome.max():
        raise DataError(
            "the audit hold-out holds labels of one class only, so that no model could be judged on it; give more "
            "records, or a larger data.holdout.audit. Nothing was spent"
        )


def _claim(ledger: Ledger, reservation: Reservation, upto: int) -> None:
    ledger.claim(reservation_id=reservation.id, token=reservation.token, upto=upto)


def _rows(run: Run, records: Records, spec: dict[str, Any]) -> UnitRecords:
    """The training units: split before anything is computed, rows a person capped, features encoded."""
    frame = fitting.capped(part_of(read_frame(records.path), run, split.TRAIN), run)
    rows = fitting.units_of(frame, run, spec, by_person=run.config.privacy.unit == "person")
    report(step="train", note=f"{about(len(rows))} {run.config.privacy.unit}s", done=0)
    return rows


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
        delta=privacy.run.delta,
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
        report(step="train", note="steps", done=done, total=plan.steps, epsilon=epsilon)

    return progress


def _trained(
    run: Run,
    plan: DpSgdPlan,
    spec: dict[str, Any],
    members: str,
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
    claim = claim_of(
        run.config,
        plan,
        epsilon=epsilon,
        person_epsilon=person,
        used=balance.used_epsilon,
        rehearsed=run.rehearsal,
    )
    report(
        step="train",
        note=f"{result.executed_steps} steps by {result.engine}, ε = {epsilon:.4f} at δ = {plan.delta:g}",
    )
    return Trained(
        weights=weights,
        encoding=encoded,
        network=network,
        plan=plan,
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
        members=members,
        epsilon_path=path,
        claim=claim.plain(),
        statement=claim.exact(),
        tags=tuple(sorted(claim.tags().items())),
    )
