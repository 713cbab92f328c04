"""Evidence is kept in the chain beside what was spent, and costs nothing."""

import math
from typing import Any

import pytest

from configs.errors import ConfigurationError
from tasks.privacy.ledger import RECORDED_KINDS


def test_evidence_is_kept_in_the_chain_and_costs_nothing(desk: Any) -> None:
    spent = desk.balance()
    for number, kind in enumerate(RECORDED_KINDS):
        seq = desk.ledger.record(population="patients", kind=kind, payload={"number": number}, actor="gate")
        assert seq == number + 2
    assert [entry["payload"] for entry in desk.ledger.entries("patients")][1:] == [
        {"number": number} for number in range(len(RECORDED_KINDS))
    ]
    assert desk.ledger.entries("others") == []
    assert desk.balance() == spent
    assert desk.ledger.verify().faults == ()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("run_reserved", {}),
        ("budget_reset", {}),
        ("gate_decision", {"auc": math.nan}),
        ("gate_decision", {"auc": math.inf}),
        ("gate_decision", {"rows": {1, 2}}),
        ("gate_decision", {"text": "x" * 4_200_000}),
    ],
)
def test_an_unknown_kind_or_payload_is_refused(desk: Any, kind: str, payload: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        desk.ledger.record(population="patients", kind=kind, payload=payload, actor="gate")
    assert len(desk.ledger.entries()) == 1


@pytest.mark.parametrize("actor", ["", "two\nlines", "x" * 201])
def test_evidence_needs_somebody_who_gave_it(desk: Any, actor: str) -> None:
    with pytest.raises(ConfigurationError, match="actor must be one printable line"):
        desk.ledger.record(population="patients", kind="gate_decision", payload={}, actor=actor)


def test_evidence_of_four_mebibytes_is_kept_and_one_character_more_is_refused(desk: Any) -> None:
    most = {"t": "x" * (4_194_304 - len('{"t":""}'))}
    desk.ledger.record(population="patients", kind="gate_decision", payload=most, actor="gate")
    assert desk.ledger.entries()[-1]["payload"] == most
    with pytest.raises(ConfigurationError, match="4194305 characters, at most 4194304"):
        desk.ledger.record(population="patients", kind="gate_decision", payload={"t": most["t"] + "x"}, actor="gate")


def test_evidence_needs_a_population_that_exists(desk: Any) -> None:
    with pytest.raises(ConfigurationError, match="it holds: patients"):
        desk.ledger.record(population="others", kind="gate_decision", payload={}, actor="gate")
