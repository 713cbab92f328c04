"""What a run may claim about privacy, and what it may not: one place, so that every report says the same.

A statement never calls a model safe or anonymous. Epsilon never stands without delta and the unit.
Fields after the registry of DP deployments and NIST SP 800-226.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from configs.errors import ConfigurationError
from tasks.privacy.accounting import ACCOUNTANT, ADJACENCY
from tasks.privacy.guard import checked_delta, checked_epsilon

COVERS: Final = (
    "the final weights",
    "the noisy means and variances of the features, where they were released",
    "everything computed from these alone",
)
NOT_COVERED: Final = (
    "metrics on the hold-out, on its members, or per group",
    "results of twins, controls and shadow models",
    "counts and outcomes of the data checks, row counts and durations",
    "the gate's decision",
    "the people in the hold-out: they have no epsilon at all",
    "what is true of people in general: a model may reveal it about somebody whose record it never saw",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpStatement:
    """The claim of one run.

    Attributes:
        epsilon: ε of the run under PLD, finite, ≥ 0.
        delta: δ in (0, 1).
        unit: "person" or "row": what is added or removed.
        rows_per_unit: most rows that one person brings in, ≥ 1.
        steps: T.
        sampling_rate: q in (0, 1].
        noise_multiplier: σ > 0, in units of the clipping norm.
        clipping: "flat" or "normalised".
        clipping_norm: C > 0, an l2 norm.
        sampling: as implemented.
        moments_noise_multiplier: σ of the charged release of means and variances, or None.
        accountant_version: the library and its version, from `accounting.accountant_version()`.
        ledger_epsilon: ε_G of the population.
        ledger_delta: δ_G of the population.
        ledger_used: what is used of ε_G, this run included.
        adaptivity: whether the runs were all fixed in advance.
        rehearsed: whether nothing ran on anybody's records, so that nothing is used.
        person_epsilon: with unit "row", what a person with `rows_per_unit` rows gets; None when persons are
            unknown or the unit is the person.

    Raises:
        AccountingError: an epsilon or delta is no such number. ConfigurationError: another value is wrong.
    """

    epsilon: float
    delta: float
    unit: Literal["person", "row"]
    rows_per_unit: int
    steps: int
    sampling_rate: float
    noise_multiplier: float
    clipping: Literal["flat", "normalised"]
    clipping_norm: float
    accountant_version: str
    ledger_epsilon: float
    ledger_delta: float
    ledger_used: float
    sampling: str = "poisson"
    moments_noise_multiplier: float | None = None
    adaptivity: Literal["planned", "adaptive"] = "adaptive"
    rehearsed: bool = False
    person_epsilon: float | None = None

    def __post_init__(self) -> None:
        checked_delta(self.delta)
        checked_delta(self.ledger_delta)
        for name in ("epsilon", "ledger_epsilon", "ledger_used"):
            checked_epsilon(what=name, value=getattr(self, name))
        if self.unit not in ("person", "row") or self.rows_per_unit < 1:
            raise ConfigurationError(
                f"unit = {self.unit!r} with {self.rows_per_unit!r} rows must be person or row, with 1 or more"
            )
        if self.person_epsilon is not None:
            checked_epsilon(what="person_epsilon", value=self.person_epsilon)
            if self.unit == "person":
                raise ConfigurationError("with unit person, epsilon is a person's already: omit person_epsilon")

    @property
    def ledger_remaining(self) -> float:
        """ε_G less what is used, never below 0."""
        return max(self.ledger_epsilon - self.ledger_used, 0.0)

    @property
    def covers(self) -> tuple[str, ...]:
        """What ε holds for."""
        return COVERS

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What ε does not hold for."""
        return NOT_COVERED

    def plain(self) -> str:
        """One sentence for a privacy officer."""
        unit = "person" if self.unit == "person" else "row"
        people = self._people()
        used = "would be used by a first run" if self.rehearsed else "is used"
        return (
            f"Whether or not any one {unit} was in the training data changes what anybody can learn from the "
            f"trained model by at most epsilon {_shown(self.epsilon)} at delta {self.delta:g}{people}; all "
            f"models ever trained on this population together stay within epsilon {self.ledger_epsilon:g} at "
            f"delta {self.ledger_delta:g} per {unit}, of which {_shown(self.ledger_used)} {used}."
        )

    def exact(self) -> str:
        """One sentence for a privacy engineer."""
        moments = (
            f"one Gaussian release of the moments (σ = {self.moments_noise_multiplier:g}) and "
            if self.moments_noise_multiplier is not None
            else ""
        )
        return (
            f"({_shown(self.epsilon)}, {self.delta:g})-differential privacy under addition or removal of one "
            f"{self.unit}{self._rows()}, for {moments}{self.steps} steps of DP-SGD with {self.sampling} "
            f"sampling at q = {self.sampling_rate:g}, {self.clipping} clipping at C = {self.clipping_norm:g} "
            f"and Gaussian noise of standard deviation {self.noise_multiplier:g} C, composed by {ACCOUNTANT} "
            f"({self.accountant_version}); over all runs the ledger's fixed-order Rényi filter guarantees "
            f"({self.ledger_epsilon:g}, {self.ledger_delta:g}), "
            f"{'by a first run ' if self.rehearsed else ''}used {_shown(self.ledger_used)}, "
            f"remaining {self.ledger_remaining:.4g}{self._people()}."
        )

    def tags(self) -> dict[str, str]:
        """The `dp.*` tags of a model version and a run."""
        tags = {
            "dp.variant": "approximate_dp",
            "dp.unit": self.unit,
            "dp.unit.max_rows": str(self.rows_per_unit),
            "dp.adjacency": ADJACENCY,
            "dp.epsilon": _shown(self.epsilon),
            "dp.delta": f"{self.delta:g}",
            "dp.ledger_epsilon_cap": f"{self.ledger_epsilon:g}",
            "dp.ledger_epsilon_used": _shown(self.ledger_used),
            "dp.accountant": f"{ACCOUNTANT}, {self.accountant_version}",
            "dp.adaptivity": self.adaptivity,
            "dp.sampling": self.sampling,
            "dp.sampling_matches": str(self.sampling == "poisson").lower(),
            "dp.covers": _listed(self.covers),
            "dp.not_covered": _listed(self.not_covered),
            "dp.preprocessing": "public bounds and code books"
            + ("" if self.moments_noise_multiplier is None else ", moments charged"),
            "dp.eval_covered": "no",
            "dp.model": "central",
            "dp.statement": self.plain(),
        }
        if self.person_epsilon is not None:
            tags["dp.person_epsilon"] = _shown(self.person_epsilon)
        return tags

    def _rows(self) -> str:
        if self.unit == "person":
            return f" with at most {self.rows_per_unit} rows"
        return f" of the training table, which holds at most {self.rows_per_unit} rows of one person"

    def _people(self) -> str:
        if self.unit == "person":
            return ""
        if self.person_epsilon is None:
            return " (per row, not per person: what a person with several rows gets is not known)"
        person = f"epsilon {_shown(self.person_epsilon)} at delta {self.delta:g}"
        return f" (a person, whose rows beyond {self.rows_per_unit} are left out: {person})"


def _shown(epsilon: float) -> str:
    """An epsilon rounded up, never down: 3 decimals, or 2 significant digits where these would say 0.

    >>> _shown(2.9999), _shown(0.0), _shown(0.000123)
    ('3.000', '0.000', '0.00013')
    """
    if epsilon == 0 or epsilon >= 0.01:
        return f"{math.ceil(epsilon * 1000) / 1000:.3f}"
    digits = 1 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10**digits) / 10**digits:.{digits}f}"


def _listed(items: Sequence[str]) -> str:
    return "; ".join(items)
