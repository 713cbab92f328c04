"""Serving: each configuration's schedule becomes a Prefect deployment, run by this process while it lives.

A deployment says which file is retrained, where and why; nothing in it changes epsilon. A retraining that was missed
while nobody served is dropped, not caught up: each would spend budget on the same records.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim
from rich.console import Console
from rich.text import Text

from configs.errors import ConfigurationError, InternalError
from configs.load import load, load_runtime
from configs.schema import Schedule
from flows import environment, server

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

FLOW_NAME = "retraining"
ENTRYPOINT = "flows.retraining.retrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One configuration to retrain on its schedule.

    Attributes:
        model: its name, and the deployment's.
        population: whose records it trains on.
        path: the file, absolute; links in it are kept, so that a file may be replaced by moving a link.
        runtime: where it runs: a name in `configs/runtime/`, or an absolute path.
        schedule: when.
    """

    model: str
    population: str
    path: Path
    runtime: str
    schedule: Schedule

    @property
    def parameters(self) -> dict[str, str]:
        """All that a scheduled run is told."""
        return {"config_path": str(self.path), "runtime": self.runtime, "reason": "scheduled"}

    def next_run(self, now: datetime) -> datetime:
        """When the schedule fires next after `now`, in its own time zone."""
        return next(CronSim(self.schedule.cron, now.astimezone(ZoneInfo(self.schedule.timezone))))


def services(paths: Sequence[str], *, runtime: str) -> list[Service]:
    """Check everything that is to be served before anything starts.

    Args:
        paths: the models' YAML files.
        runtime: a name in `configs/runtime/`, or the path of a file.

    Raises:
        ConfigurationError: a file is wrong or has no `schedule`, or two are the same file or the same model; all
            faults of all files at once.
    """
    load_runtime(runtime)
    place = str(Path(runtime).absolute()) if runtime.endswith((".yaml", ".yml")) else runtime
    found, faults, files = list[Service](), list[str](), dict[Path, str]()
    for path in paths:
        if (same := files.setdefault(Path(path).resolve(), path)) is not path:
            faults.append(f"{path}: is the same file as {same}; name it once")
            continue
        try:
            config = load(path).config
        except ConfigurationError as error:
            faults.append(str(error))
            continue
        if config.schedule is None:
            faults.append(
                f"{path}: schedule is missing, so there is nothing to serve; add a line such as "
                '`schedule: {cron: "0 3 1 * *", timezone: Europe/Zurich}`, or retrain by hand with discreet run'
            )
            continue
        population, file = config.privacy.population, Path(path).absolute()
        service = Service(model=config.model, population=population, path=file, runtime=place, schedule=config.schedule)
        twin = next((other for other in found if other.model == service.model), None)
        if twin is not None:
            faults.append(
                f"{path}: model = {service.model} is the model of {twin.path} too; one model has one schedule: "
                "give this one a name of its own, or leave it out"
            )
        found.append(service)
    if faults:
        raise ConfigurationError("\n".join(faults))
    return found


def deployment(service: Service) -> RunnerDeployment:
    """The Prefect deployment of a service. The flow itself, with torch behind it, is imported by its runs alone.

    Raises:
        ConfigurationError: Prefect cannot read the schedule.
    """
    from prefect.deployments.runner import RunnerDeployment
    from prefect.schedules import Cron
    from prefect.utilities.callables import parameter_schema_from_entrypoint

    try:
        made = RunnerDeployment(
            name=service.model,
            flow_name=FLOW_NAME,
            entrypoint=ENTRYPOINT,
            schedules=[Cron(service.schedule.cron, timezone=service.schedule.timezone)],  # pyright: ignore[reportArgumentType]
            parameters=dict(service.parameters),
            paused=False,  # as an earlier end left it
            description=f"Retrains {service.model} on the population {service.population}.",
            enforce_parameter_schema=True,
        )
    except ValueError:
        raise ConfigurationError(
            f"{service.path}: schedule.cron = {service.schedule.cron} cannot be read by Prefect; "
            "write five fields of numbers, such as `0 3 1 * *`"
        ) from None
    made._parameter_openapi_schema = parameter_schema_from_entrypoint(ENTRYPOINT)  # what `to_deployment` does
    return made


def serve(paths: Sequence[str], *, runtime: str, console: Console) -> None:
    """Serve until SIGTERM or SIGINT; a run under way is stopped, and what it claimed stays charged.

    Uses the Prefect server of PREFECT_API_URL. Without one it starts a server of its own, on the loopback interface
    and with a password that only its own runs know, which ends with this process.

    Args:
        paths: the models' YAML files.
        runtime: a name in `configs/runtime/`, or the path of a file.
        console: where it is told what is served.

    Raises:
        ConfigurationError: see `services`; or the server of PREFECT_API_URL does not answer.
        InternalError: the server of its own does not start, or a server is gone for long.
    """
    served = services(paths, runtime=runtime)
    home = Path(load_runtime(runtime).home).expanduser().resolve()
    # here nobody but Prefect tells how a run went
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "WARNING")
    environment.embedded(home)
    signal.signal(signal.SIGTERM, _interrupt)
    # told to stop while it starts, Prefect's runner ends with SystemExit
    with suppress(KeyboardInterrupt, SystemExit), server.reached(home, console) as settings:
        from prefect.settings import temporary_settings

        deployments = [deployment(service) for service in served]
        with temporary_settings(settings):
            asyncio.run(_serving(deployments, lambda missed: _tell(console, served, missed)))
    console.print("stopped; nothing runs until discreet serve is started again")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


async def _serving(deployments: Sequence[RunnerDeployment], ready: Callable[[int], None]) -> None:
    """Register the deployments, drop what was missed, and run what falls due until told to stop."""
    import httpx
    from prefect.runner import Runner
    from prefect.settings import PREFECT_API_URL

    # One run under way and one that waits its turn for each. Prefect's own concurrency limit would not do: where its
    # server forgets the lease, as on a restart, it kills the run in the middle, after the budget is claimed.
    runner = Runner(name="discreet", limit=2 * len(deployments), pause_on_shutdown=True)
    try:
        numbers = [await runner.aadd_deployment(made) for made in deployments]
        ready(await drop_missed(numbers))
    except httpx.HTTPError as error:
        raise ConfigurationError(
            f"the Prefect server at {PREFECT_API_URL.value()} does not answer as it should ({_kind(error)}); start it, "
            "set PREFECT_API_URL (and PREFECT_API_AUTH_STRING where it asks for a password), or unset PREFECT_API_URL "
            "for a server of this command's own"
        ) from None
    signal.signal(signal.SIGINT, runner.handle_sigterm)  # both end the same way: paused, and runs under way stopped
    try:
        await runner.start()
    except Exception:
        raise InternalError(
            f"the Prefect server at {PREFECT_API_URL.value()} no longer answers, so nothing is served any more; "
            "start discreet serve again once it does"
        ) from None


async def drop_missed(deployments: Sequence[UUID]) -> int:
    """Cancel the runs that a schedule of these deployments asked for in the past and that nobody has begun.

    Prefect would run them all, one after another, each at the full price. What a person asked for is left alone.

    Returns:
        How many there were.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelled

    state = filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
    due = filters.FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))  # pyright: ignore[reportArgumentType]
    which = filters.DeploymentFilter(id=filters.DeploymentFilterId(any_=list(deployments)))
    dropped = 0
    async with get_client() as client:
        while True:
            runs = await client.read_flow_runs(
                deployment_filter=which, flow_run_filter=filters.FlowRunFilter(state=state, expected_start_time=due)
            )
            missed = [run for run in runs if run.auto_scheduled]
            for run in missed:
                words = "missed while nobody served it; a missed retraining is not caught up"
                await client.set_flow_run_state(run.id, Cancelled(message=words), force=True)
            dropped += len(missed)
            if not missed:
                return dropped


def _kind(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"HTTP {status}" if status else type(error).__name__


def _tell(console: Console, served: Sequence[Service], missed: int) -> None:
    for service in served:
        schedule, when = service.schedule, service.next_run(datetime.now(UTC))
        console.print(
            Text.assemble((service.model, "bold"), f" on {service.population}, from {service.path}"), soft_wrap=True
        )
        console.print(
            Text(f"  next on {when:%Y-%m-%d at %H:%M} {schedule.timezone}, then by {schedule.cron}"), soft_wrap=True
        )
    if missed:
        console.print(f"{missed} missed run{'s' if missed > 1 else ''} dropped: a missed retraining is not caught up")
    console.print("serving until stopped (Ctrl-C, or SIGTERM); a changed schedule needs a new start")
