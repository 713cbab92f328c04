"""What was run on people's records: the parameters that are necessary and sufficient for accounting.

>>> moments = Gaussian(noise_multiplier=8.0)
>>> run = (moments, SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=1000))
>>> from_json(to_json(run)) == run
True

Law of evolution. The ledger keeps these records for as long as the people's data exist, therefore: a kind is
never removed and never changes its meaning; a field is never removed, renamed or given another unit; a new
field is optional, and its absence means what the record meant before; a kind or field that is not known is
refused, never skipped, because skipping it would forget what was spent.

All mechanisms are stated for one privacy unit added or removed. σ (`noise_multiplier`) is the noise's
standard deviation divided by the l2 sensitivity, so the clipping norm does not appear.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from configs.errors import AccountingError, ConfigurationError

MAX_STEPS: Final = 10**7  # far above any training here, and what the accountant still composes in memory


def _number(name: str, value: object) -> float:
    """Refuse what is no finite real number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(f"{name} = {value!r} must be a finite number")
    return float(value)


def _positive(name: str, value: object) -> float:
    number = _number(name, value)
    if number <= 0:
        raise ConfigurationError(f"{name} = {number!r} must be above 0")
    return number


def _rate(name: str, value: object) -> float:
    number = _number(name, value)
    if not 0 < number <= 1:
        raise ConfigurationError(f"{name} = {number!r} must be in (0, 1]; it is privacy.expected_batch / privacy.units")
    return number


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_STEPS:
        raise ConfigurationError(f"{name} = {value!r} must be an integer in [1, {MAX_STEPS}]")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """One Gaussian release over all units (sampling rate 1), for example the moments.

    Attributes:
        noise_multiplier: σ > 0, in units of the release's l2 sensitivity.

    Raises:
        ConfigurationError: σ is NaN, infinite, or not above 0.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _positive("noise_multiplier", self.noise_multiplier))

    @property
    def claims(self) -> int:
        """How many claims the ledger counts for it: one."""
        return 1

    def first(self, claims: int) -> "Gaussian":  # noqa: ARG002  (same signature as SampledGaussian.first)
        """The part that the first claim covers: all of it."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian:
    """DP-SGD: `steps` Gaussian sums, each over an independent Poisson sample of the units.

    Attributes:
        sampling_rate: q in (0, 1], the probability with which each unit enters a step.
        noise_multiplier: σ > 0, in units of the clipping norm.
        steps: T ≥ 1, an integer.

    Raises:
        ConfigurationError: a field is NaN, infinite, of another type, or outside its range.
    """

    sampling_rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_rate", _rate("sampling_rate", self.sampling_rate))
        object.__setattr__(self, "noise_multiplier", _positive("noise_multiplier", self.noise_multiplier))
        object.__setattr__(self, "steps", _count("steps", self.steps))

    @property
    def claims(self) -> int:
        """How many claims the ledger counts for it: one a step."""
        return self.steps

    def first(self, claims: int) -> "SampledGaussian":
        """The part that the first `claims` claims cover.

        Raises:
            ConfigurationError: `claims` is not an integer ≥ 1.
        """
        return SampledGaussian(
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            steps=min(_count("claims", claims), self.steps),
        )


Mechanism = Gaussian | SampledGaussian

_KINDS: Final[dict[str, type[Gaussian] | type[SampledGaussian]]] = {
    "gaussian": Gaussian,
    "sampled_gaussian": SampledGaussian,
}
_NAMES: Final = {cls: kind for kind, cls in _KINDS.items()}


def total_claims(mechanisms: Sequence[Mechanism]) -> int:
    """How many claims a run makes over its mechanisms in order: 1 for a Gaussian, T for a sampled one."""
    return sum(mechanism.claims for mechanism in mechanisms)


def prefix(mechanisms: Sequence[Mechanism], claims: int) -> tuple[Mechanism, ...]:
    """What the first `claims` claims of a run have touched, in the order in which it runs.

    >>> prefix((Gaussian(noise_multiplier=8.0),), 0)
    ()
    """
    done: list[Mechanism] = []
    for mechanism in mechanisms:
        if claims <= 0:
            break
        done.append(mechanism.first(min(claims, mechanism.claims)))
        claims -= mechanism.claims
    return tuple(done)


def to_json(mechanisms: Sequence[Mechanism]) -> list[dict[str, Any]]:
    """The records as plain values; `from_json` is its inverse, exactly.

    Raises:
        AccountingError: an element is not a mechanism.
    """
    records: list[dict[str, Any]] = []
    for mechanism in mechanisms:
        kind = _NAMES.get(type(mechanism))
        if kind is None:
            raise AccountingError(
                f"a mechanism of type {type(mechanism).__name__} cannot be accounted; known: {', '.join(_KINDS)}"
            )
        records.append({"kind": kind, **asdict(mechanism)})
    return records


def from_json(records: Sequence[Mapping[str, Any]]) -> tuple[Mechanism, ...]:
    """Read mechanisms back; what is unknown is refused, never skipped.

    Raises:
        AccountingError: the value is no list of objects, a kind or a field is unknown, a field is missing.
        ConfigurationError: a value is outside its range.
    """
    values: object = records
    if not isinstance(values, list | tuple):
        raise AccountingError(f"mechanisms must be a list of objects, not {type(values).__name__}")
    return tuple(_from_record(record) for record in cast("Sequence[object]", values))


def _from_record(record: object) -> Mechanism:
    if not isinstance(record, Mapping):
        raise AccountingError(f"a mechanism must be an object, not {type(record).__name__}")
    fields = dict(cast("Mapping[str, Any]", record))
    kind = fields.pop("kind", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise AccountingError(f"mechanism kind {kind!r} is unknown; known: {', '.join(_KINDS)}")
    expected = set(cls.__dataclass_fields__)
    if set(fields) != expected:
        raise AccountingError(
            f"mechanism {kind!r} has fields {sorted(fields)}, expected {sorted(expected)}; "
            "a newer Discreet may have written it"
        )
    return cls(**fields)
