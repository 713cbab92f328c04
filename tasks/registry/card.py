"""The model card: one content, written as a page, as Markdown and as JSON.

    render(content) -> RenderedCard(html, markdown, json, charts)

The page is one file without script and without a request. It never calls a model safe or anonymous, epsilon
stands with delta and unit, and what is undefined is said in words. Every text is escaped where it is put in:
by autoescape in HTML, by `card_words.markdown` on every expression of the Markdown template.
The same content gives the same bytes.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from ruamel.yaml import YAML

from tasks.registry import card_tables, card_words, charts
from tasks.registry.card_content import AttackPanel, CardContent
from tasks.registry.chart_theme import Chart

SCHEMA = "discreet.model-card/1"  # a new field keeps the number; a changed meaning takes the next


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedCard:
    """A card in every form, and its figures by themselves."""

    html: str
    markdown: str
    json: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How an outcome looks: colour, sign and word, each of which tells it without the others."""

    tone: str
    sign: str
    word: str


_VERDICTS: Mapping[str, tuple[Look, str]] = MappingProxyType(
    {
        "promoted": (Look(tone="good", sign="✓", word="Promoted"), "Every gate passed."),
        "blocked": (
            Look(tone="bad", sign="✗", word="Blocked"),
            "Not promoted: a limit is broken or evidence is missing.",
        ),
        "insufficient": (
            Look(tone="unsure", sign="?", word="Not enough evidence"),
            "Not promoted: what was measured neither meets nor breaks a limit.",
        ),
        "awaiting_approval": (
            Look(tone="wait", sign="…", word="Awaiting approval"),
            "Not promoted yet: people have to approve it first.",
        ),
        "": (Look(tone="none", sign="–", word="Not judged"), "No gate has judged this model."),
    }
)
_OVERRIDDEN = "Promoted, although not every gate passed."
_OUTCOMES: Mapping[str, Look] = MappingProxyType(
    {
        "passed": Look(tone="good", sign="✓", word="passed"),
        "blocked": Look(tone="bad", sign="✗", word="blocked"),
        "insufficient": Look(tone="unsure", sign="?", word="not enough evidence"),
        "noted": Look(tone="none", sign="–", word="noted"),
    }
)
_ATTACKS: Mapping[str, Look] = MappingProxyType(
    {
        "PASS": Look(tone="good", sign="✓", word="Within the limit"),
        "FAIL": Look(tone="bad", sign="✗", word="Above the limit"),
        "CONTRADICTION": Look(tone="bad", sign="✗", word="Contradicts epsilon"),
        "VETO": Look(tone="bad", sign="✗", word="Veto"),
        "INCONCLUSIVE": Look(tone="unsure", sign="?", word="Inconclusive"),
        "INVALID_SPLIT": Look(tone="unsure", sign="?", word="Invalid split"),
        "ATTACK_BROKEN": Look(tone="unsure", sign="?", word="The attack does not work"),
    }
)
_NO_ATTACK = Look(tone="unsure", sign="?", word="Not run")


def render(content: CardContent) -> RenderedCard:
    """Write a card in every form.

    Args:
        content: what is published; texts and numbers may be hostile, and no number need be finite.
    """
    card = card_words.published(content)
    figures = charts.draw(content)
    view = _view(card, figures)
    return RenderedCard(
        html=_environment(autoescape=True).get_template("card.html.j2").render(view),
        markdown=_front_matter(card) + _environment(autoescape=False).get_template("card.md.j2").render(view),
        json=as_json(content),
        charts=figures,
    )


def _environment(*, autoescape: bool) -> jinja2.Environment:
    """HTML escapes by autoescape, Markdown in `finalize`, which sees every expression: none can be forgotten."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=autoescape,  # noqa: S701 - Markdown has its own escape, in the next line
        finalize=None if autoescape else card_words.markdown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "decimal": card_words.decimal,
        "general": card_words.general,
        "epsilon": card_words.epsilon,
        "figure": card_words.in_line,
        "unbroken": card_words.unbroken,
        "cell": card_tables.cell,
        "label": card_tables.label,
        "outcome": lambda outcome: _look(_OUTCOMES, outcome),
    }
    return environment


def _view(card: CardContent, figures: tuple[Chart, ...]) -> dict[str, Any]:
    look, summary = _verdict(card)
    groups = [line for line in card.groups if not card_tables.is_intersection(line)]
    crossed = [line for line in card.groups if card_tables.is_intersection(line)]
    return {
        "card": card,
        "verdict": look,
        "summary": summary,
        "in_the_way": [reason for reason in card.reasons if reason.outcome in ("blocked", "insufficient")],
        "noted": [reason for reason in card.reasons if reason.outcome not in ("blocked", "insufficient", "passed")],
        "attack": _attack(card.attack),
        "headline": card_tables.headline(card),
        "bars": [
            _bar("Such a run" if card.rehearsal else "This run", card.budget.run_epsilon, card.budget.run_limit),
            _bar(_whose(card), card.budget.used, card.budget.cap),
        ],
        "whose": _whose(card),
        "created": _date(card.created),
        "tables": [
            (title, lines, card_tables.ranking(lines), card_tables.decisions(lines))
            for title, lines in (("Groups", groups), ("Intersections", crossed))
        ],
        "charts": {figure.name: figure for figure in figures},
    }


def _verdict(card: CardContent) -> tuple[Look, str]:
    """Look and summary; only a promotion that every gate agrees to looks like one."""
    look, summary = _VERDICTS.get(
        card.verdict, (Look(tone="unsure", sign="?", word=card.verdict), "This verdict is not known here.")
    )
    if card.verdict == "promoted" and any(reason.outcome in ("blocked", "insufficient") for reason in card.reasons):
        return Look(tone="unsure", sign="!", word=look.word), _OVERRIDDEN
    return look, summary


def _attack(panel: AttackPanel | None) -> Look:
    return _NO_ATTACK if panel is None else _look(_ATTACKS, panel.verdict)


def _look(looks: Mapping[str, Look], name: str) -> Look:
    return looks.get(name, Look(tone="unsure", sign="?", word=name))


def _whose(card: CardContent) -> str:
    """Whose epsilon `used` is: a rehearsal spends nothing, and tells what a first run would use."""
    return "After a first run" if card.rehearsal else "All runs"


def _bar(title: str, part: float, whole: float) -> tuple[str, float, float, float, bool]:
    return title, part, whole, card_words.share(part, whole), card_words.within(part, whole)


def _date(created: str) -> str:
    """A day and a time in words; what is no ISO 8601 stays as it is."""
    try:
        at = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{at.day} {at:%B %Y, %H:%M} {at.tzname() or ''}".strip()


def as_json(content: CardContent) -> str:
    """The card as data. A non-finite number is null, and `undefined` lists its path."""
    undefined: list[str] = []
    body = {"schema": SCHEMA, **_plain(asdict(content), "", undefined)}
    text = json.dumps(
        {**body, "undefined": sorted(undefined)}, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "backslashreplace").decode()  # an unpaired surrogate becomes JSON's own escape


def _plain(value: Any, path: str, undefined: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part, f"{path}.{key}".lstrip("."), undefined) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, f"{path}.{position}", undefined) for position, part in enumerate(value)]
    if isinstance(value, float) and card_words.finite(value) is None:
        undefined.append(path)
        return None
    return value


def _front_matter(card: CardContent) -> str:
    """Hugging Face's metadata: https://huggingface.co/docs/hub/model-cards, `model-index` for the results."""
    tags = ["differential-privacy", "tabular-classification"]
    tags += ["simulated-data"] if card.simulated else []
    tags += ["rehearsal"] if card.rehearsal else []
    results = {
        "task": {"type": "tabular-classification"},
        "dataset": {"name": card.budget.population, "type": "tabular", "split": "hold-out"},
        "metrics": _metrics(card),
    }
    metadata = {
        "library_name": "pytorch",
        "pipeline_tag": "tabular-classification",
        "tags": tags,
        "model-index": [{"name": card.model, "results": [results]}],
    }
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    out = io.StringIO()
    yaml.dump(metadata, out)
    return f"---\n{out.getvalue()}---\n\n"


def _metrics(card: CardContent) -> list[dict[str, Any]]:
    """Every finite number of the headline; what is undefined is left out, for the format has no such state."""
    budget = card.budget
    found = [
        (
            "epsilon",
            f"epsilon of the run at delta {card_words.general(budget.run_delta)} for one {budget.unit}",
            budget.run_epsilon,
        ),
        (
            "epsilon",
            f"epsilon of all runs at delta {card_words.general(budget.guarantee_delta)} for one {budget.unit}",
            budget.used,
        ),
        *(("roc_auc", f"AUC on the hold-out, {name}", figure.value) for name, figure in card.overall),
    ]
    if card.attack is not None:
        found += [("membership_inference", line.name, line.measured.value) for line in card.attack.lines]
    return [
        {"type": kind, "name": name, "value": value}
        for kind, name, value in found
        if card_words.finite(value) is not None
    ]
