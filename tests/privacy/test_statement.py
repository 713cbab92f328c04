"""A claim always has its delta and its unit, and never promises what it does not hold."""

import math
import re
from typing import Any

import pytest

from configs.errors import AccountingError, ConfigurationError
from tasks.privacy.statement import COVERS, NOT_COVERED, DpStatement


def statement(**changes: Any) -> DpStatement:
    arguments: dict[str, Any] = {
        "epsilon": 2.99992,
        "delta": 1e-6,
        "unit": "person",
        "rows_per_unit": 3,
        "steps": 254,
        "sampling_rate": 0.1575,
        "noise_multiplier": 4.0907,
        "clipping": "flat",
        "clipping_norm": 1.0,
        "accountant_version": "dp-accounting 0.6.0",
        "ledger_epsilon": 8.0,
        "ledger_delta": 1e-6,
        "ledger_used": 4.8125,
        "moments_noise_multiplier": 8.0,
    }
    return DpStatement(**(arguments | changes))


VARIANTS = [
    statement(),
    statement(moments_noise_multiplier=None),
    statement(unit="row", person_epsilon=11.6382),
    statement(unit="row"),
    statement(epsilon=0.0, ledger_used=0.0),
    statement(rehearsed=True),
]


def test_a_rehearsal_s_claim_says_what_would_be_used_and_not_what_is() -> None:
    made, rehearsed = statement(), statement(rehearsed=True)
    assert "of which 4.813 is used." in made.plain()
    assert "of which 4.813 would be used by a first run." in rehearsed.plain()
    assert "(8, 1e-06), used 4.813" in made.exact()
    assert "(8, 1e-06), by a first run used 4.813" in rehearsed.exact()


@pytest.mark.parametrize("made", VARIANTS)
def test_no_text_calls_a_model_safe_or_anonymous(made: DpStatement) -> None:
    text = " ".join([made.plain(), made.exact(), *made.tags().values(), *made.covers, *made.not_covered])
    assert not re.search(r"safe|secure|anonym|protected|guarantees? no|no risk", text, re.IGNORECASE)


@pytest.mark.parametrize("made", VARIANTS)
def test_epsilon_never_stands_without_delta_and_the_unit(made: DpStatement) -> None:
    for text in (made.plain(), made.exact()):
        assert "1e-06" in text
        assert made.unit in text
        assert text.count(". ") == 0  # one sentence
        assert text.endswith(".")
        assert "None" not in text
    assert {"dp.epsilon", "dp.delta", "dp.unit", "dp.adjacency"} <= made.tags().keys()


def test_a_shown_epsilon_is_rounded_up_never_down() -> None:
    assert "epsilon 3.000 at delta" in statement().plain()
    assert statement(epsilon=1.0001).tags()["dp.epsilon"] == "1.001"
    assert statement(epsilon=0.000123).tags()["dp.epsilon"] == "0.00013"


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (0.0, "0.000"),
        (2.0, "2.000"),
        (0.01, "0.010"),
        (0.0101, "0.011"),
        (0.00991, "0.0100"),
        (0.00123, "0.0013"),
        (0.001, "0.0010"),
        (1.01e-7, "0.00000011"),
    ],
)
def test_a_small_epsilon_is_shown_with_two_digits_that_say_something(epsilon: float, shown: str) -> None:
    assert statement(epsilon=epsilon).tags()["dp.epsilon"] == shown


def test_one_row_a_person_and_all_of_the_guarantee_used_are_claims_too() -> None:
    made = statement(rows_per_unit=1, ledger_used=8.0)
    assert (made.tags()["dp.unit.max_rows"], made.ledger_remaining) == ("1", 0.0)
    assert statement(ledger_used=7.5).ledger_remaining == 0.5


def test_a_row_level_claim_says_what_a_person_gets() -> None:
    made = statement(unit="row", person_epsilon=11.6382, rows_per_unit=5)
    assert "a person, whose rows beyond 5 are left out: epsilon 11.639 at delta 1e-06" in made.plain()
    assert made.tags()["dp.person_epsilon"] == "11.639"
    unknown = statement(unit="row")
    assert "not per person" in unknown.plain()
    assert "dp.person_epsilon" not in unknown.tags()


def test_the_exact_sentence_names_every_mechanism_that_was_charged() -> None:
    text = statement().exact()
    for part in (
        "addition or removal of one person with at most 3 rows",
        "release of the moments (σ = 8)",
        "254 steps",
        "poisson sampling at q = 0.1575",
        "flat clipping at C = 1",
        "4.0907 C",
        "PLD (dp-accounting 0.6.0)",
        "(8, 1e-06), used 4.813, remaining 3.188",
    ):
        assert part in text
    assert "moments" not in statement(moments_noise_multiplier=None).exact()


def test_what_is_covered_and_what_is_not_are_both_listed() -> None:
    made = statement()
    assert made.covers == COVERS
    assert made.not_covered == NOT_COVERED
    tags = made.tags()
    assert "hold-out" in tags["dp.not_covered"]
    assert tags["dp.eval_covered"] == "no"
    assert tags["dp.adjacency"] == "add_or_remove_one"
    assert tags["dp.sampling_matches"] == "true"
    assert statement(sampling="shuffle").tags()["dp.sampling_matches"] == "false"
    assert tags["dp.preprocessing"].endswith("moments charged")
    assert all(len(value) < 5000 for value in tags.values())  # MLflow's limit of a tag's value


def test_nothing_remains_of_a_guarantee_that_is_used_up() -> None:
    assert statement(ledger_used=9.0).ledger_remaining == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("name", ["epsilon", "ledger_epsilon", "ledger_used", "person_epsilon"])
def test_a_claim_without_a_finite_epsilon_cannot_be_made(name: str, value: float) -> None:
    with pytest.raises(AccountingError):
        statement(**{"unit": "row", name: value})


@pytest.mark.parametrize("name", ["delta", "ledger_delta"])
def test_a_claim_without_a_delta_cannot_be_made(name: str) -> None:
    with pytest.raises(AccountingError, match="delta"):
        statement(**{name: 0.0})


@pytest.mark.parametrize("changes", [{"unit": "hospital"}, {"rows_per_unit": 0}, {"person_epsilon": 3.0}])
def test_a_claim_for_another_unit_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        statement(**changes)
