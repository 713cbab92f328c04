"""A first configuration from a data dictionary, or from the names of the columns alone. No record is read.

What neither tells stays a question, the text "?" where a number or a list belongs, so that the file is
refused until a person has answered. A bound read off the records would depend on somebody's record, and
nobody would have paid for it.

A dictionary is a CSV file with the columns `column, kind, min, max, values, meaning`; the values of a code
book are separated by `|`; kind is number, category, icd9, person, label or ignore.
"""

import csv
import io
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from configs.errors import ConfigurationError, DataError, printable
from tasks.data.csvfile import read_header

QUESTION = "?"
FIELDS = ("column", "kind", "min", "max", "values", "meaning")
KINDS = ("number", "category", "icd9", "person", "label", "ignore")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_ASK = '"?"'
_BOUNDS = "from the form or the device, not from the records"


def header_of(path: str | Path, *, member: str | None = None, known: Collection[str] = ()) -> tuple[list[str], str]:
    """Names of a file's columns and, for CSV, the delimiter that its first line suggests. Reads no row.

    A first line with a number or a date in it is taken for a record, whose cells must not be shown as names.

    Args:
        path: the file.
        member: the file within a zip archive.
        known: names of columns that a person wrote down, and that may look like values.

    Raises:
        DataError: the file cannot be read, or has no header.
    """
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        try:
            return list(arrow_parquet.read_schema(path).names), ","
        except (pa.ArrowException, OSError) as error:
            fault = type(error).__name__
        raise DataError(f"{printable(str(path))} cannot be read as Parquet ({fault})")
    headers = {delimiter: read_header(path=path, member=member, delimiter=delimiter) for delimiter in (",", ";", "\t")}
    delimiter = max(headers, key=lambda each: len(headers[each]))
    header = headers[delimiter]
    values = [place for place, name in enumerate(header, 1) if _VALUE.fullmatch(name.strip()) and name not in known]
    if values:
        raise DataError(
            f"{printable(str(path))}: its first line holds a number or a date (column {values[0]}), so it looks like a "
            "record and not like a header; add a line with the columns' names, or, if they are names, describe them "
            "in a data dictionary (--dictionary FILE)"
        )
    return header, delimiter


_VALUE = re.compile(r"[-+]?\d+([.,]\d*)?([eE][-+]?\d+)?|\d{1,4}([-/.])\d{1,2}\3\d{1,4}([ T].*)?")


def read_dictionary(path: str | Path) -> list[dict[str, str]]:
    """The lines of a data dictionary (UTF-8, with or without a byte-order mark), by `FIELDS`.

    Raises:
        ConfigurationError: it cannot be read, or lacks `column` or `kind`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        lines = [{key: (line.get(key) or "").strip() for key in FIELDS} for line in reader]
        names = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fault = type(error).__name__
        raise ConfigurationError.of(
            str(path),
            [f"the dictionary cannot be read ({fault}); it is a UTF-8 CSV file with {', '.join(FIELDS)}"],
        ) from None
    absent = [name for name in ("column", "kind") if name not in names]
    if absent:
        found = ", ".join(map(repr, names)) or "nothing"
        raise ConfigurationError.of(str(path), [f"the first line lacks {name}; it has {found}" for name in absent])
    return lines


def draft_configuration(
    *,
    header: Sequence[str],
    dictionary_rows: Sequence[Mapping[str, str]] | None,
    data_path: str,
    delimiter: str = ",",
    member: str | None = None,
    dictionary_name: str = "data dictionary",
) -> str:
    """Draft a configuration as commented YAML text.

    Args:
        header: the names of the data's columns.
        dictionary_rows: lines of the data dictionary by `FIELDS`, or None to ask for everything.
        data_path: where the data lies, as the configuration shall name it.
        delimiter: of a CSV file.
        member: file within a zip archive.
        dictionary_name: the dictionary, for messages.

    Raises:
        ConfigurationError: every fault of the dictionary at once: unknown kinds, columns that the data
            lack, bounds that are no numbers or out of order, no label or more than one.
    """
    places, header = list(header), list(dict.fromkeys(name for name in header if name))
    source: dict[str, Any] = {"kind": "csv", "path": data_path}
    if Path(data_path).suffix.lower() in (".parquet", ".pq"):
        source["kind"] = "parquet"
    else:
        source |= {"member": member} if member else {}
        source |= {"delimiter": delimiter} if delimiter != "," else {}
    if dictionary_rows is None:
        person, label = _ASK, f"{{column: {_ASK}, positive: {_ASK}, negative: {_ASK}}}"
        said = (
            "the person, such as a patient number; delete the line if there is none",
            "two lists of values",
        )
        features = [_HOW_TO_ANSWER, *(_asked(name) for name in header)]
    else:
        _check(header, dictionary_rows, dictionary_name, places)
        rows = {row["column"]: row for row in dictionary_rows}
        people = [name for name in header if name in rows and rows[name]["kind"] == "person"]
        outcome = next(row for row in dictionary_rows if row["kind"] == "label")
        person = _quoted(people[0]) if people else ""
        label = f"{{column: {_quoted(outcome['column'])}, positive: {_ASK}, negative: {_ASK}}}"
        values = ", ".join(_values(outcome))
        said = (
            rows[people[0]].get("meaning", "") if people else "",
            f"sort its values into two lists: {values}" if values else "two lists of values",
        )
        features = [line for name in header for line in _feature(name, rows.get(name))]
    return _TEMPLATE.format(
        source=_flow(source),
        person=_line(f"  person: {person}", said[0]) if person else _NO_PERSON,
        label=_line(f"  label: {label}", said[1]),
        features="\n".join(features),
        unit="person" if person else "row",
        rows=3 if person else 1,
    )


def _check(header: Sequence[str], rows: Sequence[Mapping[str, str]], name: str, places: Sequence[str]) -> None:
    faults: list[str] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=2):
        column, kind = row["column"], row["kind"]
        where = f"line {number}, {column or 'no column'}"
        if column not in header:
            near = get_close_matches(column, header, n=1)  # told by its place: see header.py
            like = f" (column {places.index(near[0]) + 1} is named much like it)" if near else ""
            faults.append(f"{where}: the data has no such column{like}")
        if column in seen:
            faults.append(f"{where}: described twice")
        seen.add(column)
        if kind not in KINDS:
            near = get_close_matches(kind, KINDS, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            faults.append(f"{where}: kind = {kind!r} is none of {', '.join(KINDS)}{meant}")
        faults += [f"{where}: {fault}" for fault in _bound_faults(row)]
    kinds = [row["kind"] for row in rows]
    if kinds.count("label") != 1:
        faults.append(f"{kinds.count('label')} columns have kind label; exactly one is the outcome")
    if kinds.count("person") > 1:
        faults.append(f"{kinds.count('person')} columns have kind person; one at most identifies a person")
    if not any(kind in ("number", "category", "icd9") for kind in kinds):
        faults.append("no column has kind number, category or icd9; a model needs at least one")
    if faults:
        raise ConfigurationError.of(name, faults)


def _bound_faults(row: Mapping[str, str]) -> list[str]:
    if row["kind"] != "number":
        return []
    faults, bounds = [], {}
    for key in ("min", "max"):
        text = row.get(key, "")
        if text in ("", QUESTION):
            continue
        bounds[key] = _number(text)
        if bounds[key] is None:
            faults.append(f"{key} = {text!r} is no finite number (decimals take a point)")
    low, high = bounds.get("min"), bounds.get("max")
    if low is not None and high is not None and low >= high:
        faults.append(f"min = {low:g} must be below max = {high:g}")
    return faults


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _values(row: Mapping[str, str]) -> list[str]:
    return [value.strip() for value in row.get("values", "").split("|") if value.strip()]


def _feature(name: str, row: Mapping[str, str] | None) -> list[str]:
    """The line of one column, none for a role; a comment where it is left out."""
    key = _quoted(name)
    if row is None or row["kind"] == "ignore":
        why = "not in the dictionary" if row is None else "ignored"
        return [f"    # {key}: left out, {why}"]
    meaning = row.get("meaning", "")
    if row["kind"] == "number":
        low, high = (row.get(end, "") for end in ("min", "max"))
        body = f"min: {_bound(low)}, max: {_bound(high)}"
        asked = f"smallest and largest value that can occur, {_BOUNDS}"
        open_question = QUESTION in (low or QUESTION, high or QUESTION)
        return [
            _line(
                f"    {key}: {{kind: number, {body}}}",
                "; ".join(filter(None, [meaning, asked if open_question else ""])),
            )
        ]
    if row["kind"] == "category":
        values = _values(row)
        listed = f"[{', '.join(map(_quoted, values))}]" if values and values != [QUESTION] else _ASK
        asked = "" if listed != _ASK else "list of the values that can occur, from the code book, not from the records"
        return [_line(f"    {key}: {{kind: category, values: {listed}}}", "; ".join(filter(None, [meaning, asked])))]
    if row["kind"] == "icd9":
        return [_line(f"    {key}: {{kind: icd9}}", meaning)]
    return []


def _asked(name: str) -> str:
    return f"    {_quoted(name)}: {{kind: number, min: {_ASK}, max: {_ASK}}}"


def _bound(text: str) -> str:
    value = _number(text)
    return _ASK if value is None else f"{value:.15g}"


def _line(text: str, comment: str) -> str:
    comment = printable(" ".join(comment.split()))
    return f"{text}   # {comment}" if comment else text


def _quoted(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS
    return text if plain else json.dumps(text)


def _flow(mapping: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_quoted(str(value))}" for key, value in mapping.items()) + "}"


_HOW_TO_ANSWER = f"""\
    # For each: the smallest and largest value that can occur, {_BOUNDS};
    # or {{kind: category, values: [...]}}, or {{kind: icd9}}; or delete the line.
    # Delete at least the outcome, the person and what names a row."""
_NO_PERSON = "  # person: no column identifies a person, so epsilon can be stated for one row only"
_TEMPLATE = """\
# A first draft. No record was read: only the names of the columns, and the data dictionary if there was one.
# Every "?" is a question for a person who knows the form, the device or the code book. Do not answer one by
# looking at the records: such an answer depends on somebody's record, and nobody has paid for it.
# `discreet check` refuses this file until all are answered.
model: "?"   # short name of the model

data:
  source: {source}
  missing: [""]   # cells that mean missing; add such as "NA" or "?"
{person}
{label}
  features:   # public bounds and code books
{features}
  holdout: {{audit: 0.20, population: 0.05}}   # shares of the persons that never train
  checks: {{max_missing: {{default: 0.05}}, max_outside: 0.05}}

privacy:
  population: "?"   # name of these people: one ledger for one population, never two names for the same people
  unit: {unit}
  # Over all runs, set by the privacy officer; delta below 1/units.
  guarantee: {{epsilon: "?", delta: "?", planned_runs: "?"}}
  run: {{epsilon: "?", delta: "?"}}   # what one training may cost
  units: "?"   # public, rounded number of training units; never the exact count
  max_rows_per_person: {rows}
  expected_batch: "?"   # units; about a seventh of `units` where there are 50,000
  epochs: 40
  clipping: {{kind: flat, norm: 1.0}}
  moments: {{noise_multiplier: 8.0}}

# prior_rate: public rate of the outcome; threshold: the probability from which the model flags.
network: {{kind: mlp, hidden: [64], prior_rate: "?", threshold: "?"}}
training:
  {{optimizer: sgd, momentum: 0.9, learning_rate: 2.0, decay: linear, averaging: 0.95, zero_last_layer: true}}

gates:
  min_auc: "?"   # lowest AUC that may be promoted
  max_auc_drop: 0.02
"""
