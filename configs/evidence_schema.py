"""What a model must show before it is promoted: the attack on it, its groups, and the limits of both."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from configs.section import Count, Name, Section, Slug, Values, distinct

UNKNOWN = "unknown"  # missing; a value of that name means the same
OTHER = "other"  # in no band
UNLISTED = "other, not listed"  # a value outside a code book that has an `other` itself
_JOIN = " × "
MOST_GROUPS = 250
LONGEST_NAME = 200
Limit = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Control(Section):
    """The overfitted network that the attack must catch before its verdict on the model counts."""

    units: Annotated[int, Field(ge=500, le=1_000_000)] = Field(
        default=5000, description="units that the control is trained on"
    )
    epochs: Annotated[int, Field(ge=1, le=10_000)] = Field(default=40, description="passes over them, without privacy")
    labels: Literal["random"] = Field(
        default="random", description="`random`: whatever the task, such labels can only be memorised"
    )


class Attack(Section):
    """The membership-inference attack that every model faces."""

    level: Annotated[int, Field(ge=0, le=0)] = Field(
        default=0, description="0: by the loss alone; levels with shadow models are not built yet"
    )
    max_advantage: Limit = Field(
        default=0.05,
        description="the upper 95 % bound of the attack's true positive rate less its false positive rate must stay within it",
    )
    control: Control = Field(default_factory=Control, description="the overfitted network that must be caught")


class Group(Section):
    """How one column makes groups: by the values of a public book, or by bands. Missing is `unknown`, never `other`."""

    column: Name = Field(description="column that tells the group; it need not be a feature")
    values: Values | None = Field(
        default=None, description="public values, each a group; the feature's own code book when left out"
    )
    bands: Annotated[dict[Name, Values], Field(min_length=1)] | None = Field(
        default=None, description="bands by name: a list of values, or of two numbers, low (in) and high (out)"
    )
    other: Name | None = Field(default=None, description="name of what lies in no band; `other` when left out")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"column": value} if isinstance(value, str) else value

    @field_validator("bands")
    @classmethod
    def _one_way(cls, value: dict[str, tuple[str, ...]] | None, info: ValidationInfo) -> object:
        if value is None:
            return value
        if info.data.get("values") is not None:
            raise ValueError("and `values` exclude each other: a group is a value or a band of values")
        if UNKNOWN in value:
            raise ValueError(f"must not name a band `{UNKNOWN}`, which stands for missing values")
        if number_pairs(value) is not None:  # checked with the columns, for a category's codes may look like numbers
            return value
        listed = [text for texts in value.values() for text in texts]
        repeated = sorted({text for text in listed if listed.count(text) > 1})
        if repeated:
            raise ValueError(f"must not share values ({', '.join(repeated[:8])} is in two bands)")
        return value

    @field_validator("other")
    @classmethod
    def _distinct(cls, value: str | None, info: ValidationInfo) -> str | None:
        bands = info.data.get("bands")
        if value is not None and info.data.get("bands", value) is None:
            raise ValueError("needs `bands`: it names what lies in none of them")
        if bands is not None and (value or OTHER) in {UNKNOWN, *bands}:
            raise ValueError(
                f"must differ from the bands' names and from `{UNKNOWN}`, which stands for missing values; it is "
                f"`{OTHER}` when left out"
            )
        return value


def number_pairs(bands: dict[str, tuple[str, ...]]) -> dict[str, tuple[float, float]] | None:
    """The bands as half-open intervals [low, high), if every one is a pair of numbers; else None."""
    pairs: dict[str, tuple[float, float]] = {}
    for name, texts in bands.items():
        try:
            low, high = map(float, texts)
        except ValueError:
            return None
        pairs[name] = (low, high)
    return pairs


def are_apart(bands: dict[str, tuple[str, ...]]) -> bool:
    """Whether bands that are pairs of numbers have each a low below its high, and none overlaps another."""
    edges = sorted((number_pairs(bands) or {}).values())
    return all(low < high for low, high in edges) and all(a[1] <= b[0] for a, b in pairwise(edges))


class Fairness(Section):
    """The groups that a model is judged by."""

    groups: Annotated[dict[Slug, Group], Field(min_length=1)] = Field(
        description="attributes by name, each a column, or how a column makes groups"
    )
    intersections: tuple[Annotated[tuple[str, ...], Field(min_length=2, max_length=3)], ...] = Field(
        default=(), description="attributes that are looked at together, each a list of two or three names"
    )
    primary: Literal["auc"] = Field(default="auc", description="the metric that the gates judge")

    @field_validator("intersections")
    @classmethod
    def _known(cls, value: tuple[tuple[str, ...], ...], info: ValidationInfo) -> tuple[tuple[str, ...], ...]:
        groups = info.data.get("groups")
        for names in value:
            unknown = [name for name in names if groups is not None and name not in groups]
            if unknown:
                raise ValueError(f"names `{unknown[0]}`, which is no group ({', '.join(groups or ())})")
            if len(set(names)) != len(names):
                raise ValueError(f"must not name an attribute twice ({', '.join(names)})")
        if len({frozenset(names) for names in value}) != len(value):
            raise ValueError("must not hold the same attributes twice")
        return value


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
    max_privacy_loss: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] | None = Field(
        default=None,
        description="what noise may cost any gated group's AUC against the same recipe without noise, with simultaneous 95 % bounds",
    )
    min_group: Annotated[float, Field(ge=0.5, le=0.999, allow_inf_nan=False)] | None = Field(
        default=None, description="the lower bound of every gated group's AUC must reach it, simultaneously at 95 %"
    )
    max_gap: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] | None = Field(
        default=None, description="largest difference in AUC between gated groups of one attribute"
    )
    min_count: Annotated[Count, Field(ge=11)] | None = Field(
        default=None, description="positives and negatives that a group needs to be gated; 100 when left out"
    )
    required: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = Field(
        default=None, description="groups, as `attribute/group`, without which the outcome is insufficient"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must be a number: a limit of null would gate nothing; leave the key out instead")
        return value

    def policy(self) -> dict[str, object]:
        """What is set, by the gate's names."""
        return {name: value for name, value in self.model_dump(mode="json").items() if value is not None}

    def limits(self) -> dict[str, object]:
        """The limits among them: without one, a policy gates nothing."""
        return {name: value for name, value in self.policy().items() if name not in {"min_count", "required"}}


def group_names(attribute: str, fairness: Fairness, books: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Every group that an attribute, or an intersection written `a × b`, can have.

    Args:
        attribute: its name.
        fairness: the section.
        books: code books of the category features, by column.
    """
    parts = [_of_one(fairness.groups[name], books) for name in attribute.split(_JOIN)]
    rest = UNLISTED if any(name.casefold() == OTHER for part in parts for name in part if name) else OTHER
    names = [rest if name is None else name for name in parts[0]]
    for part in parts[1:]:
        names = [f"{left}{_JOIN}{rest if right is None else right}" for left in names for right in part]
    return tuple(names)


def check_groups(fairness: Fairness, books: dict[str, tuple[str, ...]]) -> None:
    """Refuse what could not be judged: all groups are judged at once, and their evidence is one entry of the ledger.

    Raises:
        ValueError: there are more than `MOST_GROUPS`, one's name is longer than `LONGEST_NAME`, or has a meaning here.
    """
    sizes = {
        attribute: prod(len(_of_one(fairness.groups[name], books)) for name in attribute.split(_JOIN))
        for attribute in attribute_names(fairness)
    }
    total, largest = sum(sizes.values()), max(sizes, key=lambda attribute: sizes[attribute])
    if total > MOST_GROUPS:
        raise ValueError(
            f"makes {total} groups, {sizes[largest]} of them of {largest}, and at most {MOST_GROUPS} can be judged at "
            "once: merge values into bands, or leave out an intersection"
        )
    for attribute, group in fairness.groups.items():
        for name in _of_one(group, books):
            if name is not None and (_JOIN.strip() in name or name in {"__other__", UNLISTED}):
                raise ValueError(
                    f"makes a group of {attribute} named `{name[:40]}`: `×`, `__other__` and `{UNLISTED}` have a "
                    "meaning of their own; give such values a band with a name"
                )
    for attribute in sizes:
        for name in group_names(attribute, fairness, books):
            if len(name) > LONGEST_NAME:
                raise ValueError(
                    f"makes a group of {attribute} whose name has {len(name)} characters, at most {LONGEST_NAME}: "
                    f"name bands shorter ({name[:40]} …)"
                )


def attribute_names(fairness: Fairness) -> tuple[str, ...]:
    """The attributes, then the intersections."""
    return (*fairness.groups, *(_JOIN.join(names) for names in fairness.intersections))


def _of_one(group: Group, books: dict[str, tuple[str, ...]]) -> tuple[str | None, ...]:
    """The groups of one attribute; None for a value that no code book lists."""
    if group.bands is not None:
        return (*group.bands, group.other or OTHER, UNKNOWN)
    return tuple(dict.fromkeys((*(group.values or books[group.column]), None, UNKNOWN)))
