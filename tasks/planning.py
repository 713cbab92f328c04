"""From a configuration to the nouns' scalars: the one place that reads `Config` for more than one verb."""

from __future__ import annotations

import hashlib
from typing import Any

from configs.schema import Config
from tasks.dpsgd.plan import DpSgdPlan


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


def split_fingerprint(config: Config, *, key: bytes) -> str:
    """Names the split without telling it: two models with the same fingerprint held out the same persons."""
    holdout = config.data.holdout
    text = f"{config.data.person}|{holdout.audit!r}|{holdout.population!r}"
    return hashlib.sha256(hashlib.sha256(b"split" + key).digest() + text.encode()).hexdigest()[:16]
