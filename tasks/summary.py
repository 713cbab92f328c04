"""A run in one page of Markdown, for Prefect's artifact and MLflow's descriptions. Holds no value of a record."""

from tasks.handover import Outcome

TITLES = {
    "promoted": "Promoted: the alias `champion` points to it",
    "blocked": "Blocked: a limit is not kept",
    "insufficient": "Not promoted: the evidence is not sufficient",
}
MARKS = {"passed": "✓", "blocked": "✗", "insufficient": "?", "noted": "–"}


def title(outcome: Outcome) -> str:
    """The verdict in a few words."""
    return f"rehearsed, would be {outcome.verdict}" if outcome.rehearsal else TITLES[outcome.verdict]


def markdown(outcome: Outcome) -> str:
    """Verdict, reasons, claim and metrics."""
    metrics = dict(outcome.metrics)
    rows = [f"| {name} | {value:.6g} |" for name, value in sorted(metrics.items())]
    reasons = [f"| {MARKS[state]} | {gate} | {_cell(words)} |" for gate, state, words in outcome.reasons]
    notes = ["*The records are simulated: nobody's.*\n"] if outcome.simulated else []
    return "\n".join(
        [
            f"# {outcome.model}, version {outcome.model_version}: {title(outcome)}",
            "",
            *notes,
            outcome.claim,
            "",
            "| | gate | reason |",
            "|---|---|---|",
            *reasons,
            "",
            "| metric | value |",
            "|---|---|",
            *rows,
            "",
            outcome.statement,
            "",
            f"MLflow run `{outcome.run_id}`",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
