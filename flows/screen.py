"""What a person sees in a terminal: the plan, the progress with epsilon so far, the outcome, the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.summary import MARKS, title
from tasks import progress as reports
from tasks.handover import Outcome

COLOURS = {"promoted": "green", "blocked": "red", "insufficient": "yellow"}
STATES = {"passed": "green", "blocked": "red", "insufficient": "yellow", "noted": "cyan"}


@contextmanager
def following(console: Console) -> Iterator[None]:
    """One line a step on `console` while a flow runs inside, with a bar and epsilon for training."""
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
            console.print(f"[green]✓[/] [bold]{report.step:<9}[/] {report.note}", highlight=False)
            return
        if report.step not in lines:
            lines[report.step] = bar.add_task(report.step, note="", epsilon="", total=None)
        epsilon = "" if report.epsilon is None else f"ε ≤ {report.epsilon:.3f}"
        bar.update(lines[report.step], completed=report.done, total=report.total, note=report.note, epsilon=epsilon)

    with bar, reports.listening(show):
        yield


def outcome(console: Console, result: Outcome) -> None:
    """The verdict with every reason, epsilon of run and population, the test AUC, and where to look."""
    metrics = dict(result.metrics)
    reasons = Table.grid(padding=(0, 1))
    for gate, state, words in result.reasons:
        reasons.add_row(Text(MARKS[state], style=STATES[state]), Text(gate, style="bold"), Text(words))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    delta = metrics["privacy/delta"]
    facts.add_row("this run", f"ε = {metrics['privacy/run_epsilon']:.4g} at δ = {delta:g}")
    used, cap = metrics["privacy/ledger_epsilon_used"], metrics["privacy/ledger_epsilon_cap"]
    facts.add_row("population", f"ε = {used:.4g} used of {cap:g}")
    if "test/auc" in metrics:
        bounds = f"95 % from {metrics['test/auc_lower']:.4f} to {metrics['test/auc_upper']:.4f}"
        facts.add_row("test AUC", f"{metrics['test/auc']:.4f}  ({bounds}; not covered by ε)")
    if result.seconds:
        facts.add_row("time", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds))
    if not result.rehearsal:
        facts.add_row("look", f"mlflow ui --backend-store-uri {result.tracking_uri}")
        facts.add_row("", f"run {result.run_id}, {result.model} version {result.model_version}")
    heading = f"{result.model} {'(rehearsal)' if result.rehearsal else 'version ' + result.model_version}"
    source = [Text("Simulated records: nobody's.", style="italic")] if result.simulated and not result.rehearsal else []
    console.print(
        Panel(
            Group(*source, Text(result.claim), Text(), reasons, Text(), facts),
            title=f"[bold]{heading}[/]: {title(result).replace('`', '')}",
            title_align="left",
            border_style=COLOURS[result.verdict],
            padding=(1, 2),
        )
    )
