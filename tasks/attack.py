"""Attack: membership inference against the new network, beside what epsilon allows.

What is made on the way, the twin without noise, the control and every member's score, stays in the work folder and dies
with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from tasks import attack_panel, fitting
from tasks.data import split
from tasks.data.workfolder import read_frame
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords
from tasks.handover import Attacked, Records, Run, Trained
from tasks.membership import verdict
from tasks.membership.blind import blind
from tasks.membership.control import control
from tasks.membership.metrics import evaluate, strongest
from tasks.membership.results import AttackResult
from tasks.membership.scores import class_losses, gap_accuracy, row_losses, unit_scores
from tasks.planning import ceiling_of, part_of
from tasks.policy import step
from tasks.privacy.tradeoff import Ceiling
from tasks.progress import report
from tasks.registry import package
from tasks.statistics.roc import Undefined

_SEED = 0  # of draws that may be known: blocks, halves, who is in the control, its labels
_OTHER_MEMBERS = (
    "The people and rows that were trained on are not those that the split puts into training, and that the attack and "
    "the recipe without noise take for members: somebody was left out, added or changed on the way into training."
)


@step
def attack(run: Run, records: Records, trained: Trained) -> Attacked:
    people, spec = _people(run, records), json.loads(trained.encoding.read_text())
    target = _Victim.of(people, run, trained.weights, spec)
    rows = _training_units(people, run)
    twin, twin_weights, twin_encoding = _twin(people, rows, run, trained.plan)
    caught, ceiling = _control(target, run), ceiling_of(run.config, trained.plan)
    evidence = verdict.AttackEvidence(
        target=target.attacked(),
        ceiling=_allowed(ceiling),
        control=caught,
        blind=blind(members=target.summary("members"), non_members=target.summary("others"), seed=_SEED),
        gap_accuracy=gap_accuracy(train_accuracy=target.accuracy("members"), test_accuracy=target.accuracy("others")),
        max_advantage=run.config.attack.max_advantage,
        # that the weights are those that are registered is seen in `promote`, where both are known
        vetoes=() if fitting.digest(rows, key=run.key) == trained.members else (_OTHER_MEMBERS,),
    )
    judged = verdict.judge(evidence)
    report(step="attack", note=judged.verdict)
    panel = attack_panel.panel(
        unit="row" if run.config.data.person is None else "person",
        judged=judged,
        evidence=evidence,
        twin=twin.attacked(),
        ceiling=ceiling,
    )
    return Attacked(
        panel=panel,
        metrics=tuple(attack_panel.metrics(panel).items()),
        max_advantage=run.config.attack.max_advantage,
        weights_sha256=package.weights_digest(load_file(trained.weights)),
        twin=twin_weights,
        twin_encoding=twin_encoding,
    )


def _people(run: Run, records: Records) -> dict[str, pd.DataFrame]:
    """Rows of members, of others, and of reference points that are in no model, capped alike."""
    frame, holdout = read_frame(records.path), run.config.data.holdout
    parts = {"members": split.TRAIN, "others": split.AUDIT} | (
        {"points": split.POPULATION} if holdout.population else {}
    )
    return {name: fitting.capped(part_of(frame, run, part), run) for name, part in parts.items()}


def _training_units(people: dict[str, pd.DataFrame], run: Run) -> UnitRecords:
    """What the split puts into training, as training takes it before any moments."""
    by_person = run.config.privacy.unit == "person"
    return fitting.units_of(people["members"], run, fitting.encoder(run), by_person=by_person)


@dataclass(frozen=True)
class _Victim:
    """A model, and everybody's rows as it takes them, by the unit that is attacked.

    Attributes:
        units: members, others and, where there are any, points: the unit is the person where there are persons.
        logits: of each part, float64 [rows].
    """

    units: dict[str, UnitRecords]
    logits: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, people: dict[str, pd.DataFrame], run: Run, weights: Path, spec: dict[str, Any]) -> _Victim:
        by_person = run.config.data.person is not None
        units = {name: fitting.units_of(frame, run, spec, by_person=by_person) for name, frame in people.items()}
        return cls(units, {name: fitting.logits(run, weights, part.features) for name, part in units.items()})

    @cached_property
    def owners(self) -> dict[str, NDArray[np.int64]]:
        """The unit of each row, int64 [rows], numbered as in the index."""
        found = {}
        for name, part in self.units.items():
            unit, place = np.nonzero(part.index.numpy() >= 0)
            found[name] = np.empty(len(part.features), dtype=np.int64)
            found[name][part.index.numpy()[unit, place]] = unit
        return found

    def attacked(self) -> AttackResult | Undefined:
        """The strongest of the attacks by loss, and by loss within each class."""
        labels = {name: part.labels.double().numpy() for name, part in self.units.items()}
        plain = {name: row_losses(logits=self.logits[name], labels=labels[name]) for name in labels}
        losses: dict[str, dict[str, NDArray[np.float64]]] = {"loss": plain}
        if "points" in labels:
            scaled = {
                name: class_losses(
                    losses=plain[name],
                    labels=labels[name],
                    reference_losses=plain["points"],
                    reference_labels=labels["points"],
                )
                for name in ("members", "others")
            }
            if any(isinstance(found, Undefined) for found in scaled.values()):
                return next(found for found in scaled.values() if isinstance(found, Undefined))
            losses["loss within the class"] = scaled  # pyright: ignore[reportArgumentType] - none is Undefined
        tries = {
            name: evaluate(
                members=unit_scores(losses=found["members"], units=self.owners["members"]),
                non_members=unit_scores(losses=found["others"], units=self.owners["others"]),
                seed=_SEED,
                attacks=len(losses),
            )
            for name, found in losses.items()
        }
        return strongest(results=tries)

    def accuracy(self, side: str) -> float:
        """Share of rows that the model gets right at one half, each unit weighing the same."""
        right = (self.logits[side] >= 0) == (self.units[side].labels.numpy() > 0.5)
        return float(self._mean(side, right.astype(np.float64)[:, None]).mean())

    def summary(self, side: str) -> NDArray[np.float64]:
        """Each unit's mean features, mean label and number of rows: what can be known without a model."""
        part = self.units[side]
        columns = np.column_stack([part.features.double().numpy(), part.labels.double().numpy()])
        return np.column_stack([self._mean(side, columns), part.counts.double().numpy()])

    def _mean(self, side: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.zeros((len(self.units[side]), values.shape[1]))
        np.add.at(sums, self.owners[side], values)
        return sums / self.units[side].counts.double().numpy()[:, None]


def _twin(people: dict[str, pd.DataFrame], rows: UnitRecords, run: Run, plan: DpSgdPlan) -> tuple[_Victim, Path, Path]:
    """The same recipe with clipping and no noise at all, neither in the steps nor in the moments."""
    report(step="attack", note="the same recipe without noise")
    spec = fitting.encoder(run)
    if plan.moments_noise_multiplier is not None:
        spec, rows = fitting.centred(plan, spec, rows, _no_claim, noise_multiplier=fitting.NO_NOISE)
    result = fitting.fit(run, plan.without_noise(), rows, _no_claim)
    weights, encoded = run.work / "twin.safetensors", run.work / "twin-encoding.json"
    save_file(result.state_dict, weights)
    encoded.write_text(json.dumps(spec), encoding="utf-8")
    return _Victim.of(people, run, weights, spec), weights, encoded


def _no_claim(upto: int) -> None:
    """Nothing of the twin is released, so nothing is charged."""


def _control(target: _Victim, run: Run) -> AttackResult | Undefined:
    """The overfitted network that the attack must catch."""
    report(step="attack", note="the control")
    settings, generator = run.config.attack.control, torch.Generator().manual_seed(_SEED)
    sides = []
    for side in ("members", "others"):
        units = target.units[side]
        drawn = torch.randperm(len(units), generator=generator)[: settings.units]
        batch = units.gather(drawn)
        sides.append((batch.features, batch.mask))
    return control(members=sides[0], non_members=sides[1], epochs=settings.epochs, seed=_SEED, labels=settings.labels)


def _allowed(ceiling: Ceiling) -> verdict.Ceiling:
    return verdict.Ceiling(
        auc=ceiling.auc,
        accuracy=ceiling.accuracy,
        advantage=ceiling.advantage,
        tpr_at_1pct=ceiling.true_positive_rate(0.01),
        tpr_at_01pct=ceiling.true_positive_rate(0.001),
    )
