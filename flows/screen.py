"""What a person sees in a terminal: the plan, the progress with epsilon so far, the outcome, the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from configs.errors import DiscreetError
from configs.schema import Config
from tasks import progress as reports
from tasks.handover import Outcome
from tasks.privacy.ledger_state import PopulationState
from tasks.summary import MADE_UP, MARKS, title

if TYPE_CHECKING:
    from tasks.forecast import Forecast

COLOURS = {"promoted": "green", "blocked": "red", "insufficient": "yellow"}
STATES = {"passed": "green", "blocked": "red", "insufficient": "yellow", "noted": "cyan"}


@contextmanager
def following(console: Console, *, rehearsal: bool = False) -> Iterator[None]:
    """One line a step on `console` while a flow runs inside, with a bar and epsilon for training."""
    if rehearsal:
        console.print("a rehearsal: made-up rows, and a ledger and a store that are gone afterwards")
    bar = Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description:<9}"),
        TextColumn("{task.fields[note]}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[epsilon]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    lines = {}

    def show(report: reports.Progress) -> None:
        if report.done is None:
            if report.step in lines:
                bar.remove_task(lines.pop(report.step))
            note = f"would be {report.note}" if rehearsal and report.step == "promote" else report.note
            console.print(Text.assemble(("✓ ", "green"), (f"{report.step:<9} ", "bold"), note))
            return
        if report.step not in lines:
            lines[report.step] = bar.add_task(report.step, note="", epsilon="", total=None)
        epsilon = "" if report.epsilon is None else f"ε ≤ {report.epsilon:.3f}"
        bar.update(lines[report.step], completed=report.done, total=report.total, note=report.note, epsilon=epsilon)

    with bar, reports.listening(show):
        yield


def outcome(console: Console, result: Outcome, standing: Forecast | DiscreetError | None = None) -> None:
    """The verdict with every reason, epsilon of run and population, the test AUC, and where to look.

    Args:
        console: where to print.
        result: what the run, or the rehearsal, came to.
        standing: of a rehearsal, how the real run would stand with the real ledger, or why it would be refused.
    """
    metrics = dict(result.metrics)
    reasons = Table.grid(padding=(0, 2))
    for gate, state, words in result.reasons:
        reasons.add_row(Text(MARKS[state], style=STATES[state]), Text(gate, style="bold"), Text(words))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    delta = metrics["privacy/delta"]
    this = "such a run" if result.rehearsal else "this run"
    facts.add_row(this, f"ε = {metrics['privacy/run_epsilon']:.4g} at δ = {delta:g}, for one {result.unit}")
    facts.add_row("population", _balance(result, metrics) if standing is None else _would_stand(standing))
    if "test/auc" in metrics:
        bounds = f"95 % from {metrics['test/auc_lower']:.4f} to {metrics['test/auc_upper']:.4f}"
        about = "on made-up rows: says nothing of your records" if result.rehearsal else f"{bounds}; not covered by ε"
        facts.add_row("test AUC", f"{metrics['test/auc']:.4f}  ({about})")
    if result.seconds:
        facts.add_row("time", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds))
    if not result.rehearsal:
        facts.add_row("MLflow", f"run {result.run_id}, {result.model} version {result.model_version}")
    heading = f"{result.model} {'(rehearsal)' if result.rehearsal else 'version ' + result.model_version}"
    source = _whose(result)
    refused = isinstance(standing, DiscreetError) or (standing is not None and bool(standing.refusal))
    verdict = "rehearsed, but the real run would be refused" if refused else title(result).replace("`", "")
    console.print(
        Panel(
            Group(*source, Text(result.claim), Text(), reasons, Text(), facts),
            title=Text.assemble((heading, "bold"), ": ", verdict),
            title_align="left",
            border_style="red" if refused else COLOURS[result.verdict],
            padding=(1, 2),
        )
    )
    if not result.rehearsal:  # outside the frame, on one line each, to be copied
        if result.card:
            console.print(f"model card: {result.card}", markup=False, soft_wrap=True)
        console.print(f"mlflow ui --backend-store-uri {result.tracking_uri}", markup=False, soft_wrap=True)


def _whose(result: Outcome) -> list[Text]:
    if result.rehearsal:
        return [Text(MADE_UP, style="italic")]
    return [Text("Simulated records: nobody's.", style="italic")] if result.simulated else []


def _balance(result: Outcome, metrics: dict[str, float]) -> str:
    used, cap = metrics["privacy/ledger_epsilon_used"], metrics["privacy/ledger_epsilon_cap"]
    at = f"at δ = {result.guarantee_delta:g}, for one {result.unit}, over all runs"
    return f"ε = {used:.4g} used of {cap:g} {at}"


def _would_stand(standing: Forecast | DiscreetError) -> str:
    """What the real ledger would say to the real run."""
    if isinstance(standing, DiscreetError) or standing.refusal:
        refusal = str(standing) if isinstance(standing, DiscreetError) else standing.refusal
        return f"the real run would be refused: {refusal}"
    known = "" if standing.known else " (not in the ledger yet)"
    return (
        f"the real run would fit{known}: ε = {standing.used_epsilon:.4g} of {standing.guarantee_epsilon:g} is used so "
        f"far, {standing.epsilon_after:.4g} with it; {standing.runs_that_fit} such run"
        f"{'' if standing.runs_that_fit == 1 else 's'} would fit"
    )


def plan(console: Console, path: str, config: Config, found: Forecast) -> None:
    """What `check` prints: the plan of one run, and what the population has left."""
    rows = f"a person with at most {found.rows_per_unit} row{'s' if found.rows_per_unit > 1 else ''}"
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold")
    lines.add_row("unit", f"a {found.unit}, added or removed; {found.units:,} of them train (nominal), {rows}")
    lines.add_row("sampling", f"Poisson, q = {found.sampling_rate:.5g}, {found.steps:,} steps")
    clipping = config.privacy.clipping
    lines.add_row("noise", f"σ = {found.noise_multiplier:g}, {clipping.kind} clipping at C = {clipping.norm:g}")
    if config.privacy.moments:
        lines.add_row("moments", f"one Gaussian release, σ = {config.privacy.moments.noise_multiplier:g}")
    lines.add_row("one run", f"ε = {found.epsilon:.4f} at δ = {found.delta:g} (PLD; RDP says {found.rdp_epsilon:.4f})")
    if found.person_epsilon is not None:
        lines.add_row(
            "a person",
            f"with {found.rows_per_unit} rows: ε = {found.person_epsilon:.4f} at δ = {found.delta:g}",
        )
    lines.add_row()
    state = "" if found.known else "  (not in the ledger yet)"
    lines.add_row("population", f"{found.population}{state}")
    left = max(found.guarantee_epsilon - found.used_epsilon, 0)
    lines.add_row(
        "guarantee",
        f"ε = {found.guarantee_epsilon:g} at δ = {found.guarantee_delta:g} over all runs, for good",
    )
    lines.add_row("used, left", f"ε = {found.used_epsilon:.4f} used, {left:.4f} left")
    zone = config.schedule.timezone if config.schedule else ""
    last = f"; the last on {found.last_run[:16].replace('T', ' ')} {zone}" if found.last_run else ""
    lines.add_row("still fit", f"{found.runs_that_fit} such run{'s' if found.runs_that_fit != 1 else ''}{last}")
    warnings = [Text(f"! {text}", style="yellow") for text in found.warnings]
    console.print(
        Panel(
            Group(lines, *warnings),
            title=Text.assemble((config.model, "bold"), f": {path} is valid"),
            title_align="left",
            border_style="green" if found.runs_that_fit else "red",
            padding=(1, 2),
        )
    )


def ledger(console: Console, states: dict[str, tuple[PopulationState, list[dict[str, Any]]]]) -> None:
    """Balance and entries of each population."""
    for name, (state, entries) in states.items():
        table = Table(box=None, padding=(0, 2), header_style="bold")
        for column in ("entry", "at", "what", "who", "details"):
            table.add_column(column, overflow="fold")
        for entry in _folded(entries):
            at = entry["at"][:19].replace("T", " ")
            cells = (str(entry["seq"]), at, entry["kind"].replace("_", " "), entry["actor"], _details(entry))
            table.add_row(*map(Text, cells))
        runs = ", ".join(f"{count} {kind}" for kind, count in state.runs.items() if count) or "none"
        summary = (
            f"unit: a {state.unit}, added or removed\n"
            f"guarantee: ε = {state.epsilon:g} at δ = {state.delta:g}, over all runs, for good\n"
            f"used: ε = {state.used_epsilon:.4f}; left: {state.remaining_epsilon:.4f}\n"
            f"runs: {runs}"
        )
        console.print(
            Panel(
                Group(Text(summary), Text(), table),
                title=Text(name, style="bold"),
                title_align="left",
                padding=(1, 2),
            )
        )


def _folded(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries with each stretch of claims of one run told once, by its last."""
    for place, entry in enumerate(entries):
        following = entries[place + 1 : place + 2]
        if entry["kind"] == "steps_claimed" and any(
            (later["kind"], later["payload"].get("reservation")) == (entry["kind"], entry["payload"]["reservation"])
            for later in following
        ):
            continue
        yield entry


def _details(entry: dict[str, Any]) -> str:
    payload, kind = entry["payload"], entry["kind"]
    if kind == "population_created":
        return f"ε = {payload['epsilon']:g}, δ = {payload['delta']:g}, unit {payload['unit']}"
    if kind == "run_reserved":
        return f"{payload['reservation'][:8]}: {payload['reason']}"
    if kind == "steps_claimed":
        return f"{payload['reservation'][:8]}: up to {payload['upto']}"
    if kind == "gate_decision":
        return f"{payload['model']} version {payload['version']}: {payload['verdict']}"
    if "reservation" in payload:
        return f"{payload['reservation'][:8]}: {payload['state']}, {payload['claims']} claims charged"
    return ""
