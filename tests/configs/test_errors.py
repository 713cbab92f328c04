"""Each class of error has the exit code that the command line promises."""

import pytest

from configs import errors
from configs.section import Faults


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DiscreetError, 50),
        (errors.UsageError, 2),
        (errors.ConfigurationError, 10),
        (errors.DataError, 20),
        (errors.BudgetError, 30),
        (errors.AccountingError, 30),
        (errors.InternalError, 50),
        (errors.NotPrivateError, 50),
    ],
)
def test_the_exit_code_of_an_error_is_that_of_its_class(error: type[errors.DiscreetError], code: int) -> None:
    assert error("what").exit_code == error.exit_code == code


def test_an_epsilon_that_cannot_be_computed_is_over_budget() -> None:
    assert issubclass(errors.AccountingError, errors.BudgetError)
    assert issubclass(errors.NotPrivateError, errors.InternalError)


def test_what_a_check_between_keys_found_reads_as_one_line_where_nobody_takes_it_apart() -> None:
    found = Faults("a is wrong", "b is wrong")
    assert (str(found), found.sentences) == ("a is wrong; b is wrong", ("a is wrong", "b is wrong"))


@pytest.mark.parametrize(("faults", "count"), [(["a"], "1 fault"), (["a", "b"], "2 faults"), ([], "0 faults")])
def test_the_faults_of_a_file_are_counted_and_listed(faults: list[str], count: str) -> None:
    text = str(errors.ConfigurationError.of("m.yaml", faults))
    assert text.splitlines() == [f"m.yaml: {count}", *(f"  - {fault}" for fault in faults)]
