"""A run in one page of Markdown, for Prefect's artifact and MLflow's descriptions. Holds no value of a record."""

from tasks.handover import Outcome

TITLES = {
    "promoted": "Promoted: the alias `champion` points to it",
    "blocked": "Blocked: a limit is not kept",
    "insufficient": "Not promoted: the evidence is not sufficient",
}
MADE_UP = "Made-up rows: nothing was spent, recorded or promoted. What follows is what a real run could say."
SHOWN = (
    *("privacy/run_epsilon", "privacy/delta", "privacy/ledger_epsilon_used", "privacy/ledger_epsilon_cap"),
    *("test/auc", "test/auc_without_noise", "test/auc_trees", "attack/auc", "attack/advantage"),
    *("attack/advantage_upper", "attack/advantage_allowed"),
)
MARKS = {"passed": "✓", "blocked": "✗", "insufficient": "?", "noted": "–"}


def title(outcome: Outcome) -> str:
    """The verdict in a few words."""
    return f"rehearsed, would be {outcome.verdict}" if outcome.rehearsal else TITLES[outcome.verdict]


def markdown(outcome: Outcome) -> str:
    """Verdict, reasons, claim and the main metrics; the rest stands in the card, and here would not fit."""
    metrics = dict(outcome.metrics)
    rows = [f"| {name} | {metrics[name]:.6g} |" for name in SHOWN if name in metrics]
    shown = outcome.reasons[:_MOST]
    reasons = [f"| {MARKS[state]} | {gate} | {_cell(words)} |" for gate, state, words in shown]
    if more := len(outcome.reasons) - len(shown):
        reasons.append(f"| {MARKS['noted']} | | {more} more reasons stand on the model card |")
    notes = ["*The records are simulated: nobody's.*\n"] if outcome.simulated else []
    whose = f"{outcome.model}, version {outcome.model_version}"
    end = [
        "",
        f"MLflow run `{outcome.run_id}`; its artifact `card.html` is the model card: groups, attack, data, recipe.",
    ]
    if outcome.rehearsal:
        notes = [f"*{MADE_UP}*\n"]
        whose, end = outcome.model, []
    return "\n".join(
        [
            f"# {whose}: {title(outcome)}",
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
            *end,
        ]
    )


_MOST = 40
_LONGEST = 1_000  # a store's descriptions are limited, and so is a reader


def _cell(text: str) -> str:
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … (all of it stands on the model card)"
    return text.replace("|", "\\|").replace("\n", " ")
