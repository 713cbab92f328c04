"""Assess: what the hold-out says of the new network, and of the champion on the same rows."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file

from tasks.data import encoding, labels, split
from tasks.data.workfolder import read_frame
from tasks.dpsgd import networks
from tasks.handover import Assessed, Estimate, Records, Run, Trained
from tasks.planning import part_of, store_of
from tasks.policy import step
from tasks.progress import report
from tasks.registry import aliases
from tasks.registry.evidence import Missing
from tasks.statistics import roc


@step
def assess(run: Run, records: Records, trained: Trained) -> Assessed:
    data = run.config.data
    frame = part_of(read_frame(records.path), run, split.AUDIT)
    persons = split.persons_of(frame, column=data.person).to_numpy()
    outcome, scores = labels.binary(frame, **data.label.model_dump()), _scores(trained, frame)
    auc = _estimate(roc.auc(labels=outcome, scores=scores, clusters=persons))
    champion, drop = _against_champion(run, trained, frame, outcome, scores, persons)
    report(step="assess", note="hold-out scored")
    return Assessed(auc=auc, champion=champion, auc_drop=drop)


def _scores(trained: Trained, frame: pd.DataFrame) -> np.ndarray:
    """Probabilities of the new network, float64 [rows]."""
    spec = json.loads(trained.encoding.read_text())
    features = torch.from_numpy(encoding.encode(frame, spec))
    network = networks.build(json.loads(trained.network.read_text()), features.shape[1])
    network.load_state_dict(load_file(trained.weights))
    network.eval()
    with torch.no_grad():
        return torch.sigmoid(network(features)).double().numpy()


def _against_champion(
    run: Run,
    trained: Trained,
    frame: pd.DataFrame,
    outcome: np.ndarray,
    scores: np.ndarray,
    persons: np.ndarray,
) -> tuple[str | None, Estimate]:
    holder = aliases.champion(store=store_of(run), name=run.config.model)
    if holder is None:
        return None, Estimate(value=None, lower=None, upper=None, why="there is no champion yet")
    theirs = aliases.champion_scores(store=store_of(run), holder=holder, split=trained.split, records=frame)
    if isinstance(theirs, Missing):
        return holder.version, Estimate(value=None, lower=None, upper=None, why=theirs.why)
    return holder.version, _estimate(
        roc.auc_difference(labels=outcome, scores_a=theirs, scores_b=scores, clusters=persons)
    )


def _estimate(found: roc.AucEstimate | roc.AucDifference | roc.Undefined) -> Estimate:
    """To four decimals, for more would tell single rows; bounds outwards, so that rounding passes no gate."""
    if isinstance(found, roc.Undefined):
        return Estimate(value=None, lower=None, upper=None, why=found.reason)
    value = found.auc if isinstance(found, roc.AucEstimate) else found.difference
    lower, upper = math.floor(found.lower * 1e4) / 1e4, math.ceil(found.upper * 1e4) / 1e4
    return Estimate(value=round(value, 4), lower=lower, upper=upper)
