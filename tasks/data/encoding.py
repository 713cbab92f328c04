"""From records to a matrix, with public bounds and code books only: nothing is learnt from the records.

Stands alone (numpy and pandas): the same file is shipped inside the registered model, so that a score is
computed by the very code that prepared the training rows.

A *specification* is plain JSON made from the configuration by `build`. Its columns, in order:

    number      value clipped to [min, max] and scaled to [0, 1], linearly or as log1p(x - min) / log1p(max
                - min); `<name>:missing` is 1 where the cell is missing or no number, and the value is then
                the public `fill`; `<name>>=<knot>` is 1 where the value reaches that public threshold, so
                that a linear network can follow a curve
    category    one column a value of the code book but the reference, `<name>=__other__`,
                `<name>=__missing__`
    icd9        as category, the code book being the chapters below and the reference `circulatory`
    crosses     last, for every feature with `crossed_with`: the products of its columns with those of each
                feature named there (a number's value; a category's codes but for reference, other and
                missing), so that a linear network can tell how two inputs act together

An infinite value is clipped as any other; NaN is missing. No cell makes `encode` raise.
Cells are compared as text; typed cells first become text by `canonical_text`.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

FORMAT = 1
OTHER = "__other__"
MISSING = "__missing__"

# ICD-9-CM's chapters, WHO, International Classification of Diseases, 9th revision (the tabular list
# published by the U.S. National Center for Health Statistics); diabetes (250) stands apart from its
# chapter, as in Strack et al. 2014, table 2 (doi 10.1155/2014/781670), and so do the sense organs (360–389).
ICD9_CHAPTERS: tuple[tuple[str, int, int], ...] = (
    ("infectious", 1, 139),
    ("neoplasms", 140, 239),
    ("endocrine", 240, 279),
    ("blood", 280, 289),
    ("mental", 290, 319),
    ("nervous", 320, 359),
    ("sense_organs", 360, 389),
    ("circulatory", 390, 459),
    ("respiratory", 460, 519),
    ("digestive", 520, 579),
    ("genitourinary", 580, 629),
    ("pregnancy", 630, 679),
    ("skin", 680, 709),
    ("musculoskeletal", 710, 739),
    ("congenital", 740, 759),
    ("perinatal", 760, 779),
    ("symptoms", 780, 799),
    ("injury", 800, 999),
)
ICD9_VALUES = (
    "circulatory",
    *(c[0] for c in ICD9_CHAPTERS if c[0] != "circulatory"),
    "diabetes",
    "external",
    "supplementary",
)
ICD9_REFERENCE = "circulatory"


def icd9_chapter(code: str) -> str:
    """The chapter of an ICD-9-CM diagnosis code, or `__other__` where the text is no such code.

    Args:
        code: `428.0`, `8` (leading zeros may be lost), `E849`, `V45.81`; four or five digits without a
            point have it after the third (`4280` is 428.0), as in claims data.
    """
    text = code.strip().upper()
    letter, digits = (text[0], text[1:]) if text[:1] in ("E", "V") else ("", text)
    whole, point, rest = digits.partition(".")
    if not (whole.isascii() and whole.isdigit()) or (rest and not (rest.isascii() and rest.isdigit())):
        return OTHER
    length = 2 if letter == "V" else 3
    if len(whole) > length:
        if point or len(whole) > length + 2:
            return OTHER
        whole = whole[:length]
    number = int(whole)
    if letter == "V":
        return "supplementary" if 1 <= number <= 91 else OTHER
    if letter == "E":
        return "external"
    if number == 250:
        return "diabetes"
    return next((name for name, low, high in ICD9_CHAPTERS if low <= number <= high), OTHER)


def canonical_text(value: Any) -> str | None:
    """A cell as text, the same for every source; None for a missing one.

    A whole number reads without a point (`1.0` and `1` are `1`), a truth value as `True` or `False`, a date
    as ISO 8601, a time stamp as ISO 8601 with its time, a decimal without trailing zeros.
    """
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return None
        # str() of a numpy scalar gives the shortest text of its own precision: float32 0.1 is "0.1".
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "as_tuple") and hasattr(value, "normalize"):
        return None if value.is_nan() else f"{value.normalize():f}" if value.is_finite() else str(value)
    return str(value)


def build(features: Mapping[str, Mapping[str, Any]], *, missing: Sequence[str] = ()) -> dict[str, Any]:
    """The specification of a configuration's features, as plain JSON.

    Args:
        features: name → `{kind: number, min, max, scale, fill, knots}`, `{kind: category, values,
            reference}` or `{kind: icd9}`; each may have `crossed_with`, a list of other features.
        missing: texts that stand for a missing cell, so that raw records can be scored too.
    """
    columns: list[dict[str, Any]] = []
    for name, feature in features.items():
        kind = feature["kind"]
        if kind == "number":
            low, high = float(feature["min"]), float(feature["max"])
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"feature {name}: min {low} must be below max {high}, both finite")
            scale, fill = feature.get("scale", "linear"), feature.get("fill")
            if scale not in ("linear", "log"):
                raise ValueError(f"feature {name}: scale must be linear or log")
            fill = low if fill is None else float(fill)
            knots = _knots(name, feature.get("knots", ()), low, high)
            number = {"name": name, "kind": kind, "min": low, "max": high, "scale": scale, "fill": fill}
            columns.append(number | ({"knots": knots} if knots else {}))
        elif kind == "category":
            values = [str(value) for value in feature["values"]]
            reference = str(feature.get("reference", values[0]))
            columns.append({"name": name, "kind": kind, "values": values, "reference": reference})
        elif kind == "icd9":
            columns.append({"name": name, "kind": kind, "values": list(ICD9_VALUES), "reference": ICD9_REFERENCE})
        else:
            raise ValueError(f"feature {name}: kind must be number, category or icd9")
        if partners := [str(partner) for partner in feature.get("crossed_with", ())]:
            columns[-1]["crossed_with"] = partners
    _check_crosses(columns)
    return {
        "format": FORMAT,
        "missing": [str(text) for text in missing],
        "features": columns,
        "mean": None,
        "std": None,
    }


def feature_names(spec: Mapping[str, Any]) -> list[str]:
    """Names of the encoded columns, in order."""
    names = [name for feature in spec["features"] for name in _names(feature)]
    return names + [f"{names[left]}*{names[right]}" for left, right, _ in _crosses(spec)]


def numeric_columns(spec: Mapping[str, Any]) -> list[int]:
    """Positions of the encoded columns that hold numbers, crosses with a number included (the others are 0 or 1)."""
    positions, at = [], 0
    for feature in spec["features"]:
        if feature["kind"] == "number":
            positions.append(at)
        at += len(_names(feature))
    return positions + [at + place for place, (_, _, number) in enumerate(_crosses(spec)) if number]


def norm_bound(spec: Mapping[str, Any]) -> float:
    """Public L2 bound R of `[x, x² of the number columns]` for any one row, before moments are applied.

    A number adds at most 1² + 1² when present, and fill² + fill⁴ + 1 when missing (the indicator), plus 1
    for each knot that the value, or the fill, can reach; a category, one column of ones at most; a cross of two
    features, one column of ones or values below 1 at most, and its square where a number is in it. It depends on
    the specification alone, so a Gaussian release of the sums may be scaled to it.
    """
    total = 0.0
    for feature in spec["features"]:
        if feature["kind"] == "number":
            fill = float(_scaled(np.array([feature["fill"]], dtype=np.float64), feature)[0])
            knots = feature.get("knots", ())
            reached = sum(knot <= feature["fill"] for knot in knots)
            total += max(2.0 + len(knots), 1.0 + fill**2 + fill**4 + reached)
        else:
            total += 1.0
    kinds = {feature["name"]: feature["kind"] for feature in spec["features"]}
    for feature in spec["features"]:
        for partner in feature.get("crossed_with", ()):
            total += 2.0 if "number" in (feature["kind"], kinds[partner]) else 1.0
    return math.sqrt(total)


def with_moments(spec: Mapping[str, Any], *, mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
    """The same specification, each column centred by `mean` and divided by `std` (both of length d, std > 0).

    The caller pays for them: they must be public, or a charged release.
    """
    centre, spread = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    width = len(feature_names(spec))
    if centre.shape != (width,) or spread.shape != (width,):
        raise ValueError(f"moments must have {width} values each, one a column")
    if not (np.isfinite(centre).all() and np.isfinite(spread).all() and (spread > 0).all()):
        raise ValueError("moments must be finite, and standard deviations above 0")
    return {**spec, "mean": centre.tolist(), "std": spread.tolist()}


def encode(frame: pd.DataFrame, spec: Mapping[str, Any]) -> np.ndarray:
    """Encode a frame of text or of typed cells.

    Returns:
        float32 array [rows, d], every value finite; without moments every value is in [0, 1].

    Raises:
        ValueError: a column of the specification is not in the frame, named.
    """
    _require(frame, spec)
    matrix = np.zeros((len(frame), len(feature_names(spec))), dtype=np.float32)
    rows, at = np.arange(len(frame)), 0
    for feature in spec["features"]:
        series = frame[feature["name"]]
        if feature["kind"] == "number":
            values = _numbers(series, spec["missing"])
            absent = np.isnan(values)
            values = np.where(absent, feature["fill"], values)
            matrix[:, at] = _scaled(values, feature)
            matrix[:, at + 1] = absent
            for place, knot in enumerate(feature.get("knots", ()), start=at + 2):
                matrix[:, place] = values >= knot
        else:
            position = _positions(series, feature, spec["missing"])
            there = position >= 0
            matrix[rows[there], at + position[there]] = 1.0
        at += len(_names(feature))
    for place, (left, right, _) in enumerate(_crosses(spec), start=at):
        np.multiply(matrix[:, left], matrix[:, right], out=matrix[:, place])
    if spec["mean"] is not None:
        matrix -= np.asarray(spec["mean"], dtype=np.float32)
        matrix /= np.asarray(spec["std"], dtype=np.float32)
    return matrix


def outside_counts(frame: pd.DataFrame, spec: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Per feature, how many cells were clipped or became `__other__`, and how many were missing or no number.

    Exact counts: they stay inside the run's work folder.
    """
    _require(frame, spec)
    counts: dict[str, dict[str, int]] = {}
    for feature in spec["features"]:
        series = frame[feature["name"]]
        if feature["kind"] == "number":
            values = _numbers(series, spec["missing"])
            absent, outside = np.isnan(values), (values < feature["min"]) | (values > feature["max"])
        else:
            position, width = _positions(series, feature, spec["missing"]), len(_names(feature))
            absent, outside = position == width - 1, position == width - 2
        counts[feature["name"]] = {"outside": int(outside.sum()), "missing": int(absent.sum())}
    return counts


def as_numbers(series: Any, *, missing: Sequence[str] = ()) -> np.ndarray:
    """Cells as float64 [rows]; NaN where the cell is missing or no number."""
    return _numbers(series, missing)


def _names(feature: Mapping[str, Any]) -> list[str]:
    name = feature["name"]
    if feature["kind"] == "number":
        return [name, f"{name}:missing", *(f"{name}>={knot:.12g}" for knot in feature.get("knots", ()))]
    values = [value for value in feature["values"] if value != feature["reference"]]
    return [f"{name}={value}" for value in (*values, OTHER, MISSING)]


def _check_crosses(features: Sequence[Mapping[str, Any]]) -> None:
    known, seen = {feature["name"] for feature in features}, set[frozenset[str]]()
    for feature in features:
        for partner in feature.get("crossed_with", ()):
            pair = frozenset((feature["name"], partner))
            if partner not in known or len(pair) == 1 or pair in seen:
                raise ValueError(
                    f"feature {feature['name']}: crossed_with must name other features, each pair once; not {partner}"
                )
            seen.add(pair)


def _crosses(spec: Mapping[str, Any]) -> list[tuple[int, int, bool]]:
    """The crosses in order: positions of both columns, and whether a number is among them."""
    own: dict[str, range] = {}
    numbers, at = set[str](), 0
    for feature in spec["features"]:
        width = len(_names(feature))
        if feature["kind"] == "number":
            numbers.add(feature["name"])
            own[feature["name"]] = range(at, at + 1)
        else:
            own[feature["name"]] = range(at, at + width - 2)
        at += width
    return [
        (left, right, feature["name"] in numbers or partner in numbers)
        for feature in spec["features"]
        for partner in feature.get("crossed_with", ())
        for left in own[feature["name"]]
        for right in own[partner]
    ]


def _knots(name: str, knots: Sequence[Any], low: float, high: float) -> list[float]:
    found = [float(knot) for knot in knots]
    if not all(low < knot <= high for knot in found) or any(a >= b for a, b in pairwise(found)):
        raise ValueError(f"feature {name}: knots must rise, above min {low:g} and up to max {high:g}")
    return found


def _require(frame: pd.DataFrame, spec: Mapping[str, Any]) -> None:
    if spec.get("format") != FORMAT:
        raise ValueError(f"this code reads encoding format {FORMAT}, not {spec.get('format')}")
    absent = [feature["name"] for feature in spec["features"] if feature["name"] not in frame.columns]
    if absent:
        raise ValueError(f"the records lack the column(s) {', '.join(absent)}")


def _numbers(series: Any, missing: Sequence[str]) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(series.dtype):  # truth values too
        values = series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        tokens = _parsed(missing)
        values[np.isin(values, tokens[~np.isnan(tokens)])] = np.nan
        return values
    codes, texts = _text_codes(series)
    parsed = _parsed([None if text in missing else text for text in texts])
    return np.append(parsed, np.nan)[codes]  # code -1, a missing cell, reads the last


def _parsed(texts: Sequence[str | None]) -> np.ndarray:
    return np.asarray(pd.to_numeric(pd.Series(list(texts), dtype=object), errors="coerce"), dtype=np.float64)


def _scaled(values: np.ndarray, feature: Mapping[str, Any]) -> np.ndarray:
    low, high = feature["min"], feature["max"]
    clipped = np.clip(values, low, high)
    if feature["scale"] == "log":
        return np.clip(np.log1p(clipped - low) / np.log1p(high - low), 0.0, 1.0)
    return np.clip((clipped - low) / (high - low), 0.0, 1.0)


def _positions(series: Any, feature: Mapping[str, Any], missing: Sequence[str]) -> np.ndarray:
    """Column of each cell within its feature, int64 [rows]; -1 is the reference, which has none."""
    values = [value for value in feature["values"] if value != feature["reference"]]
    place = {value: position for position, value in enumerate(values)}
    place[feature["reference"]] = -1
    other, absent = len(values), len(values) + 1
    codes, texts = _text_codes(series)
    chapters = feature["kind"] == "icd9"
    found = [
        absent if text is None or text in missing else place.get(icd9_chapter(text) if chapters else text, other)
        for text in texts
    ]
    return np.array([*found, absent], dtype=np.int64)[codes]


def _text_codes(series: Any) -> tuple[np.ndarray, list[str | None]]:
    """Cells as codes into their distinct texts; code -1 is missing."""
    if series.dtype == object:  # 1, 1.0 and True are equal to Python, and are three texts
        series = pd.Series([canonical_text(value) for value in series], dtype=object)
    codes, distinct = pd.factorize(series)
    return codes, [canonical_text(value) for value in distinct]
