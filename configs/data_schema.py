"""Where the records come from, what is publicly known of them, and what they must satisfy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from configs.feature_schema import Exclusion, Feature, Label
from configs.section import Count, Faults, Name, Section, Share, Values


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
        found = [f"must not hold `{name}`: it is {taken[name]}" for name in value if name in taken]
        pairs = set[frozenset[str]]()
        for name, feature in value.items():
            for partner in feature.crossed_with:
                pair = frozenset((name, partner))
                if partner not in value or partner == name:
                    found.append(f"{name}.crossed_with names `{partner}`, which is no other feature")
                elif pair in pairs:
                    found.append(f"{name}.crossed_with names `{partner}`, which is crossed with it already")
                pairs.add(pair)
        if found:
            raise Faults(*found)
        return value

    @field_validator("checks")
    @classmethod
    def _known_columns(cls, value: Checks, info: ValidationInfo) -> Checks:
        features, label = info.data.get("features"), info.data.get("label")
        if features is None or label is None:
            return value
        known = {*features, label.column, info.data.get("person"), *value.unique, "default"}
        found = [
            f"max_missing names `{name}`, which is no feature, label or person"
            for name in value.max_missing
            if name not in known
        ]
        found += [
            f"groups.columns names `{name}`, which is no category feature"
            for name in (value.groups.columns if value.groups else ())
            if name not in features or features[name].kind != "category"
        ]
        if found:
            raise Faults(*found)
        return value

    def code_books(self) -> dict[str, tuple[str, ...]]:
        """Public values of every category feature, by column."""
        return {name: feature.values for name, feature in self.features.items() if feature.kind == "category"}

    def columns(self) -> list[str]:
        """Every column that training and its checks read, each once."""
        wanted = [
            self.person,
            self.label.column,
            *self.features,
            *(rule.column for rule in self.exclude),
            *self.checks.unique,
        ]
        return list(dict.fromkeys(name for name in wanted if name is not None))
