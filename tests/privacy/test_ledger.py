"""The ledger: reserve, claim, commit, and what each refuses. `desk` is in conftest.py."""

import math
import re
import stat
from typing import Any

import pytest

from configs.errors import AccountingError, BudgetError, ConfigurationError, NotPrivateError
from tasks.privacy import ledger_rows
from tasks.privacy.accounting import rdp_units
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian

MOMENTS = Gaussian(noise_multiplier=8.0)
TRAINING = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
RUN: tuple[Mechanism, ...] = (MOMENTS, TRAINING)  # 1001 claims


def test_a_new_population_has_used_exactly_nothing(desk: Any) -> None:
    state = desk.balance()
    assert state.used_epsilon == 0
    assert state.remaining_epsilon == 6
    assert set(state.spent) == {0}
    assert state.fits(RUN) == 6
    assert desk.ledger.population("others") is None
    assert desk.ledger.populations() == ["patients"]


def test_creating_the_same_population_again_changes_nothing(desk: Any) -> None:
    before = desk.balance()
    assert desk.create(epsilon=6, planned=(TRAINING,)) == before
    assert len(desk.ledger.entries()) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"unit": "row"}, "the file says unit row, the ledger person"),
        ({"epsilon": 8.0}, "the file says epsilon 8.0, the ledger 6.0"),
        ({"delta": 1e-5}, "the file says delta 1e-05, the ledger 1e-06"),
        ({"planned_runs": 6}, "the file says planned_runs 6, the ledger 5"),
    ],
)
def test_another_unit_or_guarantee_is_refused_with_both_values(desk: Any, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)) as refusal:
        desk.create(**changes)
    assert "write the ledger's values" in str(refusal.value)
    assert len(desk.ledger.entries()) == 1


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
def test_a_population_with_a_wrong_value_is_not_created(desk: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        desk.create(**({"name": "second"} | changes))
    assert len(desk.ledger.entries()) == 1


def test_a_reservation_sets_the_worst_case_aside_before_anything_runs(desk: Any) -> None:
    held = desk.reserve()
    state = desk.balance()
    assert held.total == 1001
    assert state.reserved == desk.cost(1001)
    assert set(state.committed) == {0}
    assert state.runs["reserved"] == 1
    assert state.used_epsilon == state.rule.used_epsilon(desk.cost(1001))


def test_a_run_is_charged_for_what_it_claimed_and_the_rest_is_returned(desk: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 301)
    state = desk.commit(held, 300)
    assert state.committed == desk.cost(301)
    assert set(state.reserved) == {0}
    assert state.runs == {"reserved": 0, "running": 0, "committed": 1, "charged": 0, "released": 0}


def test_committing_again_changes_nothing(desk: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 1001)
    first = desk.commit(held, 1001)
    assert desk.commit(held, 1001) == first
    with pytest.raises(BudgetError, match="committed already"):
        desk.commit(held, 1000)


def test_more_steps_than_claimed_are_charged_and_the_run_is_not_private(desk: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 10)
    with pytest.raises(NotPrivateError, match="20 releases and steps ran and 10 were claimed"):
        desk.commit(held, 20)
    state = desk.balance()
    assert state.committed == desk.cost(20)
    assert state.runs["charged"] == 1
    assert desk.ledger.verify().faults == ()


@pytest.mark.parametrize("executed", [-1, 1.0, None, True])
def test_an_executed_count_that_is_no_count_is_refused(desk: Any, executed: Any) -> None:
    held = desk.reserve()
    with pytest.raises(BudgetError, match="executed"):
        desk.commit(held, executed)


def test_a_failed_run_is_charged_for_its_claims(desk: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 1)
    state = desk.abandon(held, reason="the disk was full")
    assert state.committed == desk.cost(1)
    assert state.runs["charged"] == 1


def test_a_run_that_claimed_nothing_is_released_whole(desk: Any) -> None:
    held = desk.reserve()
    state = desk.abandon(held, reason="validation failed")
    assert set(state.spent) == {0}
    assert state.runs["released"] == 1
    with pytest.raises(BudgetError, match="released already"):
        desk.claim(held, 1)


@pytest.mark.parametrize("reason", ["", " ", "two\nlines", "x" * 201])
def test_a_failed_run_needs_a_reason_in_one_line(desk: Any, reason: str) -> None:
    held = desk.reserve()
    with pytest.raises(ConfigurationError, match="reason must be one printable line"):
        desk.abandon(held, reason=reason)
    assert desk.balance().runs["reserved"] == 1


@pytest.mark.parametrize("upto", [0, -1, 5, 10, 1002, 20.0, math.nan, None, True])
def test_claims_only_rise_and_never_pass_the_total(desk: Any, upto: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 10)
    with pytest.raises(BudgetError, match="claim up to"):
        desk.claim(held, upto)
    assert len(desk.ledger.entries()) == 3


def test_a_claim_needs_a_reservation_and_its_token(desk: Any) -> None:
    held = desk.reserve()
    with pytest.raises(BudgetError, match="not in the ledger"):
        desk.ledger.claim(reservation_id="unknown", token=1, upto=1)
    with pytest.raises(BudgetError, match="stale"):
        desk.ledger.claim(reservation_id=held.id, token=held.token + 1, upto=1)


def test_a_claim_renews_the_lease(desk: Any) -> None:
    held = desk.reserve(lease_seconds=100)
    desk.now += 99
    desk.claim(held, 1)
    desk.now += 99
    desk.claim(held, 2)
    desk.now += 100
    with pytest.raises(BudgetError, match="lease has run out"):
        desk.claim(held, 3)


def test_an_expired_lease_without_claims_is_fenced_and_released(desk: Any) -> None:
    zombie = desk.reserve(lease_seconds=100)
    desk.now += 100
    desk.reserve("attempt-2", mechanisms=(MOMENTS,))
    assert desk.balance().runs["released"] == 1
    assert desk.balance().reserved == rdp_units((MOMENTS,), desk.balance().orders)
    for act in (lambda: desk.claim(zombie, 1), lambda: desk.commit(zombie, 0)):
        with pytest.raises(BudgetError, match="token is stale"):
            act()


def test_an_expired_lease_refunds_nothing_that_was_claimed(desk: Any) -> None:
    zombie = desk.reserve(lease_seconds=100)
    desk.claim(zombie, 400)
    desk.now += 100
    desk.reserve("attempt-2")
    state = desk.balance()
    assert state.committed == desk.cost(400)
    assert state.runs["charged"] == 1
    (expired,) = [entry["payload"] for entry in desk.ledger.entries() if entry["kind"] == "lease_expired"]
    assert expired == {"reservation": zombie.id, "state": "charged", "claims": 400, "token": zombie.token + 1}
    with pytest.raises(BudgetError, match="token is stale"):
        desk.claim(zombie, 401)
    assert desk.ledger.verify().faults == ()


def test_a_late_commit_before_anybody_fenced_it_is_charged_as_claimed(desk: Any) -> None:
    held = desk.reserve(lease_seconds=100)
    desk.claim(held, 1001)
    desk.now += 1000
    state = desk.commit(held, 1001)
    assert state.committed == desk.cost(1001)


def test_resuming_costs_what_was_claimed_by_both_attempts(desk: Any) -> None:
    first = desk.reserve(mechanisms=(TRAINING,))
    desk.claim(first, 300)
    desk.abandon(first, reason="killed at step 250")
    rest = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=750)
    second = desk.reserve("attempt-2", mechanisms=(rest,))
    desk.claim(second, 750)
    state = desk.commit(second, 750)
    both = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1050)
    whole = rdp_units((both,), state.orders)
    assert all(0 <= a - b <= 1 for a, b in zip(state.committed, whole, strict=True))  # rounded up twice


def test_the_same_key_returns_the_same_reservation_and_sets_nothing_aside_twice(desk: Any) -> None:
    held = desk.reserve()
    assert desk.reserve() == held
    assert desk.balance().runs["reserved"] == 1
    assert len(desk.ledger.entries()) == 2


def test_the_same_key_for_another_run_is_refused(desk: Any) -> None:
    held = desk.reserve()
    with pytest.raises(BudgetError, match="another run"):
        desk.reserve(mechanisms=(MOMENTS,))
    desk.claim(held, 1001)
    desk.commit(held, 1001)
    with pytest.raises(BudgetError, match="is committed"):
        desk.reserve()


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
def test_a_reservation_with_a_wrong_argument_leaves_no_trace(desk: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        desk.reserve(**changes)
    assert len(desk.ledger.entries()) == 1


@pytest.mark.parametrize("seconds", [0.001, 31 * 86_400])
def test_a_lease_may_last_up_to_a_month_and_no_longer(desk: Any, seconds: float) -> None:
    assert desk.reserve(lease_seconds=seconds).total == 1001
    with pytest.raises(ConfigurationError, match="31 days"):
        desk.reserve("attempt-2", lease_seconds=31 * 86_400 + 1)


def test_a_reason_of_200_characters_is_kept_and_one_of_201_refused(desk: Any) -> None:
    desk.reserve(reason="x" * 200)
    assert desk.ledger.entries()[-1]["payload"]["reason"] == "x" * 200
    with pytest.raises(ConfigurationError, match="1 to 200 characters"):
        desk.reserve("attempt-2", reason="x" * 201)


class ReplaceOne(Gaussian):
    """An event that the accountant does not know."""


@pytest.mark.parametrize("unknown", [ReplaceOne(noise_multiplier=1.0), {"kind": "gaussian"}, None, 1.0])
def test_an_event_that_is_not_known_is_refused_and_the_ledger_unchanged(desk: Any, unknown: Any) -> None:
    before = desk.ledger.head()
    with pytest.raises(AccountingError):
        desk.reserve(mechanisms=(MOMENTS, unknown))
    assert desk.ledger.head() == before
    assert set(desk.balance().spent) == {0}


def test_a_failed_accounting_reads_as_over_budget_and_leaves_the_ledger_unchanged(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = desk.reserve(lease_seconds=1)
    desk.claim(expired, 5)
    desk.now += 1
    before = desk.ledger.head()

    def fail(*_: object) -> Any:
        raise AccountingError("cannot be computed")

    monkeypatch.setattr(ledger_rows, "rdp_units", fail)  # while the expired lease is settled
    with pytest.raises(BudgetError):
        desk.reserve("attempt-2")
    assert desk.ledger.head() == before
    assert desk.balance().runs["running"] == 1


def test_the_file_and_its_folder_are_their_owners_alone(desk: Any) -> None:
    home = desk.path.parent
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


def test_a_ledger_opened_again_knows_everything(desk: Any) -> None:
    held = desk.reserve()
    desk.claim(held, 7)
    with desk.open() as again:
        assert again.population("patients") == desk.ledger.population("patients")
        assert again.head() == desk.ledger.head()
        again.claim(reservation_id=held.id, token=held.token, upto=8)
