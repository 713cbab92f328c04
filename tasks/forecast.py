"""What a configuration will cost before it costs anything. Reads no record and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim

from configs.schema import Config, Schedule
from tasks.planning import person_epsilon_of, plan_of
from tasks.privacy.accounting import pld_epsilon, rdp_epsilon, rdp_units
from tasks.privacy.budget import PrivacyFilter, added
from tasks.privacy.events import Mechanism
from tasks.privacy.ledger import Ledger
from tasks.privacy.refusal import CAP, mend

_NOT_FIXED = (
    "The guarantee is not in the ledger yet: the privacy officer may still set another in privacy.guarantee, until the "
    "first run fixes it for good"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The plan of a configuration and what its population has left.

    Attributes:
        unit: what epsilon protects.
        units: public nominal number of training units.
        rows_per_unit: most rows of one unit.
        sampling_rate: q.
        steps: T.
        noise_multiplier: σ.
        epsilon: of one run at `delta`, under PLD.
        rdp_epsilon: the same under RDP.
        delta: δ.
        person_epsilon: with `unit: row`, what a person with the most allowed rows gets; else None.
        population: its name.
        known: whether the ledger has the population already.
        guarantee_epsilon: the cap over all runs.
        guarantee_delta: its delta.
        used_epsilon: used so far.
        epsilon_after: used with one such run more.
        runs_that_fit: how many such runs the ledger still admits.
        last_run: when the last of them would run, by the schedule; None without one or without a run.
        warnings: what a privacy officer should look at.
        refusal: why not even one run fits; empty if one does.
    """

    unit: str
    units: int
    rows_per_unit: int
    sampling_rate: float
    steps: int
    noise_multiplier: float
    epsilon: float
    rdp_epsilon: float
    delta: float
    person_epsilon: float | None
    population: str
    known: bool
    guarantee_epsilon: float
    guarantee_delta: float
    used_epsilon: float
    epsilon_after: float
    runs_that_fit: int
    last_run: str | None
    warnings: tuple[str, ...]
    refusal: str


def forecast(config: Config, *, home: Path, now: datetime | None = None) -> Forecast:
    """Plan a run and hold it against the ledger.

    Args:
        config: the configuration.
        home: where the ledger lies, if there is one yet.
        now: from when the schedule is counted.

    Raises:
        ConfigurationError: unit or guarantee differ from the ledger's.
        BudgetError: no noise fits the run's budget, or it cannot be accounted.
    """
    privacy, plan = config.privacy, plan_of(config)
    rule, spent, known = _standing(config, plan.mechanisms, home)
    charge = rdp_units(plan.mechanisms, rule.orders)
    fits = rule.fits(spent=spent, charge=charge)
    return Forecast(
        unit=plan.unit,
        units=plan.units,
        rows_per_unit=privacy.max_rows_per_person,
        sampling_rate=plan.sampling_rate,
        steps=plan.steps,
        noise_multiplier=plan.noise_multiplier,
        epsilon=pld_epsilon(mechanisms=plan.mechanisms, delta=plan.delta),
        rdp_epsilon=rdp_epsilon(mechanisms=plan.mechanisms, delta=plan.delta),
        delta=plan.delta,
        person_epsilon=person_epsilon_of(config, plan),
        population=privacy.population,
        known=known,
        guarantee_epsilon=rule.epsilon,
        guarantee_delta=rule.delta,
        used_epsilon=rule.used_epsilon(spent),
        epsilon_after=rule.used_epsilon(added(spent, charge)),
        runs_that_fit=fits,
        last_run=_last_run(config.schedule, fits, now or datetime.now(UTC)),
        warnings=tuple(_warnings(config, fits, known)),
        refusal="" if fits else _refusal(config, plan.mechanisms, rule, spent, charge, known),
    )


def _standing(config: Config, mechanisms: Sequence[Mechanism], home: Path) -> tuple[PrivacyFilter, Sequence[int], bool]:
    """The population's rule and what is charged or reserved; the rule it would get, where it is not known yet."""
    privacy, path = config.privacy, home / "ledger.db"
    if path.is_file():
        with Ledger.open(path) as ledger:
            state = ledger.population(privacy.population)
        if state is not None:
            state.require(
                unit=privacy.unit,
                epsilon=privacy.guarantee.epsilon,
                delta=privacy.guarantee.delta,
                planned_runs=privacy.guarantee.planned_runs,
            )
            return state.rule, state.spent, True
    rule = _planned(config, mechanisms)
    return rule, (0,) * len(rule.orders), False


def _planned(config: Config, mechanisms: Sequence[Mechanism]) -> PrivacyFilter:
    guarantee = config.privacy.guarantee
    return PrivacyFilter.planned(
        epsilon=guarantee.epsilon, delta=guarantee.delta, planned_runs=guarantee.planned_runs, run=mechanisms
    )


def _last_run(schedule: Schedule | None, fits: int, now: datetime) -> str | None:
    if schedule is None or not fits:
        return None
    times = CronSim(schedule.cron, now.astimezone(ZoneInfo(schedule.timezone)))
    last = next(islice(times, min(fits, 10_000) - 1, None), None)
    return last.isoformat() if last is not None else None


def _warnings(config: Config, fits: int, known: bool) -> list[str]:
    privacy, found = config.privacy, list[str]()
    usual = privacy.units**-1.1
    for name, delta in (("run.delta", privacy.run.delta), ("guarantee.delta", privacy.guarantee.delta)):
        if delta >= usual:
            found.append(f"privacy.{name} = {delta:g} is large for {privacy.units} units; below {usual:.2g} is usual")
    planned = privacy.guarantee.planned_runs
    if not known and 0 < fits < planned:
        found.append(
            f"the guarantee admits {fits} such runs, and {planned} are planned: lower privacy.run.epsilon, or let the "
            "privacy officer set another guarantee before the first run fixes it"
        )
    if privacy.unit == "row" and config.data.person is None:
        found.append("there is no data.person: the claim is about one row, and says nothing of a person with several")
    return found


def _refusal(
    config: Config,
    mechanisms: Sequence[Mechanism],
    rule: PrivacyFilter,
    spent: Sequence[int],
    charge: Sequence[int],
    known: bool,
) -> str:
    used, needed = rule.used_epsilon(spent), rule.used_epsilon(added(spent, charge))
    fitting = mend(mechanisms=mechanisms, delta=config.privacy.run.delta, admits=_admits(config, rule, spent, known))
    whose = CAP if known else _NOT_FIXED
    return (
        f"population {config.privacy.population}: not one such run fits. The guarantee is ε = {rule.epsilon:g} at "
        f"δ = {rule.delta:g}, used so far is ε = {used:.4g}, and with this run it would be ε = {needed:.4g}. "
        f"{fitting}{whose}"
    )


def _admits(
    config: Config, rule: PrivacyFilter, spent: Sequence[int], known: bool
) -> Callable[[Sequence[Mechanism]], bool]:
    """Whether another run would fit; a population that is not known yet gets the rule that this run plans."""

    def admits(run: Sequence[Mechanism]) -> bool:
        its = rule if known else _planned(config, run)
        return its.admits(spent=spent if known else (0,) * len(its.orders), charge=rdp_units(run, its.orders))

    return admits
