"""The ledger: reserve, claim, commit; what it refuses, and in which words."""

import math
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs.errors import AccountingError, BudgetError, ConfigurationError, NotPrivateError
from tasks.privacy import ledger_rows
from tasks.privacy.accounting import rdp_units
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian, prefix
from tasks.privacy.ledger import RECORDED_KINDS, Ledger
from tasks.privacy.ledger_state import PopulationState, Reservation
from tasks.privacy.refusal import amount

MOMENTS = Gaussian(noise_multiplier=8.0)
TRAINING = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
RUN: tuple[Mechanism, ...] = (MOMENTS, TRAINING)  # 1001 claims


class Clock:
    """Seconds that pass only when a test says so."""

    now = 1.8e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "home" / "ledger.db", clock=clock) as opened:
        create(opened)
        yield opened


def create(ledger: Ledger, **changes: Any) -> PopulationState:
    arguments: dict[str, Any] = {
        "name": "patients",
        "unit": "person",
        "epsilon": 6.0,
        "delta": 1e-6,
        "planned_runs": 5,
        "planned": RUN,
        "actor": "officer",
    }
    return ledger.create_population(**(arguments | changes))


def reserve(ledger: Ledger, key: str = "attempt-1", **changes: Any) -> Reservation:
    arguments: dict[str, Any] = {
        "population": "patients",
        "mechanisms": RUN,
        "idempotency_key": key,
        "actor": "engineer",
        "reason": "monthly retraining",
    }
    return ledger.reserve(**(arguments | changes))


def claim(ledger: Ledger, held: Reservation, upto: int) -> None:
    ledger.claim(reservation_id=held.id, token=held.token, upto=upto)


def commit(ledger: Ledger, held: Reservation, executed: int) -> PopulationState:
    return ledger.commit(reservation_id=held.id, token=held.token, executed=executed)


def balance(ledger: Ledger) -> PopulationState:
    state = ledger.population("patients")
    assert state is not None
    return state


def cost(state: PopulationState, claims: int) -> tuple[int, ...]:
    return rdp_units(prefix(RUN, claims), state.orders)


def test_a_new_population_has_used_exactly_nothing(ledger: Ledger) -> None:
    state = balance(ledger)
    assert state.used_epsilon == 0
    assert state.remaining_epsilon == 6
    assert set(state.spent) == {0}
    assert state.fits(RUN) == 6
    assert ledger.population("others") is None
    assert ledger.populations() == ["patients"]


def test_creating_the_same_population_again_changes_nothing(ledger: Ledger) -> None:
    before = balance(ledger)
    assert create(ledger, epsilon=6, planned=(TRAINING,)) == before
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"unit": "row"}, "the file says unit row, the ledger person"),
        ({"epsilon": 8.0}, "the file says epsilon 8.0, the ledger 6.0"),
        ({"delta": 1e-5}, "the file says delta 1e-05, the ledger 1e-06"),
        ({"planned_runs": 6}, "the file says planned_runs 6, the ledger 5"),
    ],
)
def test_another_unit_or_guarantee_is_refused_with_both_values(
    ledger: Ledger, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)) as refusal:
        create(ledger, **changes)
    assert "write the ledger's values" in str(refusal.value)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../keys"},
        {"name": ""},
        {"unit": "hospital"},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"planned_runs": 0},
        {"actor": ""},
        {"actor": "two\nlines"},
    ],
)
def test_a_population_with_a_wrong_value_is_not_created(ledger: Ledger, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        create(ledger, **({"name": "second"} | changes))
    assert len(ledger.entries()) == 1


def test_a_reservation_sets_the_worst_case_aside_before_anything_runs(ledger: Ledger) -> None:
    held = reserve(ledger)
    state = balance(ledger)
    assert held.total == 1001
    assert state.reserved == cost(state, 1001)
    assert set(state.committed) == {0}
    assert state.runs["reserved"] == 1
    assert state.used_epsilon == state.rule.used_epsilon(cost(state, 1001))


def test_a_run_is_charged_for_what_it_claimed_and_the_rest_is_returned(ledger: Ledger) -> None:
    held = reserve(ledger)
    claim(ledger, held, 301)
    state = commit(ledger, held, 300)
    assert state.committed == cost(state, 301)
    assert set(state.reserved) == {0}
    assert state.runs == {"reserved": 0, "running": 0, "committed": 1, "charged": 0, "released": 0}


def test_committing_again_changes_nothing(ledger: Ledger) -> None:
    held = reserve(ledger)
    claim(ledger, held, 1001)
    first = commit(ledger, held, 1001)
    assert commit(ledger, held, 1001) == first
    with pytest.raises(BudgetError, match="committed already"):
        commit(ledger, held, 1000)


def test_more_steps_than_claimed_are_charged_and_the_run_is_not_private(ledger: Ledger) -> None:
    held = reserve(ledger)
    claim(ledger, held, 10)
    with pytest.raises(NotPrivateError, match="20 releases and steps ran and 10 were claimed"):
        commit(ledger, held, 20)
    state = balance(ledger)
    assert state.committed == cost(state, 20)
    assert state.runs["charged"] == 1
    assert ledger.verify().faults == ()


@pytest.mark.parametrize("executed", [-1, 1.0, None, True])
def test_an_executed_count_that_is_no_count_is_refused(ledger: Ledger, executed: Any) -> None:
    held = reserve(ledger)
    with pytest.raises(BudgetError, match="executed"):
        commit(ledger, held, executed)


def test_a_failed_run_is_charged_for_its_claims(ledger: Ledger) -> None:
    held = reserve(ledger)
    claim(ledger, held, 1)
    state = ledger.abandon(reservation_id=held.id, token=held.token, reason="the disk was full")
    assert state.committed == cost(state, 1)
    assert state.runs["charged"] == 1


def test_a_run_that_claimed_nothing_is_released_whole(ledger: Ledger) -> None:
    held = reserve(ledger)
    state = ledger.abandon(reservation_id=held.id, token=held.token, reason="validation failed")
    assert set(state.spent) == {0}
    assert state.runs["released"] == 1
    with pytest.raises(BudgetError, match="released already"):
        claim(ledger, held, 1)


@pytest.mark.parametrize("upto", [0, -1, 5, 10, 1002, 20.0, math.nan, None, True])
def test_claims_only_rise_and_never_pass_the_total(ledger: Ledger, upto: Any) -> None:
    held = reserve(ledger)
    claim(ledger, held, 10)
    with pytest.raises(BudgetError, match="claim up to"):
        claim(ledger, held, upto)
    assert len(ledger.entries()) == 3


def test_a_claim_needs_a_reservation_and_its_token(ledger: Ledger) -> None:
    held = reserve(ledger)
    with pytest.raises(BudgetError, match="not in the ledger"):
        ledger.claim(reservation_id="unknown", token=1, upto=1)
    with pytest.raises(BudgetError, match="stale"):
        ledger.claim(reservation_id=held.id, token=held.token + 1, upto=1)


def test_a_claim_renews_the_lease(ledger: Ledger, clock: Clock) -> None:
    held = reserve(ledger, lease_seconds=100)
    clock.now += 99
    claim(ledger, held, 1)
    clock.now += 99
    claim(ledger, held, 2)
    clock.now += 100
    with pytest.raises(BudgetError, match="lease has run out"):
        claim(ledger, held, 3)


def test_an_expired_lease_without_claims_is_fenced_and_released(ledger: Ledger, clock: Clock) -> None:
    zombie = reserve(ledger, lease_seconds=100)
    clock.now += 100
    reserve(ledger, "attempt-2", mechanisms=(MOMENTS,))
    assert balance(ledger).runs["released"] == 1
    assert balance(ledger).reserved == rdp_units((MOMENTS,), balance(ledger).orders)
    for act in (lambda: claim(ledger, zombie, 1), lambda: commit(ledger, zombie, 0)):
        with pytest.raises(BudgetError, match="token is stale"):
            act()


def test_an_expired_lease_refunds_nothing_that_was_claimed(ledger: Ledger, clock: Clock) -> None:
    zombie = reserve(ledger, lease_seconds=100)
    claim(ledger, zombie, 400)
    clock.now += 100
    reserve(ledger, "attempt-2")
    state = balance(ledger)
    assert state.committed == cost(state, 400)
    assert state.runs["charged"] == 1
    with pytest.raises(BudgetError, match="token is stale"):
        claim(ledger, zombie, 401)
    assert ledger.verify().faults == ()


def test_a_late_commit_before_anybody_fenced_it_is_charged_as_claimed(ledger: Ledger, clock: Clock) -> None:
    held = reserve(ledger, lease_seconds=100)
    claim(ledger, held, 1001)
    clock.now += 1000
    state = commit(ledger, held, 1001)
    assert state.committed == cost(state, 1001)


def test_resuming_costs_what_was_claimed_by_both_attempts(ledger: Ledger) -> None:
    first = reserve(ledger, mechanisms=(TRAINING,))
    claim(ledger, first, 300)
    ledger.abandon(reservation_id=first.id, token=first.token, reason="killed at step 250")
    rest = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=750)
    second = reserve(ledger, "attempt-2", mechanisms=(rest,))
    claim(ledger, second, 750)
    state = commit(ledger, second, 750)
    both = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1050)
    whole = rdp_units((both,), state.orders)
    assert all(0 <= a - b <= 1 for a, b in zip(state.committed, whole, strict=True))  # rounded up twice


def test_the_same_key_returns_the_same_reservation_and_sets_nothing_aside_twice(ledger: Ledger) -> None:
    held = reserve(ledger)
    assert reserve(ledger) == held
    assert balance(ledger).runs["reserved"] == 1
    assert len(ledger.entries()) == 2


def test_the_same_key_for_another_run_is_refused(ledger: Ledger) -> None:
    held = reserve(ledger)
    with pytest.raises(BudgetError, match="another run"):
        reserve(ledger, mechanisms=(MOMENTS,))
    claim(ledger, held, 1001)
    commit(ledger, held, 1001)
    with pytest.raises(BudgetError, match="is committed"):
        reserve(ledger)


def spend_all(ledger: Ledger) -> None:
    while balance(ledger).fits(RUN):
        held = reserve(ledger, f"spend-{len(ledger.entries())}")
        claim(ledger, held, 1001)
        commit(ledger, held, 1001)


def test_a_run_over_budget_is_refused_with_requested_remaining_difference_and_mend(ledger: Ledger) -> None:
    spend_all(ledger)
    before = (balance(ledger), ledger.head())
    with pytest.raises(BudgetError) as refusal:
        reserve(ledger)
    text = str(refusal.value)
    requested, remaining, difference = (
        float(found)
        for found in re.findall(r"(?:Requested: epsilon|remaining:|difference:) ([\d.e-]+)", text)
    )
    assert remaining == pytest.approx(before[0].remaining_epsilon, abs=1e-4)
    assert difference == pytest.approx(requested - remaining, abs=2e-4)
    assert difference > 0
    assert "unit person, delta 1e-06" in text
    assert (balance(ledger), ledger.head()) == before

    found = re.search(r"first (\d+) of 1001 .* noise multiplier of ([\d.]+)\.", text)
    assert found is not None
    most, sigma = int(found[1]), float(found[2])
    assert before[0].fits(prefix(RUN, most)) == 1
    assert before[0].fits(prefix(RUN, most + 1)) == 0

    def noisier(sigma: float) -> tuple[Mechanism, ...]:
        return (MOMENTS, SampledGaussian(sampling_rate=0.01, noise_multiplier=sigma, steps=1000))

    assert before[0].fits(noisier(sigma * 1.002)) >= 1
    assert before[0].fits(noisier(sigma * 0.99)) == 0


def test_a_refusal_says_when_nothing_more_is_possible(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="Not even its first step would fit"):
        reserve(ledger, mechanisms=(Gaussian(noise_multiplier=0.1),))


def test_a_refusal_without_training_names_only_what_fits(ledger: Ledger) -> None:
    weak = Gaussian(noise_multiplier=0.1)
    with pytest.raises(BudgetError, match=r"its first 1 of 2 releases and steps would fit\.$"):
        reserve(ledger, mechanisms=(MOMENTS, weak))
    # Noise can be added to the training but not to the release after it, so no noise multiplier helps.
    with pytest.raises(BudgetError, match=r"its first 1000 of 1001 releases and steps would fit\.$"):
        reserve(ledger, mechanisms=(TRAINING, weak))


def test_noise_as_a_mend_is_only_named_where_there_is_training(ledger: Ledger) -> None:
    # 60 releases of the moments: some fit, all do not, and there is no training to add noise to.
    with pytest.raises(BudgetError, match=r"of 60 releases and steps would fit\.$"):
        reserve(ledger, mechanisms=(Gaussian(noise_multiplier=2.0),) * 60)


def test_tiny_amounts_are_shown_as_what_they_are() -> None:
    assert [amount(x) for x in (0.0, 0.5, 4e-7, -4e-7)] == ["0.0000", "0.5000", "4.000e-07", "-4.000e-07"]


def test_concurrent_runs_count_at_their_worst_case(ledger: Ledger) -> None:
    held = [reserve(ledger, f"attempt-{number}") for number in range(6)]
    with pytest.raises(BudgetError, match="6 other runs not finished"):
        reserve(ledger, "attempt-7")
    ledger.abandon(reservation_id=held[0].id, token=1, reason="not needed")
    reserve(ledger, "attempt-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanisms": ()},
        {"actor": ""},
        {"reason": " "},
        {"reason": "x" * 201},
        {"key": ""},
        {"lease_seconds": 0},
        {"lease_seconds": math.nan},
        {"population": "others"},
    ],
)
def test_a_reservation_with_a_wrong_argument_leaves_no_trace(ledger: Ledger, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        reserve(ledger, **changes)
    assert len(ledger.entries()) == 1


class ReplaceOne(Gaussian):
    """An event that the accountant does not know."""


@pytest.mark.parametrize("unknown", [ReplaceOne(noise_multiplier=1.0), {"kind": "gaussian"}, None, 1.0])
def test_an_event_that_is_not_known_is_refused_and_the_ledger_unchanged(ledger: Ledger, unknown: Any) -> None:
    before = ledger.head()
    with pytest.raises(AccountingError):
        reserve(ledger, mechanisms=(MOMENTS, unknown))
    assert ledger.head() == before
    assert set(balance(ledger).spent) == {0}


def test_a_failed_accounting_reads_as_over_budget_and_leaves_the_ledger_unchanged(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = reserve(ledger, lease_seconds=1)
    claim(ledger, expired, 5)
    clock.now += 1
    before = ledger.head()

    def fail(*_: object) -> Any:
        raise AccountingError("cannot be computed")

    monkeypatch.setattr(ledger_rows, "rdp_units", fail)  # while the expired lease is settled
    with pytest.raises(BudgetError):
        reserve(ledger, "attempt-2")
    assert ledger.head() == before
    assert balance(ledger).runs["running"] == 1


def test_evidence_is_kept_in_the_chain_and_costs_nothing(ledger: Ledger) -> None:
    spent = balance(ledger)
    for number, kind in enumerate(RECORDED_KINDS):
        seq = ledger.record(population="patients", kind=kind, payload={"number": number}, actor="gate")
        assert seq == number + 2
    assert [entry["payload"] for entry in ledger.entries("patients")][1:] == [
        {"number": number} for number in range(len(RECORDED_KINDS))
    ]
    assert ledger.entries("others") == []
    assert balance(ledger) == spent
    assert ledger.verify().faults == ()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("run_reserved", {}),
        ("budget_reset", {}),
        ("gate_decision", {"auc": math.nan}),
        ("gate_decision", {"auc": math.inf}),
        ("gate_decision", {"rows": {1, 2}}),
        ("gate_decision", {"text": "x" * 70_000}),
    ],
)
def test_an_unknown_kind_or_payload_is_refused(ledger: Ledger, kind: str, payload: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ledger.record(population="patients", kind=kind, payload=payload, actor="gate")
    assert len(ledger.entries()) == 1


def test_evidence_needs_a_population_that_exists(ledger: Ledger) -> None:
    with pytest.raises(ConfigurationError, match="it holds: patients"):
        ledger.record(population="others", kind="gate_decision", payload={}, actor="gate")


def test_the_file_and_its_folder_are_their_owners_alone(ledger: Ledger, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


def test_a_ledger_opened_again_knows_everything(ledger: Ledger, tmp_path: Path, clock: Clock) -> None:
    held = reserve(ledger)
    claim(ledger, held, 7)
    with Ledger.open(tmp_path / "home" / "ledger.db", clock=clock) as again:
        assert again.population("patients") == ledger.population("patients")
        assert again.head() == ledger.head()
        claim(again, held, 8)
