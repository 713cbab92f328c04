"""Running the suite, and letting out of it only what is on a list.

Great Expectations keeps offending values, row numbers, extreme values and exception texts in its results.
Nothing of them is copied: a `CheckResult` has our own words, pass or fail, and a rounded share; counts
below 11 are not told. The shares are no private release: epsilon does not cover them, which the report says.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from configs.errors import InternalError
from tasks.data import suite

SMALL = 11
_NOTE = (
    "Shares are rounded and counts below 11 are not shown. They are not covered by epsilon: this report "
    "is for the people who may see the records' quality, and holds no value of any record."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One expectation's outcome.

    Attributes:
        name: kind of check.
        column: the column it is about, None for the whole.
        success: whether it holds.
        words: what was expected.
        share_outside: share of the non-missing cells (of all cells, for `missing`) that break it, in [0,
            1], to two decimals; None where fewer than 11 do, or where it has no such share.
        count_outside: `fewer than 11`, or about how many, to two significant digits; None where it has no
            count.
    """

    name: str
    column: str | None
    success: bool
    words: str
    share_outside: float | None
    count_outside: str | None

    def share_words(self) -> str:
        """The rounded share in words; empty where there is none."""
        if self.share_outside is None:
            return ""
        return f"about {100 * self.share_outside:.0f} %" if self.share_outside else "under 0.5 %"

    def sentence(self) -> str:
        """The outcome in one sentence."""
        where = "records" if self.column is None else self.column
        if self.success:
            return f"{where}: {self.words}"
        found = ""
        if self.share_outside is not None:
            found = f" (found: {self.share_words()}, {self.count_outside} rows)"
        elif self.count_outside is not None:
            found = f" (found: {self.count_outside} rows)"
        return f"{where}: expected that {self.words}{found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """The outcome of a suite."""

    success: bool
    checks: tuple[CheckResult, ...]

    def failures(self) -> list[str]:
        """Each failed check in a sentence, without any value of a record."""
        return [check.sentence() for check in self.checks if not check.success]


def validate(
    frame: pd.DataFrame,
    *,
    features: Mapping[str, Mapping[str, Any]],
    label: Mapping[str, Any],
    person: str | None,
    checks: Mapping[str, Any],
    name: str = "records",
) -> ValidationResult:
    """Validate a text frame against the configuration's suite.

    Args:
        frame: records, every column text.
        features: the configuration's features.
        label: `{column, positive, negative}`.
        person: the person column, or None.
        checks: as for `suite.expectations`.
        name: of the suite.

    Raises:
        InternalError: Great Expectations itself failed; its text is withheld.
    """
    expected = suite.expectations(features=features, label=label, person=person, checks=checks)
    look = suite.derived(frame, features=features, label=label, person=person, checks=checks)
    fault = ""
    try:
        with _silence():
            results = _run(look, name=name, expected=expected)
    except Exception as error:
        fault = type(error).__name__
    if fault:
        raise InternalError(f"validation could not be run: {fault}; its text is withheld, for it may quote a record")
    outcomes = tuple(_outcome(check, results[position]) for position, check in enumerate(expected))
    return ValidationResult(success=all(outcome.success for outcome in outcomes), checks=outcomes)


def to_json(result: ValidationResult) -> str:
    """The outcome as JSON text: `{success, note, checks: [CheckResult…]}`."""
    body = {"success": result.success, "note": _NOTE, "checks": [asdict(check) for check in result.checks]}
    return json.dumps(body, indent=2, ensure_ascii=False)


def to_html(result: ValidationResult, *, title: str = "records") -> str:
    """The outcome as one HTML page that asks for nothing from anywhere and runs no script."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections: dict[str, list[CheckResult]] = {}
    for check in result.checks:
        sections.setdefault(check.column or "The records as a whole", []).append(check)
    return environment.get_template("validation_report.j2").render(
        title=title,
        result=result,
        failed=[check for check in result.checks if not check.success],
        sections=sections,
        note=_NOTE,
    )


def _run(frame: pd.DataFrame, *, name: str, expected: list[suite.Check]) -> dict[int, Any]:
    """One validation in a context that lives in memory; results by position in `expected`."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset("records")
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(
            name=name,
            data=asset.add_batch_definition_whole_dataframe("all"),
            suite=context.suites.add(suite.build(name, expected)),
        )
    )
    found = definition.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": 0},
    )
    return {_position(outcome): outcome for outcome in found.results}


def _position(outcome: Any) -> int:
    return outcome.expectation_config.meta["position"]


def _outcome(check: suite.Check, found: Any) -> CheckResult:
    count = found.result.get("unexpected_count")
    total = found.result.get("element_count")
    share: float | None = None
    words: str | None = None
    if count is not None and total:
        total -= 0 if check.name == "missing" else found.result.get("missing_count") or 0
        words = f"fewer than {SMALL}" if count < SMALL else f"about {_coarse(int(count)):,}"
        share = None if count < SMALL else round(count / total, 2)
    return CheckResult(
        name=check.name,
        column=check.column,
        success=bool(found.success),
        words=check.words,
        share_outside=share,
        count_outside=words,
    )


def _coarse(count: int) -> int:
    """To two significant digits, and to tens below 100, where two digits would be exact."""
    return max(10, round(count, -1)) if count < 100 else int(float(f"{count:.1e}"))


@contextmanager
def _silence() -> Iterator[None]:
    """No warnings and no log lines of Great Expectations: they may quote values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations  # noqa: F401 - its loggers exist once it is imported

        names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "great_expectations"]
        quieted = [logger for logger in map(logging.getLogger, names) if not logger.disabled]
        for logger in quieted:
            logger.disabled = True
        try:
            yield
        finally:
            for logger in quieted:
                logger.disabled = False
