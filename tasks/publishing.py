"""What a reviewer sees of a decision: the card and the descriptions in MLflow, and the outcome for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from configs.errors import InternalError
from tasks.handover import Outcome
from tasks.registry import aliases, tracking
from tasks.registry.card import RenderedCard, render
from tasks.registry.card_content import CardContent
from tasks.registry.evidence import EXIT_CODES
from tasks.registry.tracking import Store
from tasks.summary import markdown


def shown(*, store: Store, card: CardContent, metrics: Mapping[str, float]) -> Outcome:
    """Write the card and the descriptions. A store that refuses them changes no decision: the outcome says so.

    Args:
        store: MLflow.
        card: with the decision as it stands.
        metrics: what was recorded of the run.
    """
    outcome = _outcome(store, card, metrics)
    try:
        place = tracking.attach(store=store, run_id=card.run_id, files=_files(render(card)))
        outcome = replace(outcome, card="" if card.rehearsal else f"{place}/card.html")
        aliases.describe(store=store, name=card.model, version=card.version, text=markdown(outcome))
    except InternalError as error:
        words = (
            f"the decision stands, and the model card in MLflow does not show it: {error}; once that is mended, "
            f"discreet promote {card.model} {card.version} writes the card anew"
        )
        outcome = replace(outcome, reasons=(*outcome.reasons, ("card", "noted", words)))
    return outcome


def _files(card: RenderedCard) -> dict[str, bytes]:
    """The card's files by name, and each picture by itself."""
    texts = {"card.html": card.html, "card.md": card.markdown, "card.json": card.json}
    pictures = {f"plots/{chart.name}.svg": chart.light for chart in card.charts}
    return {name: text.encode() for name, text in texts.items()} | pictures


def _outcome(store: Store, card: CardContent, metrics: Mapping[str, float]) -> Outcome:
    return Outcome(
        model=card.model,
        verdict=card.verdict,
        exit_code=EXIT_CODES[card.verdict],
        reasons=tuple((reason.gate, reason.outcome, reason.words) for reason in card.reasons),
        claim=card.claim,
        statement=card.statement,
        run_id=card.run_id,
        model_version=card.version,
        tracking_uri=store.uri,
        card="",
        metrics=tuple(sorted(metrics.items())),
        unit=card.budget.unit,
        guarantee_delta=card.budget.guarantee_delta,
        simulated=card.simulated,
        rehearsal=card.rehearsal,
    )
