"""What the records must satisfy, as a Great Expectations suite built from the configuration's public
knowledge.

Frames are text, so expectations on numbers, chapters, rates and sizes look at columns derived here
(`derived`). A value outside a code book or a range is allowed up to a share, for the encoding makes it
`__other__` or clips it; a label in neither list, a missing person and a repeated id are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tasks.data.encoding import ICD9_VALUES, as_numbers, icd9_chapter

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

_VALUES_SHOWN = 8
_UNIT_SEPARATOR = "\x1f"  # no header holds it, so a derived column never hides one of the records


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation, and what it says in plain words.

    Attributes:
        name: kind of check, such as `range`.
        column: the records' column it is about, None for the whole.
        words: the expectation in one sentence; holds public knowledge only.
        type: Great Expectations' snake-case name of the expectation.
        kwargs: its arguments; a column in here may be a derived one.
    """

    name: str
    column: str | None
    words: str
    type: str
    kwargs: dict[str, Any]


def beside(column: str, what: str) -> str:
    """Name of a column derived from `column`."""
    return f"{column}{_UNIT_SEPARATOR}{what}"


def expectations(
    *,
    features: Mapping[str, Mapping[str, Any]],
    label: Mapping[str, Any],
    person: str | None,
    checks: Mapping[str, Any],
) -> list[Check]:
    """Every check of a configuration.

    Args:
        features: the configuration's features.
        label: `{column, positive, negative}`.
        person: the person column, or None.
        checks: `{max_missing: {default, <column>…}, max_outside, unique, min_rows, max_rows_of_one_person,
            label_rate: {min, max}, groups: {columns, min_rows} | None}`; each may be left out.
    """
    missing = checks.get("max_missing") or {}
    found = [*_row_checks(person, checks), *_label_checks(label, checks.get("label_rate") or {})]
    for name in checks.get("unique") or ():
        if name in missing and name not in features:
            found.append(_present(name, missing[name]))
    for name, feature in features.items():
        found.append(_present(name, missing.get(name, missing.get("default", 0.05))))
        found += _feature_checks(name, feature, checks.get("max_outside", 0.05))
    groups = checks.get("groups") or {"columns": (), "min_rows": 0}
    for name in groups["columns"]:
        found += [_group_check(name, str(value), groups["min_rows"]) for value in features[name]["values"]]
    return found


def derived(
    frame: pd.DataFrame,
    *,
    features: Mapping[str, Mapping[str, Any]],
    label: Mapping[str, Any],
    person: str | None,
    checks: Mapping[str, Any],
) -> pd.DataFrame:
    """The records' columns and those that the expectations look at beside them."""
    # As categories: Great Expectations copies the whole frame for every expectation, and codes are small.
    columns: dict[str, Any] = {name: frame[name].astype("category") for name in frame.columns}
    is_positive = frame[label["column"]].isin([str(value) for value in label["positive"]])
    columns[beside(label["column"], "positive")] = is_positive.to_numpy(dtype=np.float64)
    if person is not None:
        columns[beside(person, "rows")] = frame.groupby(person)[person].transform("size").astype("float64")
    for name, feature in features.items():
        if feature["kind"] == "number":
            values = as_numbers(frame[name])
            kinds = np.where(np.isnan(values), "text", "number").astype(object)
            kinds[frame[name].isna()] = None
            columns[beside(name, "value")] = values
            columns[beside(name, "parsed")] = pd.Categorical(kinds)
        elif feature["kind"] == "icd9":
            codes, texts = pd.factorize(frame[name])
            chapters = np.array([*(icd9_chapter(str(text)) for text in texts), None], dtype=object)
            columns[beside(name, "chapter")] = pd.Categorical(chapters[codes])
    for column in (checks.get("groups") or {"columns": ()})["columns"]:
        for value in map(str, features[column]["values"]):
            columns[beside(column, value)] = (frame[column] == value).fillna(False).to_numpy(dtype=np.float64)
    return pd.DataFrame(columns)


def build(name: str, checks: list[Check]) -> ExpectationSuite:
    """The checks as a Great Expectations suite; each expectation's `meta.position` is its place in
    `checks`."""
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    return gx.ExpectationSuite(
        name=name,
        expectations=[
            ExpectationConfiguration(
                type=check.type, kwargs=check.kwargs, meta={"position": position}, description=check.words
            )
            for position, check in enumerate(checks)
        ],
    )


def _row_checks(person: str | None, checks: Mapping[str, Any]) -> list[Check]:
    least, most = checks.get("min_rows", 1), checks.get("max_rows_of_one_person")
    found = [
        Check(
            name="rows",
            column=None,
            words=f"there are at least {least:,} rows",
            type="expect_table_row_count_to_be_between",
            kwargs={"min_value": least},
        )
    ]
    if person is not None:
        found.append(_present(person, 0.0, "every row says whose it is"))
    if person is not None and most is not None:
        words = f"nobody has more than {most:,} rows"
        found.append(_between(beside(person, "rows"), person, "rows of a person", words, 1, most, 0.0))
    for column in checks.get("unique") or ():
        found.append(
            Check(
                name="unique",
                column=column,
                words="no value stands in two rows",
                type="expect_column_values_to_be_unique",
                kwargs={"column": column},
            )
        )
    return found


def _label_checks(label: Mapping[str, Any], rate: Mapping[str, float]) -> list[Check]:
    column = label["column"]
    values = [str(value) for value in (*label["positive"], *label["negative"])]
    low, high = rate.get("min", 0.0), rate.get("max", 1.0)
    return [
        _present(column, 0.0, "every row has a label"),
        Check(
            name="label values",
            column=column,
            words=f"every label is one of {_listed(values)}",
            type="expect_column_values_to_be_in_set",
            kwargs={"column": column, "value_set": values},
        ),
        Check(
            name="label rate",
            column=column,
            words=f"positive labels are {_percent(low)} to {_percent(high)} of all, and both labels occur",
            type="expect_column_mean_to_be_between",
            kwargs={
                "column": beside(column, "positive"),
                "min_value": low,
                "max_value": high,
                "strict_min": low <= 0,
                "strict_max": high >= 1,
            },
        ),
    ]


def _feature_checks(name: str, feature: Mapping[str, Any], outside: float) -> list[Check]:
    allowed = f"at most {_percent(outside)} of the values"
    if feature["kind"] == "number":
        low, high = feature["min"], feature["max"]
        words = f"{allowed} lie outside {low:g} to {high:g} (they are clipped)"
        return [
            _in_set(
                beside(name, "parsed"),
                name,
                "numbers",
                f"{allowed} are no numbers (they are taken as missing)",
                ["number"],
                outside,
            ),
            _between(beside(name, "value"), name, "range", words, low, high, outside),
        ]
    if feature["kind"] == "icd9":
        words = f"{allowed} are no ICD-9-CM codes (they count as other)"
        return [_in_set(beside(name, "chapter"), name, "ICD-9 codes", words, list(ICD9_VALUES), outside)]
    values = [str(value) for value in feature["values"]]
    words = f"{allowed} are none of {_listed(values)} (they count as other)"
    return [_in_set(name, name, "code book", words, values, outside)]


def _group_check(column: str, value: str, least: int) -> Check:
    return Check(
        name="group size",
        column=column,
        words=f"the group {value} has at least {least:,} rows",
        type="expect_column_sum_to_be_between",
        kwargs={"column": beside(column, value), "min_value": least},
    )


def _present(column: str, share: float, words: str | None = None) -> Check:
    return Check(
        name="missing",
        column=column,
        words=words or f"at most {_percent(share)} of the cells are missing",
        type="expect_column_values_to_not_be_null",
        kwargs={"column": column, "mostly": round(1 - share, 9)},
    )


def _in_set(derived_column: str, column: str, name: str, words: str, values: list[str], share: float) -> Check:
    return Check(
        name=name,
        column=column,
        words=words,
        type="expect_column_values_to_be_in_set",
        kwargs={"column": derived_column, "value_set": values, "mostly": round(1 - share, 9)},
    )


def _between(derived_column: str, column: str, name: str, words: str, low: float, high: float, share: float) -> Check:
    return Check(
        name=name,
        column=column,
        words=words,
        type="expect_column_values_to_be_between",
        kwargs={"column": derived_column, "min_value": low, "max_value": high, "mostly": round(1 - share, 9)},
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - _VALUES_SHOWN} more" if len(values) > _VALUES_SHOWN else ""
    return ", ".join(values[:_VALUES_SHOWN]) + more
