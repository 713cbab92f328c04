"""Whatever order things happen in: what was ever claimed composes to within the guarantee.

The composition is recomputed outside the code under test, by the library's accountant at the filter's orders.
"""

import math
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from configs.errors import BudgetError
from tasks.privacy.events import Gaussian, Mechanism, SampledGaussian, prefix, total_claims
from tasks.privacy.ledger import Ledger
from tasks.privacy.ledger_state import Reservation

PLANNED = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000)
runs = st.lists(
    st.one_of(
        st.builds(Gaussian, noise_multiplier=st.sampled_from([3.0, 8.0])),
        st.builds(
            SampledGaussian,
            sampling_rate=st.sampled_from([0.01, 0.1]),
            noise_multiplier=st.sampled_from([0.8, 2.0]),
            steps=st.integers(1, 400),
        ),
    ),
    min_size=1,
    max_size=2,
)


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger, and keeps an account of its own of every claim that was granted."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1.8e9
        self.path = Path(self.folder.name) / "ledger.db"
        self.ledger = Ledger.open(self.path, clock=lambda: self.now)
        self.state = self.ledger.create_population(
            name="patients",
            unit="person",
            epsilon=4.0,
            delta=1e-6,
            planned_runs=3,
            planned=(PLANNED,),
            actor="officer",
        )
        self.claimed: dict[str, tuple[tuple[Mechanism, ...], int]] = {}
        self.keys = 0

    def teardown(self) -> None:
        assert self.ledger.verify().faults == ()
        self.ledger.close()
        self.folder.cleanup()

    @rule(target=held, mechanisms=runs, lease=st.sampled_from([10.0, 1000.0]))
    def reserve(self, mechanisms: list[Mechanism], lease: float) -> Any:
        self.keys += 1
        try:
            made = self.ledger.reserve(
                population="patients",
                mechanisms=mechanisms,
                idempotency_key=f"attempt-{self.keys}",
                actor="engineer",
                reason="test",
                lease_seconds=lease,
            )
        except BudgetError:
            return None
        assert made.total == total_claims(mechanisms)
        self.claimed[made.id] = (tuple(mechanisms), 0)
        return made

    @rule(made=held, share=st.floats(0, 1.1))
    def claim(self, made: Reservation | None, share: float) -> None:
        if made is None:
            return
        upto = math.ceil(share * made.total)
        mechanisms, before = self.claimed[made.id]
        try:
            self.ledger.claim(reservation_id=made.id, token=made.token, upto=upto)
        except BudgetError:
            return
        assert before < upto <= made.total
        self.claimed[made.id] = (mechanisms, upto)

    @rule(made=consumes(held))
    def commit(self, made: Reservation | None) -> None:
        if made is not None:
            executed = self.claimed[made.id][1]
            self.close(made, lambda: self.ledger.commit(reservation_id=made.id, token=made.token, executed=executed))

    @rule(made=consumes(held))
    def abandon(self, made: Reservation | None) -> None:
        if made is not None:
            self.close(made, lambda: self.ledger.abandon(reservation_id=made.id, token=made.token, reason="test"))

    def close(self, made: Reservation, act: Callable[[], object]) -> None:
        """Closing is refused exactly when the lease ran out and somebody settled it."""
        fenced = any(
            entry["kind"] == "lease_expired" and entry["payload"]["reservation"] == made.id
            for entry in self.ledger.entries()
        )
        with pytest.raises(BudgetError, match="stale") if fenced else nullcontext():
            act()

    @rule(seconds=st.sampled_from([5.0, 20.0, 2000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path, clock=lambda: self.now)

    @invariant()
    def what_was_claimed_composes_to_within_the_guarantee(self) -> None:
        accountant = RdpAccountant(list(self.state.orders))
        for mechanisms, claims in self.claimed.values():
            for part in prefix(mechanisms, claims):
                event: dp.DpEvent = dp.GaussianDpEvent(part.noise_multiplier)
                if isinstance(part, SampledGaussian):
                    event = dp.PoissonSampledDpEvent(part.sampling_rate, event)
                accountant.compose(dp.SelfComposedDpEvent(event, part.claims))
        # At least one order is within its own share of delta: the bound that the proof in README.md sums up.
        within = [
            divergence + math.log1p(-1 / order) - math.log(weight * self.state.delta * order) / (order - 1)
            for order, weight, divergence in zip(self.state.orders, self.state.weights, accountant._rdp, strict=True)
        ]
        assert min(within) <= self.state.epsilon
        balance = self.ledger.population("patients")
        assert balance is not None
        assert balance.used_epsilon <= balance.epsilon + 1e-12
        assert all(
            units >= math.floor(divergence * 1e12 * (1 - 1e-12))
            for units, divergence in zip(balance.spent, accountant._rdp, strict=True)
        )


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
