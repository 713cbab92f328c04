"""Rows made ready and networks fitted: what the training, its twin without noise and the attack share."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from torch import nn

from tasks.data import encoding, labels, split
from tasks.dpsgd import loop, moments, networks
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.units import UnitRecords
from tasks.handover import Run
from tasks.planning import features_of, network_of

# features lie in [0, 1]; centring and dividing by a standard deviation of at least the floor widens that at most to
FEATURE_RANGE = (-1 / moments.STD_FLOOR, 1 / moments.STD_FLOOR)
NO_NOISE = 1e-9  # of the twin's moments: their release takes no zero


def encoder(run: Run) -> dict[str, Any]:
    """The preprocessing as the configuration says it, before any moments."""
    return encoding.build(features_of(run.config), missing=run.config.data.missing)


def capped(frame: pd.DataFrame, run: Run) -> pd.DataFrame:
    """At most `max_rows_per_person` rows of each person, drawn by key."""
    data, privacy = run.config.data, run.config.privacy
    if data.person is None:
        return frame
    keep = split.cap_rows(
        persons=split.persons_of(frame, column=data.person),
        key=run.key,
        max_rows=privacy.max_rows_per_person,
        ids=None if privacy.unit == "person" else split.row_ids(frame),
    )
    return frame.loc[keep].reset_index(drop=True)


def units_of(frame: pd.DataFrame, run: Run, spec: dict[str, Any], *, by_person: bool) -> UnitRecords:
    """Rows encoded and arranged by person, or each row by itself.

    Args:
        frame: rows after `capped`.
        run: the run.
        spec: the preprocessing.
        by_person: a person with all their rows is one unit.
    """
    data, privacy = run.config.data, run.config.privacy
    index = split.unit_index(
        persons=split.persons_of(frame, column=data.person) if by_person else None,
        max_rows=privacy.max_rows_per_person if by_person else 1,
        rows=len(frame),
    )
    return UnitRecords(
        features=torch.from_numpy(encoding.encode(frame, spec)),
        labels=torch.from_numpy(labels.binary(frame, **data.label.model_dump())),
        index=torch.from_numpy(index),
    )


def digest(rows: UnitRecords, *, key: bytes) -> str:
    """What is trained on, so that another step can tell whether it has the same: HMAC-SHA256 under the key, hex.

    Args:
        rows: units before any moments.
        key: the population's, without which a digest would confirm a guessed record.
    """
    found = hmac.new(key, b"training units", "sha256")
    for part in (rows.features, rows.labels, rows.index):
        found.update(f"{part.dtype} {tuple(part.shape)}".encode())
        found.update(part.contiguous().numpy().data)
    return found.hexdigest()


def untrained(run: Run, inputs: int) -> nn.Module:
    """The network at its start."""
    return networks.build(network_of(run.config), inputs, seed=run.config.training.seed)


def centred(
    plan: DpSgdPlan, spec: dict[str, Any], rows: UnitRecords, claim: Callable[[int], None], *, noise_multiplier: float
) -> tuple[dict[str, Any], UnitRecords]:
    """Centre and scale by released moments.

    Args:
        plan: the run's plan.
        spec: the preprocessing before it.
        rows: the training units, encoded by it.
        claim: called before the release.
        noise_multiplier: of the release.

    Returns:
        The preprocessing with the moments, and the units encoded by it.
    """
    numeric = np.zeros(rows.features.shape[1], dtype=np.bool_)
    numeric[encoding.numeric_columns(spec)] = True
    found = moments.release_moments(
        records=rows,
        numeric=numeric,
        bound=encoding.norm_bound(spec),
        noise_multiplier=noise_multiplier,
        units=plan.units,
        claim=claim,
    )
    spec = encoding.with_moments(spec, mean=found.mean.tolist(), std=found.std.tolist())
    features = (rows.features - torch.from_numpy(found.mean).float()) / torch.from_numpy(found.std).float()
    return spec, UnitRecords(features=features, labels=rows.labels, index=rows.index)


def fit(
    run: Run,
    plan: DpSgdPlan,
    rows: UnitRecords,
    claim: Callable[[int], None],
    progress: Callable[[int], None] | None = None,
) -> loop.TrainingResult:
    """Train the configured network by the configured recipe, and hold its noise against the plan that is accounted."""
    result = loop.train(
        plan=plan,
        network=untrained(run, rows.features.shape[1]),
        records=rows,
        **run.config.training.model_dump(exclude={"zero_last_layer", "seed"}),
        claim=claim,
        progress=progress,
        physical_batch=run.runtime.physical_batch,
        feature_range=FEATURE_RANGE,
    )
    result.noise.check(plan)  # once more here, where the plan is the one that is charged
    return result


def logits(run: Run, weights: Path, features: torch.Tensor) -> np.ndarray:
    """What a trained network says of encoded rows: float64 [rows].

    Args:
        run: the run.
        weights: safetensors file.
        features: float32 [rows, d], by the preprocessing it was trained with.
    """
    network = networks.build(network_of(run.config), features.shape[1])
    network.load_state_dict(load_file(weights))
    with torch.no_grad():
        return network.eval()(features).double().numpy()


def probabilities(run: Run, weights: Path, spec: Path, frame: pd.DataFrame) -> np.ndarray:
    """Probabilities of the event for raw rows: float64 [rows].

    Args:
        run: the run.
        weights: safetensors file.
        spec: JSON file of the preprocessing it was trained with.
        frame: raw rows.
    """
    features = torch.from_numpy(encoding.encode(frame, json.loads(spec.read_text())))
    return 1 / (1 + np.exp(-logits(run, weights, features)))
