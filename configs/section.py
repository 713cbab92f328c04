"""What every section of a configuration shares: its base, and the types of its values."""

from __future__ import annotations

import re
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator


class Faults(ValueError):
    """What a check between keys found, one sentence a fault.

    A sentence that begins with a key within the section, such as `epsilon = 3 must be …`, is told as a fault of it.
    """

    def __init__(self, *sentences: str) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


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


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a repeated value, naming it."""
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
Values = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)]


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
