"""The label and the inputs of a model: public bounds and code books, never learnt from the records."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from configs.section import Finite, Name, Section, Values, distinct


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

    crossed_with: Annotated[tuple[Name, ...], AfterValidator(distinct)] = Field(
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
