"""`check` says what a run would cost and, where none fits, what to write in the file instead."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.load import load
from tasks.forecast import forecast
from tasks.planning import plan_of
from tasks.privacy.events import total_claims
from tasks.privacy.ledger import Ledger

Small = Callable[..., Path]
RUN = "run: {epsilon: 8.0, delta: 1e-5}"
GUARANTEE = "epsilon: 20.0, delta: 1e-5, planned_runs: 3"


def named(refusal: str) -> str:
    found = re.search(r"The largest privacy\.run\.epsilon that would fit is ([\d.]+), at delta 1e-05\.", refusal)
    assert found is not None, refusal
    return found[1]


def fits(path: Path, home: Path) -> int:
    return forecast(load(path).config, home=home).runs_that_fit


def spend_all(home: Path, path: Path) -> None:
    """Charge such runs to the real ledger until none fits."""
    config = load(path).config
    privacy, mechanisms = config.privacy, plan_of(config).mechanisms
    with Ledger.open(home / "ledger.db") as ledger:
        state = ledger.create_population(
            name=privacy.population,
            unit=privacy.unit,
            **privacy.guarantee.model_dump(),
            planned=mechanisms,
            actor="test",
        )
        claims = total_claims(mechanisms)
        for number in range(state.fits(mechanisms)):
            held = ledger.reserve(
                population=state.name,
                mechanisms=mechanisms,
                idempotency_key=str(number),
                actor="test",
                reason="test",
            )
            ledger.claim(reservation_id=held.id, token=held.token, upto=claims)
            ledger.commit(reservation_id=held.id, token=held.token, executed=claims)


def test_a_refusal_before_the_first_run_names_an_epsilon_that_fits_and_who_sets_the_guarantee(
    home: Path, small: Small, discreet: Any
) -> None:
    guarantee = {GUARANTEE: "epsilon: 8.0, delta: 1e-5, planned_runs: 1000"}
    code, _, err = discreet("check", str(small(guarantee)))
    assert code == 30
    assert "the privacy officer may still set another in privacy.guarantee, until the first run fixes it" in err
    assert "have the guarantee raised" not in err
    assert "noise" not in err
    lower = small({**guarantee, RUN: RUN.replace("8.0", named(err))}, name="lower.yaml")
    assert fits(lower, home) == 1
    assert not home.exists()


def test_a_refusal_of_a_known_population_names_an_epsilon_that_fits_and_offers_no_raise(
    home: Path, small: Small, discreet: Any
) -> None:
    path = small()
    spend_all(home, path)
    before = {file: file.read_bytes() for file in home.iterdir()}
    code, _, err = discreet("check", str(path))
    assert code == 30
    assert "only two named approvers could raise a population's cap, which this version does not offer yet" in err
    lower = small({RUN: RUN.replace("8.0", named(err))}, name="lower.yaml")
    assert fits(lower, home) == 1
    assert {file: file.read_bytes() for file in home.iterdir()} == before


def test_the_forecast_tells_what_is_used_with_one_run_more(home: Path, small: Small) -> None:
    path = small()
    found = forecast(load(path).config, home=home)
    assert (found.used_epsilon, found.refusal) == (0.0, "")
    assert 0 < found.epsilon_after < found.guarantee_epsilon
    spend_all(home, path)
    found = forecast(load(path).config, home=home)
    assert found.used_epsilon <= found.guarantee_epsilon < found.epsilon_after
