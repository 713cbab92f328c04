"""The card's figures as SVG, in a light and a dark palette, with the figure in words.

    draw(content) -> (Chart, …)

Markers, dashes and hollow points tell what colours tell. Only what the card publishes reaches a figure.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from tasks.registry.card_content import AttackPanel, Budget, CardContent, GroupLine
from tasks.registry.card_content import Figure as Number
from tasks.registry.card_tables import is_intersection
from tasks.registry.card_words import epsilon, finite, general, in_line, percent, published
from tasks.registry.chart_theme import Chart, Palette, chart

_LONGEST = 26  # characters of a name beside the axis
Points = Sequence[tuple[float, float]]


def draw(content: CardContent) -> tuple[Chart, ...]:
    """Every figure for which the card has points: `epsilon`, `attack_roc`, `group_auc`, `intersection_auc`."""
    card = published(content)
    charts = [epsilon_over_steps(card.budget, rehearsal=card.rehearsal)]
    if card.attack is not None:
        charts.append(attack_roc(card.attack))
    charts.append(group_auc([line for line in card.groups if not is_intersection(line)], name="group_auc"))
    charts.append(group_auc([line for line in card.groups if is_intersection(line)], name="intersection_auc"))
    return tuple(found for found in charts if found is not None)


def epsilon_over_steps(budget: Budget, *, rehearsal: bool = False) -> Chart | None:
    """Epsilon of the run over its steps, with its limit, and what all runs have used of the cap below it.

    Args:
        budget: what it cost.
        rehearsal: nothing was spent, so what is "used" is what a first run would use.

    Returns:
        None where no step has a finite epsilon.
    """
    path = _usable(budget.path)
    if not path:
        return None
    used, cap = finite(budget.used), finite(budget.cap)
    whose = "A first run on these people" if rehearsal else "All runs on these people"
    with_cap = used is not None and cap is not None and cap > 0

    def paint(canvas: Canvas, palette: Palette) -> None:
        rows = [5.0, 1.0] if with_cap else [1.0]
        axes = canvas.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
        _epsilon_path(axes[0], path, budget, palette)
        if used is not None and cap is not None and with_cap:
            _cap_bar(axes[1], used, cap, whose, palette)

    (first, start), (last, end) = path[0], path[-1]
    alt = (
        f"Epsilon over the steps of the run, at delta {general(budget.run_delta)} for one {budget.unit}: "
        f"{epsilon(start)} at step {first:g}, {epsilon(end)} at step {last:g}; the run's limit is "
        f"{general(budget.run_limit)}. {whose}: {epsilon(budget.used)} used of "
        f"{general(budget.cap)}, at delta {general(budget.guarantee_delta)} for one {budget.unit}."
    )
    return chart("epsilon", alt, (5.2, 3.7), paint)


def attack_roc(attack: AttackPanel) -> Chart | None:
    """The attack's ROC on log axes, its ceiling and the twin's curve; points at zero have no place on them."""
    roc, twin, ceiling = (_positive(points) for points in (attack.roc, attack.twin_roc, attack.ceiling))
    if not roc:
        return None
    left = max(min(rate for rate, _ in (*roc, *twin, *ceiling)), 1e-6)
    low = max(min((rate for _, rate in (*roc, *twin)), default=left), 1e-6)

    def paint(canvas: Canvas, palette: Palette) -> None:
        axes = canvas.subplots()
        axes.set(xscale="log", yscale="log", xlim=(left, 1), ylim=(min(low, left), 1.0))
        if ceiling:
            x, y = zip(*ceiling, strict=True)
            axes.fill_between(x, y, 1.0, color=palette.line, alpha=0.55, linewidth=0, label="ruled out by epsilon")
            axes.plot(x, y, color=palette.quiet, linewidth=1)
        axes.plot([left, 1], [left, 1], color=palette.quiet, linestyle=":", linewidth=1.2, label="guessing")
        if twin:
            axes.plot(*zip(*twin, strict=True), color=palette.other, linestyle="--", label="recipe without noise")
        axes.plot(*zip(*roc, strict=True), color=palette.model, linewidth=2, label="this model")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda rate, _: f"{100 * rate:g} %")
        axes.minorticks_off()
        axes.set_xlabel(f"false positive rate: {attack.unit}s taken for members who are none")
        axes.set_ylabel("true positive rate: members found")
        axes.set_title("What the attack finds")
        canvas.legend(loc="outside lower center", ncols=2, columnspacing=1.5)

    alt = f"Membership-inference attack on log axes. {_curve('On this model', roc)}"
    alt += f" {_curve('On the same recipe without noise', twin)}" if twin else ""
    alt += f" {_curve('Epsilon allows at most', ceiling)}" if ceiling else " Epsilon gives no ceiling here."
    return chart("attack_roc", alt, (5.2, 4.4), paint)


def group_auc(lines: Sequence[GroupLine], *, name: str) -> Chart | None:
    """AUC by group with its interval, beside the same recipe without noise.

    Args:
        lines: groups, in order; those of one attribute stand together.
        name: of the chart.

    Returns:
        None where no group has an AUC.
    """
    areas = [(line, dict(line.metrics).get("auc", Number(why="not computed"))) for line in lines]
    if not any(area.value is not None for _, area in areas):
        return None
    by_attribute: dict[str, list[tuple[GroupLine, Number]]] = {}
    for line, area in areas:
        by_attribute.setdefault(line.attribute, []).append((line, area))
    rows = len(areas) + len(by_attribute)

    def paint(canvas: Canvas, palette: Palette) -> None:
        axes = canvas.subplots()
        _group_rows(axes, by_attribute, palette)
        axes.set(ylim=(rows - 0.4, -0.6), xlabel="AUC on the hold-out")
        axes.set_title("How well the model ranks, by group")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=palette.line, linewidth=0.6)
        canvas.legend(*_legend(axes), loc="outside lower center", ncols=3, columnspacing=1.2)

    words = (
        f"{line.attribute} {line.group}: {in_line(area)}, without noise {in_line(line.without_noise)}"
        + ("" if line.gated else ", not judged")
        for line, area in areas
    )
    return chart(name, f"AUC on the hold-out by group. {'; '.join(words)}.", (5.4, 1.3 + 0.255 * rows), paint)


def _group_rows(axes: Axes, by_attribute: dict[str, list[tuple[GroupLine, Number]]], palette: Palette) -> None:
    ticks: list[tuple[int, str, str]] = []
    absent: list[tuple[int, str]] = []
    row = 0
    for attribute, members in by_attribute.items():
        ticks.append((row, _short(attribute), "heading"))
        for row, (line, area) in enumerate(members, start=row + 1):  # noqa: B020 - the row goes on
            ticks.append((row, _short(line.group), "judged" if line.gated else "not judged"))
            _pair(axes, row, line, area, palette)
            if area.value is None:
                absent.append((row, area.why))
        row += 1
    axes.set_yticks([row for row, _, _ in ticks], [text for _, text, _ in ticks])
    for tick, (_, _, kind) in zip(axes.get_yticklabels(), ticks, strict=True):
        tick.set_color(palette.quiet if kind == "not judged" else palette.ink)
        tick.set_fontweight("bold" if kind == "heading" else "normal")
    for row, why in absent:
        place = axes.get_yaxis_transform()
        axes.text(0.01, row, f"– {_short(why, 44)}", transform=place, va="center", color=palette.quiet, fontsize=8.5)


def _pair(axes: Axes, row: int, line: GroupLine, area: Number, palette: Palette) -> None:
    """This model above, the recipe without noise below, so that neither hides the other."""
    label = "this model, judged" if line.gated else "this model, not judged"
    fill = palette.model if line.gated else palette.ground
    if area.lower is not None and area.upper is not None:
        style = "-" if line.gated else (0, (2, 1.5))
        axes.plot([area.lower, area.upper], [row - 0.12] * 2, color=palette.model, linewidth=1.6, linestyle=style)
    if area.value is not None:
        axes.plot(area.value, row - 0.12, "o", color=palette.model, markerfacecolor=fill, markersize=5.5, label=label)
    if line.without_noise.value is not None:
        axes.plot(
            line.without_noise.value,
            row + 0.2,
            "D",
            color=palette.other,
            markerfacecolor=palette.other if line.gated else palette.ground,
            markersize=4,
            label="same recipe, σ = 0",
        )


def _legend(axes: Axes) -> tuple[list[Any], list[str]]:
    """One handle for each label, in a fixed order."""
    found = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    labels = sorted(found, key=lambda text: ("this" not in text, "not" in text))
    return [found[label] for label in labels], labels


def _epsilon_path(axes: Axes, path: Points, budget: Budget, palette: Palette) -> None:
    axes.plot(*zip(*path, strict=True), color=palette.model, linewidth=2, marker="o" if len(path) == 1 else "")
    limit = finite(budget.run_limit)
    top = max(value for _, value in path)
    if limit is not None:
        axes.axhline(limit, color=palette.alarm, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"limit of the run: {general(limit)}", (0, limit), xycoords=axes.get_yaxis_transform(),
            xytext=(4, -4), textcoords="offset points", va="top", color=palette.ink, fontsize=9,
        )  # fmt: skip
        top = max(top, limit)
    axes.set(xlim=(0, max(step for step, _ in path) or 1), ylim=(0, top * 1.08 or 1))
    axes.set_xlabel("step")
    axes.set_ylabel(f"epsilon at delta {general(budget.run_delta)}")
    axes.set_title(f"Epsilon of the run, for one {_short(budget.unit)}")


def _cap_bar(axes: Axes, used: float, cap: float, whose: str, palette: Palette) -> None:
    axes.barh([0], [cap], color=palette.line, height=0.5)
    over = used > cap
    axes.barh([0], [max(used, 0.0)], color=palette.alarm if over else palette.model, height=0.5)
    axes.axvline(cap, color=palette.alarm, linestyle="--", linewidth=1.2)
    axes.set(xlim=(0, max(used, cap) * 1.04), ylim=(-0.4, 0.4), yticks=[])
    axes.spines["left"].set_visible(False)
    state = "above the cap of" if over else "used of"
    axes.set_title(f"{whose}: {epsilon(used)} {state} {general(cap)}", fontsize=9.5)


def _usable(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if finite(x) is not None and finite(y) is not None]


def _positive(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in _usable(points) if x > 0 and y > 0]


def _curve(what: str, points: Points) -> str:
    """A curve in words: its first point, and those nearest to 1 and 10 % false positives."""
    picked = dict.fromkeys([points[0], *(min(points, key=lambda p, at=at: abs(p[0] - at)) for at in (0.01, 0.1))])
    told = (f"{percent(y)} true positives at {percent(x)} false positives" for x, y in sorted(picked))
    return f"{what}: {', '.join(told)}."


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
