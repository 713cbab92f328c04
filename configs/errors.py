"""The exception tree. One exit code per class, so that an operator learns the reason without the logs.

    DiscreetError            50  anything that is ours and has no better class
    ├── UsageError            2  the command line is wrong
    ├── ConfigurationError   10  a YAML file, a policy or a setting is wrong
    ├── DataError            20  the records cannot be read or fail validation; nothing was spent
    ├── BudgetError          30  the privacy budget does not allow it
    │   └── AccountingError  30  epsilon could not be computed, which counts as over budget
    └── InternalError        50  a fault of ours, sealed: its text holds no record's values
        └── NotPrivateError  50  the noise path failed its self-test or its reconciliation

Exit codes 0, 40, 41 and 42 are verdicts, not errors: promoted, blocked, insufficient, awaiting approval.
Messages name file, key, value, bound and mend, and never hold a record's values: Prefect pickles the
exception of a failed flow with all its attributes, so these classes carry text and nothing else.
"""

from collections.abc import Sequence
from typing import ClassVar


def printable(text: str) -> str:
    r"""One line that a terminal shows as it is: what does not print (control characters, line breaks) is escaped.

    Names that a file brings along may hold commands to the terminal.

    >>> print(printable("a\x1b[2J\nb ü"))
    a\x1b[2J\nb ü
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


class DiscreetError(Exception):
    """Base of every error that Discreet raises on purpose."""

    exit_code: ClassVar[int] = 50


class UsageError(DiscreetError):
    """The command line is wrong."""

    exit_code: ClassVar[int] = 2


class ConfigurationError(DiscreetError):
    """A configuration, policy or setting is wrong; all faults of a file are reported at once."""

    exit_code: ClassVar[int] = 10

    @classmethod
    def of(cls, source: str, faults: Sequence[str]) -> "ConfigurationError":
        """Join the faults of one file into one message.

        Args:
            source: the file's name as the user gave it.
            faults: one sentence a fault, each naming key, value, bound and mend.
        """
        count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
        return cls("\n".join([f"{printable(source)}: {count}", *(f"  - {printable(fault)}" for fault in faults)]))


class DataError(DiscreetError):
    """The records cannot be read, or fail validation. Nothing was spent."""

    exit_code: ClassVar[int] = 20


class BudgetError(DiscreetError):
    """The privacy budget does not allow what was asked."""

    exit_code: ClassVar[int] = 30


class AccountingError(BudgetError):
    """Epsilon could not be computed. Fails closed: it counts as over budget."""


class InternalError(DiscreetError):
    """A fault of ours, without any value of a record in its text."""

    exit_code: ClassVar[int] = 50


class NotPrivateError(InternalError):
    """The noise path failed its self-test, or what ran is not what was accounted."""
