"""Rows made from the configuration's schema alone, for rehearsals, self-tests and input examples. No record
is read.

Numbers are uniform between their bounds, categories uniform over the code book, ICD-9 codes uniform over
one code a chapter, and a fixed share of cells is missing. Labels follow the public prior and lean on the
first features, so that a rehearsal has something to learn; nothing else about them means anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

MISSING_SHARE = 0.02
_CODES = (
    "008.45",
    "162.9",
    "250.00",
    "276.1",
    "285.1",
    "296.30",
    "332.0",
    "366.16",
    "428.0",
    "486",
    "560.9",
    "599.0",
)
_CODES = (*_CODES, "650", "682.6", "715.96", "786.50", "820.21", "V57.89", "E888.9")
_LEAN = 2.0


def rows(
    *,
    features: Mapping[str, Mapping[str, Any]],
    label: Mapping[str, Any],
    person: str | None,
    max_rows: int,
    n: int,
    seed: int,
    prior_rate: float = 0.5,
    unique: Sequence[str] = (),
    extra: Mapping[str, Sequence[str]] | None = None,
    max_missing: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Draw `n` rows of text that fit a schema.

    Args:
        features: the configuration's features.
        label: `{column, positive, negative}`.
        person: the person column, or None; persons have 1 to `max_rows` rows.
        max_rows: most rows of one person.
        n: number of rows.
        seed: of numpy's PCG64 generator.
        prior_rate: expected share of positive labels, in (0, 1).
        unique: further columns with a distinct text in every row, such as an encounter id.
        extra: further columns, each with the values to draw from (a group that is no feature, say).
        max_missing: largest allowed share of missing cells, by column, `default` for the rest; half of it
            is used where that is less than `MISSING_SHARE`.

    Returns:
        DataFrame [n, columns] of text, NA where missing.
    """
    random = np.random.default_rng(seed)
    allowed = max_missing or {}
    columns: dict[str, pd.Series] = {}
    lean = np.zeros(n)
    for name, feature in features.items():
        cells, position = _cells(random, feature, n)
        lean += (position - 0.5) / (1 + len(columns))
        columns[name] = pd.Series(cells, dtype="str").mask(
            random.random(n) < min(MISSING_SHARE, 0.5 * allowed.get(name, allowed.get("default", 1.0)))
        )
    for name, values in (extra or {}).items():
        columns.setdefault(name, _drawn(random, [str(value) for value in values], n))
    if person is not None:
        columns[person] = _persons(random, n, max_rows)
    for name in unique:
        columns[name] = pd.Series([f"synthetic-{number}" for number in range(n)], dtype="str")
    columns[label["column"]] = _labels(random, label, _LEAN * lean, prior_rate)
    return pd.DataFrame(columns)


def _cells(random: np.random.Generator, feature: Mapping[str, Any], n: int) -> tuple[list[str], np.ndarray]:
    """Texts [n] and their places in the range or code book, in [0, 1]."""
    if feature["kind"] == "number":
        low, high = float(feature["min"]), float(feature["max"])
        place = random.random(n)
        if low.is_integer() and high.is_integer() and high - low >= 2:
            numbers = np.floor(low + place * (high - low + 1))
            return [str(int(number)) for number in np.minimum(numbers, high)], place
        return [repr(float(number)) for number in low + place * (high - low)], place
    values = list(_CODES) if feature["kind"] == "icd9" else [str(value) for value in feature["values"]]
    position = random.integers(0, len(values), n)
    return [values[at] for at in position], position / max(len(values) - 1, 1)


def _drawn(random: np.random.Generator, values: Sequence[str], n: int) -> pd.Series:
    return pd.Series([values[at] for at in random.integers(0, len(values), n)], dtype="str")


def _persons(random: np.random.Generator, n: int, max_rows: int) -> pd.Series:
    sizes = random.integers(1, max_rows + 1, n)
    numbers = np.repeat(np.arange(n), sizes)[:n]
    return pd.Series([f"synthetic-{number}" for number in random.permutation(numbers)], dtype="str")


def _labels(random: np.random.Generator, label: Mapping[str, Any], lean: np.ndarray, prior_rate: float) -> pd.Series:
    # The base is chosen so that the mean probability is the prior, whatever the lean.
    base = brentq(lambda b: float(expit(b + lean).mean()) - prior_rate, -50.0, 50.0)
    is_positive = random.random(len(lean)) < expit(base + lean)
    positive, negative = (_drawn(random, [str(v) for v in label[side]], len(lean)) for side in ("positive", "negative"))
    return positive.where(is_positive, negative)
