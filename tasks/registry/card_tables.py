"""The card's group tables and its headlines, the same for HTML and Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.registry.card_content import CardContent, Figure, GroupLine
from tasks.registry.card_words import bounds, decimal, in_line

_LABELS = {
    "base_rate": "Base rate",
    "auc": "AUC",
    "tpr": "TPR",
    "fpr": "FPR",
    "precision": "Precision",
    "selection_rate": "Flagged",
    "calibration": "Calibration",
}
_AT_THRESHOLD = ("selection_rate", "tpr", "fpr", "precision", "calibration")
_ABSENT = Figure(why="not computed")
Column = tuple[str, Callable[[GroupLine], Figure]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure in a table: the estimate or "–", its bounds, and why there is none."""

    estimate: str
    bounds: str
    why: str

    @property
    def line(self) -> str:
        """The cell in one line."""
        return " ".join(part for part in (self.estimate, self.bounds, self.why) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group. `undefined` is the one reason where no figure of the row is defined; `cells` is empty then."""

    line: GroupLine
    cells: tuple[Cell, ...]
    undefined: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Groups by attribute. `notes` holds the columns left out because they say the same of every group."""

    columns: tuple[str, ...]
    sections: tuple[tuple[str, tuple[Row, ...]], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The groups in three sentences at most, and how many of them are judged."""

    judged: int
    total: int
    sentences: tuple[str, ...]


def is_intersection(line: GroupLine) -> bool:
    """Whether the group belongs to two attributes at once."""
    return "×" in line.attribute


def ranking(lines: Sequence[GroupLine]) -> Table:
    """Base rate, AUC, the same of other models, and what privacy cost."""
    columns: list[Column] = [
        ("Base rate", _metric("base_rate")),
        ("AUC", _metric("auc")),
        ("AUC, σ\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0", lambda line: line.without_noise),
        ("Loss to privacy", lambda line: line.loss),
        ("AUC of trees", lambda line: line.trees),
        ("AUC of champion", lambda line: line.champion),
    ]
    return _table(lines, columns)


def decisions(lines: Sequence[GroupLine]) -> Table:
    """Rates at the deployed threshold, and every further metric by its name."""
    names = dict.fromkeys(_AT_THRESHOLD) | dict.fromkeys(name for line in lines for name, _ in line.metrics)
    return _table(lines, [(label(name), _metric(name)) for name in names if name not in ("base_rate", "auc")])


def label(metric: str) -> str:
    """A metric's name in words."""
    return _LABELS.get(metric, metric)


def headline(content: CardContent) -> Headline:
    """What the first screen says of the groups."""
    judged = [line for line in content.groups if line.gated]
    sentences: list[str] = []
    costs = [line for line in judged if line.loss.value is not None]
    if costs:
        worst = max(costs, key=_worst_loss)
        sentences.append(f"Largest cost of privacy: {in_line(worst.loss)} of AUC, in {_name(worst)}.")
    areas = [(line, found) for line in judged if (found := _metric("auc")(line)).value is not None]
    if areas:
        lowest, area = min(areas, key=lambda pair: pair[1].value or 0.0)
        sentences.append(f"Lowest AUC: {in_line(area)}, in {_name(lowest)}.")
    unknown = [line for line in judged if line.loss.value is None]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        sentences.append(f"What privacy costs is not known for {_name(unknown[0])}{more}.")
    return Headline(judged=len(judged), total=len(content.groups), sentences=tuple(sentences))


def _worst_loss(line: GroupLine) -> float:
    return max(bound for bound in (line.loss.value, line.loss.upper) if bound is not None)


def _name(line: GroupLine) -> str:
    return f"{line.attribute} {line.group}"


def _metric(name: str) -> Callable[[GroupLine], Figure]:
    return lambda line: dict(line.metrics).get(name, _ABSENT)


def _table(lines: Sequence[GroupLine], columns: Sequence[Column]) -> Table:
    kept: list[Column] = []
    notes: list[str] = []
    for name, of in columns:
        why = _one_reason([of(line) for line in lines])
        kept += [] if why else [(name, of)]
        notes += [f"{name}: – {why}"] if why else []
    sections: dict[str, list[Row]] = {}
    for line in lines:
        sections.setdefault(line.attribute, []).append(_row(line, kept))
    return Table(
        columns=tuple(name for name, _ in kept),
        sections=tuple((attribute, tuple(rows)) for attribute, rows in sections.items()),
        notes=tuple(notes),
    )


def _row(line: GroupLine, columns: Sequence[Column]) -> Row:
    figures = [of(line) for _, of in columns]
    undefined = _one_reason(figures) if len(figures) > 1 else ""
    return Row(line=line, cells=() if undefined else tuple(cell(figure) for figure in figures), undefined=undefined)


def cell(figure: Figure) -> Cell:
    """A figure as a table shows it."""
    estimate = "–" if figure.value is None else decimal(figure.value)
    return Cell(estimate=estimate, bounds=bounds(figure), why=figure.why)


def _one_reason(figures: Sequence[Figure]) -> str:
    """The reason that all these figures share for being undefined; empty if they do not."""
    whys = {figure.why for figure in figures}
    bare = all(figure.value is None and figure.lower is None and figure.upper is None for figure in figures)
    return whys.pop() if bare and len(whys) == 1 else ""
