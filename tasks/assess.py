"""Assess: what the hold-out says of the new network, by group, beside what could be had without privacy."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks import decisions, fitting
from tasks.data import labels, split
from tasks.data.plain import plain
from tasks.data.workfolder import read_frame
from tasks.fairness import groups
from tasks.fairness.report import group_report
from tasks.fairness.suppression import PublishedReport, published
from tasks.fairness.trees import boosted_trees
from tasks.handover import Assessed, Attacked, Estimate, Records, Run, Trained
from tasks.planning import features_of, groups_of, part_of, store_of
from tasks.policy import step
from tasks.progress import report
from tasks.registry import aliases
from tasks.registry.evidence import Missing
from tasks.registry.limits import check_policy
from tasks.statistics import roc

Scores = NDArray[np.float64]


@step
def assess(run: Run, records: Records, trained: Trained, attacked: Attacked) -> Assessed:
    data, everybody = run.config.data, read_frame(records.path)
    frame = part_of(everybody, run, split.AUDIT)
    persons = split.persons_of(frame, column=data.person).to_numpy()
    outcome = labels.binary(frame, **data.label.model_dump())
    ours = fitting.probabilities(run, trained.weights, trained.encoding, frame)
    scores: dict[str, Scores | None] = {
        "model": ours,
        "without_noise": fitting.probabilities(run, attacked.twin, attacked.twin_encoding, frame),
        "trees": _trees(run, part_of(everybody, run, split.TRAIN), frame),
    }
    version, theirs = _champion(run, trained, frame)
    scores["champion"] = theirs if isinstance(theirs, np.ndarray) else None
    report(step="assess", note="hold-out scored")
    return Assessed(
        auc=_auc(outcome, ours, persons),
        champion=version,
        auc_drop=_drop(outcome, theirs, ours, persons),
        others=tuple((name, _auc(outcome, found, persons)) for name, found in scores.items() if name != "model"),
        fairness=_by_group(run, frame, outcome, scores, persons),
        min_count=_min_count(run),
    )


def _trees(run: Run, frame: pd.DataFrame, held_out: pd.DataFrame) -> Scores:
    """Boosted trees on every row of the training persons: nobody is capped where nobody is protected."""
    features, missing = features_of(run.config), run.config.data.missing
    columns, codes = plain(frame, features, missing=missing)
    return boosted_trees(
        features=columns,
        labels=labels.binary(frame, **run.config.data.label.model_dump()),
        test_features=plain(held_out, features, missing=missing)[0],
        codes=codes,
        seed=0,
    )


def _champion(run: Run, trained: Trained, frame: pd.DataFrame) -> tuple[str | None, Scores | Missing]:
    """The champion's version, and its scores of the same rows, or why there are none."""
    holder = aliases.champion(store=store_of(run), name=run.config.model)
    if holder is None:
        return None, Missing(why="there is no champion yet")
    found = aliases.champion_scores(
        store=store_of(run),
        holder=holder,
        files_sha256=decisions.judged_files(run.home, model=run.config.model, version=holder.version),
        split=trained.split,
        records=frame,
    )
    return holder.version, found


def _by_group(
    run: Run, frame: pd.DataFrame, outcome: np.ndarray, scores: dict[str, Scores | None], persons: np.ndarray
) -> PublishedReport | None:
    specs, fairness = groups_of(run.config), run.config.fairness
    if fairness is None:
        return None
    missing = run.config.data.missing
    names = {name: groups.declared(spec) for name, (_, spec) in specs.items()}
    found = {
        name: groups.assign(column=pd.Series(frame[column]), spec=spec, missing=missing)
        for name, (column, spec) in specs.items()
    }
    for parts in fairness.intersections:
        joined = groups.TIMES.join(parts)
        found[joined] = groups.intersect(*(found[name] for name in parts))
        names[joined] = groups.intersect_names(*(names[name] for name in parts))
    return published(
        group_report(
            labels=outcome,
            groups=found,
            declared=names,
            persons=persons,
            scores=scores,
            threshold=run.config.network.threshold,
            min_count=_min_count(run),
        )
    )


def _min_count(run: Run) -> int:
    return check_policy(run.config.gates.policy()).min_count


def _auc(outcome: np.ndarray, scores: Scores | None, persons: np.ndarray) -> Estimate:
    if scores is None:
        return Estimate(value=None, lower=None, upper=None, why="there is no such model")
    return _estimate(roc.auc(labels=outcome, scores=scores, clusters=persons))


def _drop(outcome: np.ndarray, theirs: Scores | Missing, ours: Scores, persons: np.ndarray) -> Estimate:
    if isinstance(theirs, Missing):
        return Estimate(value=None, lower=None, upper=None, why=theirs.why)
    return _estimate(roc.auc_difference(labels=outcome, scores_a=theirs, scores_b=ours, clusters=persons))


def _estimate(found: roc.AucEstimate | roc.AucDifference | roc.Undefined) -> Estimate:
    """To four decimals, for more would tell single rows; bounds outwards, so that rounding passes no gate."""
    if isinstance(found, roc.Undefined):
        return Estimate(value=None, lower=None, upper=None, why=found.reason)
    value = found.auc if isinstance(found, roc.AucEstimate) else found.difference
    lower, upper = math.floor(found.lower * 1e4) / 1e4, math.ceil(found.upper * 1e4) / 1e4
    return Estimate(value=round(value, 4), lower=lower, upper=upper)
