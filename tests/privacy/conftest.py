"""A ledger with one population, and a desk to use it from: what every test of the ledger needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.privacy.accounting import rdp_units
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian, prefix
from tasks.privacy.ledger import Ledger
from tasks.privacy.ledger_state import PopulationState, Reservation

MOMENTS = Gaussian(noise_multiplier=8.0)
TRAINING = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
RUN: tuple[Mechanism, ...] = (MOMENTS, TRAINING)  # 1001 claims


class Desk:
    """An open ledger with short ways to use it. Its seconds pass only when a test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1.8e9
        self.ledger = self.open()
        self.create()

    def open(self) -> Ledger:
        return Ledger.open(self.path, clock=lambda: self.now)

    def create(self, **changes: Any) -> PopulationState:
        arguments: dict[str, Any] = {
            "name": "patients",
            "unit": "person",
            "epsilon": 6.0,
            "delta": 1e-6,
            "planned_runs": 5,
            "planned": RUN,
            "actor": "officer",
        }
        return self.ledger.create_population(**(arguments | changes))

    def reserve(self, key: str = "attempt-1", **changes: Any) -> Reservation:
        arguments: dict[str, Any] = {
            "population": "patients",
            "mechanisms": RUN,
            "idempotency_key": key,
            "actor": "engineer",
            "reason": "monthly retraining",
        }
        return self.ledger.reserve(**(arguments | changes))

    def claim(self, held: Reservation, upto: int) -> None:
        self.ledger.claim(reservation_id=held.id, token=held.token, upto=upto)

    def commit(self, held: Reservation, executed: int) -> PopulationState:
        return self.ledger.commit(reservation_id=held.id, token=held.token, executed=executed)

    def abandon(self, held: Reservation, reason: str = "test") -> PopulationState:
        return self.ledger.abandon(reservation_id=held.id, token=held.token, reason=reason)

    def balance(self) -> PopulationState:
        state = self.ledger.population("patients")
        assert state is not None
        return state

    def cost(self, claims: int) -> tuple[int, ...]:
        """What the first claims of `RUN` cost, in the ledger's units."""
        return rdp_units(prefix(RUN, claims), self.balance().orders)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(tmp_path / "home" / "ledger.db")
    yield opened
    opened.ledger.close()
