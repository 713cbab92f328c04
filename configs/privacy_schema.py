"""The privacy unit, the budget, and what sets epsilon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from configs.section import Faults, Open, Positive, Section, Slug


class Guarantee(Section):
    """The cap over all runs on the population, for as long as the population exists."""

    epsilon: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = Field(
        description="cap on epsilon over all runs, owned by the privacy officer"
    )
    delta: Open = Field(description="delta at which the cap holds; far below 1/units")
    planned_runs: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="runs planned under the cap; the ledger is laid out for that many"
    )


class RunBudget(Section):
    """What one training may cost."""

    epsilon: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = Field(
        description="epsilon of one run, under PLD"
    )
    delta: Open = Field(description="delta of one run; at most the guarantee's")


class Clipping(Section):
    """How one unit's gradient is bounded."""

    kind: Literal["flat", "normalised"] = Field(
        default="flat", description="`flat` clips to the norm, `normalised` scales every gradient to it"
    )
    norm: Positive = Field(default=1.0, description="bound C on the L2 norm of one unit's gradient")


class Moments(Section):
    """Means and variances of the features as one charged Gaussian release."""

    noise_multiplier: Annotated[float, Field(ge=0.5, le=10_000, allow_inf_nan=False)] = Field(
        description="noise of the release, in units of its sensitivity"
    )


class Privacy(Section):
    """The privacy unit, the budget, and what sets epsilon."""

    population: Slug = Field(
        description="name of the people; one ledger for one population, never two names for the same people"
    )
    unit: Literal["person", "row"] = Field(description="what epsilon protects; fixed when the population is created")
    guarantee: Guarantee = Field(description="the cap over all runs on this population")
    units: Annotated[int, Field(ge=10, le=10**12)] = Field(
        description="public nominal number of training units, rounded; never the exact count"
    )
    run: RunBudget = Field(description="what one training may cost")
    max_rows_per_person: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="rows of one person that may train; the rest are left out by a keyed draw"
    )
    expected_batch: Annotated[int, Field(ge=1, le=10**9)] = Field(description="expected number of units in a batch")
    epochs: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        description="expected passes over the units; steps = round(epochs × units / expected_batch)"
    )
    clipping: Clipping = Field(default_factory=Clipping, description="how one unit's gradient is bounded")
    moments: Moments | None = Field(default=None, description="charged means and variances; leave out for none")

    @field_validator("units")
    @classmethod
    def _delta_small(cls, value: int, info: ValidationInfo) -> int:
        guarantee = info.data.get("guarantee")
        if guarantee is not None and guarantee.delta >= 1 / value:
            raise ValueError(
                f"needs guarantee.delta below 1/units = {1 / value:.3g} (it is {guarantee.delta:g}): a larger delta lets a whole record out"
            )
        return value

    @field_validator("run")
    @classmethod
    def _within_guarantee(cls, value: RunBudget, info: ValidationInfo) -> RunBudget:
        guarantee = info.data.get("guarantee")
        if guarantee is None:
            return value
        pairs = {"epsilon": (value.epsilon, guarantee.epsilon), "delta": (value.delta, guarantee.delta)}
        found = [
            f"{name} = {run:g} must be at most guarantee.{name} = {cap:g}"
            for name, (run, cap) in pairs.items()
            if run > cap
        ]
        if found:
            raise Faults(*found)
        return value

    @field_validator("expected_batch")
    @classmethod
    def _batch_fits(cls, value: int, info: ValidationInfo) -> int:
        if "units" in info.data and value > info.data["units"]:
            raise ValueError(f"must be at most units = {info.data['units']}")
        return value

    @field_validator("epochs")
    @classmethod
    def _a_step_at_least(cls, value: float, info: ValidationInfo) -> float:
        if {"units", "expected_batch"} <= info.data.keys():
            steps = round(value * info.data["units"] / info.data["expected_batch"])
            if not 1 <= steps <= 10_000_000:
                raise ValueError(
                    f"gives {steps} steps (epochs × units / expected_batch); must give between 1 and 10000000"
                )
        return value
