"""One model's configuration: what may be written in its YAML file, and what it means.

Every field carries the sentence that an error shows when it is wrong, and `configs/README.md` explains it at
length. Values arrive as the text of the YAML scalars (`configs.load`), so code books keep `01` and `No` as they
are written, and `1e-6` is a number wherever a number is due.

Checks between fields are field validators over what was valid before them, not model validators: a model
validator stays silent while any other field is wrong, and all faults of a file are to be reported at once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Open = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**12)]


def _slug(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", value):
        raise ValueError(
            "must be letters, digits, `-` and `_`, at most 100: it names files, metrics and a registered model"
        )
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        repeated = sorted({value for value in values if values.count(value) > 1})
        raise ValueError(f"must not repeat a value ({', '.join(repeated)} appears more than once)")
    return values


Slug = Annotated[str, AfterValidator(_slug)]


def _answered(value: str) -> str:
    if value == "?":
        raise ValueError("is an open question: name the column")
    return value


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_answered)]
Values = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_distinct)]


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, defaults checked like values."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _note(cls, value: object, info: ValidationInfo) -> object:
        """Tell the loader which section reads which mapping, so that its errors can name the known keys."""
        context: object = info.context
        if isinstance(context, dict) and isinstance(value, dict):
            cast("dict[int, type[Section]]", context)[id(cast("object", value))] = cls
        return cast("object", value)


class CsvSource(Section):
    """A CSV file, alone or as a member of a zip archive."""

    kind: Literal["csv"]
    path: str = Field(min_length=1, description="path of the CSV file or of the zip archive that holds it")
    member: str | None = Field(default=None, description="name of the file inside the zip archive")
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        default=",", description="the one character between cells"
    )
    encoding: str = Field(default="utf-8", description="character encoding of the file")


class ParquetSource(Section):
    """A parquet file."""

    kind: Literal["parquet"]
    path: str = Field(min_length=1, description="path of the parquet file")


class SqlSource(Section):
    """A query against a database."""

    kind: Literal["sql"]
    url: str = Field(
        min_length=1, repr=False, description="SQLAlchemy URL; keep its password in an environment reference"
    )
    query: str = Field(min_length=1, description="the SELECT statement that yields the records")


class PythonSource(Section):
    """A function that returns a pandas DataFrame."""

    kind: Literal["python"]
    function: str = Field(pattern=r"^[\w.]+:\w+$", description="importable function as `module:function`")
    arguments: dict[str, str] = Field(default_factory=dict, description="keyword arguments, as text")


class SimulatedSource(Section):
    """A simulated hospital's discharges: nobody's records."""

    kind: Literal["simulated"]
    rows: Annotated[int, Field(ge=1, le=100_000_000)] = Field(default=200_000, description="number of discharges")
    seed: Annotated[int, Field(ge=0)] = Field(default=20260101, description="seed of the simulation")


Source = Annotated[CsvSource | ParquetSource | SqlSource | PythonSource | SimulatedSource, Field(discriminator="kind")]


class Exclusion(Section):
    """Rows to leave out before anything else, by public rule."""

    column: Name = Field(description="column whose value decides")
    values: Values = Field(description="a row with one of these values is left out")


class Label(Section):
    """The binary outcome."""

    column: Name = Field(description="column that holds the outcome")
    positive: Values = Field(description="values that count as the event")
    negative: Values = Field(description="values that count as no event")

    @field_validator("negative")
    @classmethod
    def _disjoint(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        both = sorted(set(value) & set(info.data.get("positive", ())))
        if both:
            raise ValueError(f"must share no value with label.positive ({', '.join(both)} is in both)")
        return value


class CrossedFeature(Section):
    """What every feature may have: products with other features, by public choice."""

    crossed_with: Annotated[tuple[Name, ...], AfterValidator(_distinct)] = Field(
        default=(),
        description="other features whose columns are multiplied with this one's, so that a linear network sees both together",
    )


class NumberFeature(CrossedFeature):
    """A number with public bounds; a value outside is clipped, a missing one becomes `fill` and an indicator."""

    kind: Literal["number"]
    min: Finite = Field(description="smallest value that can occur, from the form or the device, not from the records")
    max: Finite = Field(description="largest value that can occur, from the form or the device, not from the records")
    scale: Literal["linear", "log"] = Field(default="linear", description="`log` for counts and skewed amounts")
    fill: Finite | None = Field(
        default=None, description="public value that stands for a missing one; `min` when left out"
    )
    knots: tuple[Finite, ...] = Field(
        default=(),
        max_length=50,
        description="public thresholds, rising, each a 0/1 column `value >= knot`: a curve for a linear network",
    )

    @field_validator("max")
    @classmethod
    def _ordered(cls, value: float, info: ValidationInfo) -> float:
        if "min" in info.data and value <= info.data["min"]:
            raise ValueError(f"must be greater than min = {info.data['min']:g}")
        return value

    @field_validator("fill")
    @classmethod
    def _inside(cls, value: float | None, info: ValidationInfo) -> float | None:
        low, high = info.data.get("min"), info.data.get("max")
        if value is None:
            return low
        if low is not None and high is not None and not low <= value <= high:
            raise ValueError(f"must lie between min = {low:g} and max = {high:g}")
        return value

    @field_validator("knots")
    @classmethod
    def _rising(cls, value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        low, high = info.data.get("min"), info.data.get("max")
        if any(a >= b for a, b in pairwise(value)):
            raise ValueError("must rise from knot to knot")
        if low is not None and high is not None and not all(low < knot <= high for knot in value):
            raise ValueError(f"must lie above min = {low:g} and at most at max = {high:g}")
        return value


class CategoryFeature(CrossedFeature):
    """A category with a public code book; a value outside it becomes `__other__`, a missing one `__missing__`."""

    kind: Literal["category"]
    values: Values = Field(description="the public code book, compared as text")
    reference: str | None = Field(
        default=None, description="the value with no column of its own; the first when left out"
    )

    @field_validator("reference")
    @classmethod
    def _in_book(cls, value: str | None, info: ValidationInfo) -> str | None:
        values = info.data.get("values")
        if values is None:
            return value
        if value is None:
            return values[0]
        if value not in values:
            raise ValueError(f"must be one of values ({', '.join(values[:8])})")
        return value


class Icd9Feature(CrossedFeature):
    """An ICD-9-CM diagnosis code, reduced to its chapter by a public table."""

    kind: Literal["icd9"]


Feature = Annotated[NumberFeature | CategoryFeature | Icd9Feature, Field(discriminator="kind")]


class Holdout(Section):
    """Shares of the persons that never train, drawn at random by key before anything is computed."""

    audit: Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)] = Field(
        default=0.20, description="share of persons for the test set, who are also the attack's non-members"
    )
    population: Annotated[float, Field(ge=0, le=0.3, allow_inf_nan=False)] = Field(
        default=0.05, description="share of persons kept as the attack's reference points, in no model"
    )


class LabelRate(Section):
    """Bounds on the share of positive labels."""

    min: Share = Field(default=0.0, description="smallest plausible share of positive labels")
    max: Share = Field(default=1.0, description="largest plausible share of positive labels")

    @field_validator("max")
    @classmethod
    def _ordered(cls, value: float, info: ValidationInfo) -> float:
        if "min" in info.data and value < info.data["min"]:
            raise ValueError(f"must be at least min = {info.data['min']:g}")
        return value


class GroupRows(Section):
    """A floor under the size of every group of some columns."""

    columns: Values = Field(description="category features whose every value is a group")
    min_rows: Count = Field(description="fewest rows a group may have")


class Checks(Section):
    """What the records must satisfy before anything is spent; becomes a Great Expectations suite."""

    max_missing: dict[str, Share] = Field(
        default_factory=lambda: {"default": 0.05},
        description="largest share of missing values, by column; `default` for the rest",
    )
    max_outside: Share = Field(default=0.05, description="largest share of values outside a code book or public bounds")
    unique: tuple[str, ...] = Field(default=(), description="columns whose values identify a row")
    min_rows: Count = Field(default=1000, description="fewest rows")
    max_rows_of_one_person: Count = Field(
        default=1000, description="most rows of one person before the records look wrong"
    )
    label_rate: LabelRate = Field(default_factory=LabelRate, description="bounds on the share of positive labels")
    groups: GroupRows | None = Field(default=None, description="a floor under group sizes")


class Data(Section):
    """Where the records come from, and what is publicly known of them."""

    source: Source = Field(description="where the records are read from")
    missing: tuple[str, ...] = Field(default=("",), description="cells that mean `missing`")
    exclude: tuple[Exclusion, ...] = Field(default=(), description="rows left out by public rule")
    person: Name | None = Field(
        default=None, description="column that identifies a person; rows of one person stay together"
    )
    label: Label = Field(description="the binary outcome")
    features: Annotated[dict[Name, Feature], Field(min_length=1)] = Field(
        description="inputs, each with public bounds or a public code book"
    )
    holdout: Holdout = Field(default_factory=Holdout, description="shares of the persons that never train")
    checks: Checks = Field(default_factory=Checks, description="what the records must satisfy")

    @field_validator("features")
    @classmethod
    def _no_leak(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        label = info.data.get("label")
        taken = {info.data.get("person"): "data.person", label.column if label else None: "data.label.column"}
        for name in value:
            if name in taken:
                raise ValueError(f"must not hold `{name}`: it is {taken[name]}")
        pairs = set[frozenset[str]]()
        for name, feature in value.items():
            for partner in feature.crossed_with:
                pair = frozenset((name, partner))
                if partner not in value or partner == name:
                    raise ValueError(f"{name}.crossed_with names `{partner}`, which is no other feature")
                if pair in pairs:
                    raise ValueError(f"{name}.crossed_with names `{partner}`, which is crossed with it already")
                pairs.add(pair)
        return value

    @field_validator("checks")
    @classmethod
    def _known_columns(cls, value: Checks, info: ValidationInfo) -> Checks:
        features, label = info.data.get("features"), info.data.get("label")
        if features is None or label is None:
            return value
        known = {*features, label.column, info.data.get("person"), *value.unique, "default"}
        for name in value.max_missing:
            if name not in known:
                raise ValueError(f"max_missing names `{name}`, which is no feature, label or person")
        for name in value.groups.columns if value.groups else ():
            if name not in features or features[name].kind != "category":
                raise ValueError(f"groups.columns names `{name}`, which is no category feature")
        return value

    def columns(self) -> list[str]:
        """Every column that is read, each once: nothing else of a record leaves its source."""
        wanted = [
            self.person,
            self.label.column,
            *self.features,
            *(rule.column for rule in self.exclude),
            *self.checks.unique,
        ]
        return list(dict.fromkeys(name for name in wanted if name is not None))


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
        if guarantee is not None and value.epsilon > guarantee.epsilon:
            raise ValueError(f"epsilon = {value.epsilon:g} must be at most guarantee.epsilon = {guarantee.epsilon:g}")
        if guarantee is not None and value.delta > guarantee.delta:
            raise ValueError(f"delta = {value.delta:g} must be at most guarantee.delta = {guarantee.delta:g}")
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


class Gates(Section):
    """Limits that a model must be shown to keep before it is promoted; at least one."""

    model_config = ConfigDict(validate_default=False)

    min_auc: Annotated[float, Field(ge=0.5, le=0.999, allow_inf_nan=False)] | None = Field(
        default=None, description="the lower 95 % bound of the test AUC must reach it"
    )
    max_auc_drop: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] | None = Field(
        default=None,
        description="the upper 95 % bound of the loss in AUC against the champion, on the same rows, must stay within it",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must be a number: a limit of null would gate nothing; leave the key out instead")
        return value

    def policy(self) -> dict[str, float]:
        """The limits that are set."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


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
    gates: Gates = Field(description="limits that a model must be shown to keep; at least one of min_auc, max_auc_drop")
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

    @field_validator("gates")
    @classmethod
    def _not_empty(cls, value: Gates) -> Gates:
        if not value.policy():
            raise ValueError("must set at least one limit: a policy without limits would promote anything")
        return value
