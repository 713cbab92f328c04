"""One model's configuration: what may be written in its YAML file, and what it means.

Every field carries the sentence that an error shows when it is wrong, and `configs/README.md` explains it at
length. Values arrive as the text of the YAML scalars (`configs.load`), so code books keep `01` and `No` as they
are written, and `1e-6` is a number wherever a number is due.

Checks between fields are field validators over what was valid before them, not model validators: a model
validator stays silent while any other field is wrong, and all faults of a file are to be reported at once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationInfo, field_validator

from configs.data_schema import Data
from configs.evidence_schema import (
    Attack,
    Fairness,
    Gates,
    are_apart,
    attribute_names,
    check_groups,
    group_names,
    number_pairs,
)
from configs.feature_schema import CategoryFeature, NumberFeature
from configs.privacy_schema import Privacy
from configs.section import Open, Positive, Section, Slug


class _Network(Section):
    prior_rate: Open = Field(description="public rate of the event, set by people; starts the output bias")
    threshold: Open = Field(description="probability from which the deployed model flags, set by people")


class LinearNetwork(_Network):
    """Logistic regression."""

    kind: Literal["linear"]


class MlpNetwork(_Network):
    """A multilayer perceptron with ReLU."""

    kind: Literal["mlp"]
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Field(min_length=1, max_length=16)] = Field(
        description="widths of the hidden layers"
    )

    @field_validator("hidden")
    @classmethod
    def _fits(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        weights = sum(inputs * outputs for inputs, outputs in pairwise(value))
        if weights > 100_000_000:
            raise ValueError(f"gives {weights:,} weights between hidden layers; at most 100,000,000")
        return value

    layer_norm: bool = Field(
        default=False, description="LayerNorm after each hidden layer (BatchNorm mixes people and is refused)"
    )


Network = Annotated[LinearNetwork | MlpNetwork, Field(discriminator="kind")]


class Training(Section):
    """The optimiser: post-processing of noisy gradients, so nothing here changes epsilon."""

    optimizer: Literal["sgd", "adam"] = Field(default="sgd", description="`sgd` or `adam`")
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        default=0.9, description="momentum of sgd; beta1 of adam"
    )
    learning_rate: Positive = Field(description="step size at the start")
    decay: Literal["linear", "none"] = Field(
        default="linear", description="`linear` brings the step size to 0 over the run"
    )
    averaging: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        default=0.95, description="decay of the running average of the weights; 0 for none"
    )
    zero_last_layer: bool = Field(default=True, description="start with an output of prior_rate for everybody")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="seed of the initial weights only; noise and sampling have none"
    )


class Schedule(Section):
    """When it retrains by itself."""

    cron: str = Field(description="five-field cron expression")
    timezone: str = Field(default="UTC", description="IANA time zone, such as Europe/Zurich")

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str) -> str:
        try:
            next(CronSim(value, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration):
            raise ValueError("must be a five-field cron expression that fires, such as `0 3 1 * *`") from None
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("must be an IANA time zone, such as Europe/Zurich") from None
        return value


class Config(Section):
    """One model: its records, its privacy, its network, its gates, its schedule."""

    model: Slug = Field(description="name of the registered model")
    data: Data = Field(description="where the records come from, and what is publicly known of them")
    privacy: Privacy = Field(description="the privacy unit, the budget, and what sets epsilon")
    network: Network = Field(description="the network")
    training: Training = Field(description="the optimiser")
    attack: Attack = Field(default_factory=Attack, description="the membership-inference attack that it faces")
    fairness: Fairness | None = Field(default=None, description="the groups that it is judged by")
    gates: Gates = Field(
        description="limits that a model must be shown to keep; at least one of min_auc, max_auc_drop, max_privacy_loss, min_group, max_gap"
    )
    schedule: Schedule | None = Field(default=None, description="when it retrains by itself")

    @field_validator("privacy")
    @classmethod
    def _unit_exists(cls, value: Privacy, info: ValidationInfo) -> Privacy:
        data = info.data.get("data")
        if data is None or data.person is not None:
            return value
        if value.unit == "person":
            raise ValueError(
                "unit = person needs data.person, the column that identifies a person; without one only `unit: row` exists"
            )
        if value.max_rows_per_person != 1:
            raise ValueError("max_rows_per_person needs data.person, the column that identifies a person")
        return value

    @field_validator("fairness")
    @classmethod
    def _groups_exist(cls, value: Fairness | None, info: ValidationInfo) -> Fairness | None:
        data = info.data.get("data")
        if value is None or data is None:
            return value
        for name, group in value.groups.items():
            feature = data.features.get(group.column)
            if group.column in {data.person, data.label.column}:
                raise ValueError(f"{name}.column = {group.column} must tell a group, not the person or the label")
            if group.bands is None:
                if group.values is None and not isinstance(feature, CategoryFeature):
                    raise ValueError(
                        f"{name} needs `values` or `bands`: {group.column} is no category feature with a public code book"
                    )
            elif isinstance(feature, NumberFeature) and number_pairs(group.bands) is None:
                raise ValueError(f"{name}.bands must be pairs of numbers [low, high): {group.column} is a number")
            elif isinstance(feature, CategoryFeature):
                listed = [text for texts in group.bands.values() for text in texts]
                twice = next((text for text in listed if listed.count(text) > 1), None)
                if twice is not None:
                    raise ValueError(f"{name}.bands puts `{twice}` into two bands")
                strange = [text for text in listed if text not in feature.values]
                if strange:
                    raise ValueError(f"{name}.bands names `{strange[0]}`, which the code book of {group.column} lacks")
            if group.bands is not None and not isinstance(feature, CategoryFeature) and not are_apart(group.bands):
                raise ValueError(f"{name}.bands must be pairs of a low and a higher number that do not overlap")
        check_groups(value, data.code_books())
        return value

    @field_validator("gates")
    @classmethod
    def _not_empty(cls, value: Gates, info: ValidationInfo) -> Gates:
        if not value.limits():
            raise ValueError("must set at least one limit: a policy without limits would promote anything")
        if "fairness" not in info.data or "data" not in info.data:
            return value
        fairness, data = info.data["fairness"], info.data["data"]
        named = {"max_privacy_loss", "min_group", "max_gap", "required", "min_count"} & set(value.policy())
        if named and fairness is None:
            raise ValueError(
                f"sets {', '.join(sorted(named))}, which need `fairness.groups`: there is no group to judge"
            )
        if value.required:
            known = [
                f"{attribute}/{name}"
                for attribute in attribute_names(fairness)
                for name in group_names(attribute, fairness, data.code_books())
            ]
            strange = [name for name in value.required if name not in known]
            if strange:
                raise ValueError(f"required names `{strange[0]}`, which is no group; known: {', '.join(known[:20])}")
        return value

    def columns(self) -> list[str]:
        """Every column that is read, each once: nothing else of a record leaves its source."""
        groups = self.fairness.groups.values() if self.fairness else ()
        return list(dict.fromkeys([*self.data.columns(), *(group.column for group in groups)]))
