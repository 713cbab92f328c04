"""The card: all that is published is on it, in every form; nothing on it is markup, undefined or unsaid."""

import dataclasses
import functools
import io
import itertools
import json
import math
import re
import sys
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML

from tasks.registry import card, charts
from tasks.registry.card_content import AttackLine, AttackPanel, Budget, CardContent, Figure, GroupLine
from tasks.registry.card_words import bounds, decimal, epsilon, general, in_line, markdown, share, visible
from tasks.registry.evidence import Reason

NO_CHAMPION = Figure(why="there is no champion to compare with")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% raw %}",
    "a | b `c` *d* _e_ [f](https://evil.example) ![g](https://evil.example/p.png)",
    "# one\n\n---\nmodel-index: []\n| x |\r\n    code",
    "\u202egnirts\u202c \u05e2\u05d1\u05e8\u05d9\u05ea \u200f",
    "$\\frac{1}{0}$ ]]> &amp; &#60; \x00\x07\ud800",
    "- 1. + = : #",
)


def group(attribute: str, name: str, auc: float, *, half: float = 0.02, gated: bool = True, **changes) -> GroupLine:
    def around(value: float, width: float = half) -> Figure:
        return Figure(value=value, lower=round(value - width, 3), upper=round(value + width, 3))

    made = GroupLine(
        attribute=attribute,
        group=name,
        rows="about 3,800",
        metrics=(
            ("base_rate", around(0.112, 0.01)),
            ("auc", around(auc)),
            ("tpr", around(0.41)),
            ("fpr", around(0.18, 0.01)),
            ("precision", around(0.22)),
            ("selection_rate", around(0.205, 0.01)),
            ("calibration", around(1.03, 0.09)),
        ),
        without_noise=Figure(value=round(auc + 0.004, 3)),
        trees=Figure(value=round(auc + 0.013, 3)),
        champion=around(round(auc - 0.002, 3)),
        loss=Figure(value=0.004, lower=-0.006, upper=0.014),
        gated=gated,
        why_not="" if gated else "fewer than 100 positives",
    )
    return dataclasses.replace(made, **changes)


def suppressed(attribute: str) -> GroupLine:
    nothing = Figure(why="10 or fewer rows, not shown")
    names = ("base_rate", "auc", "tpr", "fpr", "precision", "selection_rate", "calibration")
    return group(
        attribute,
        "suppressed",
        0.5,
        gated=False,
        rows="10 or fewer",
        metrics=tuple((name, nothing) for name in names),
        **dict.fromkeys(("without_noise", "trees", "champion", "loss"), nothing),
        why_not="10 or fewer rows",
    )


def few_positives(attribute: str, name: str) -> GroupLine:
    line = group(attribute, name, 0.64, half=0.07, gated=False)
    metrics = dict(line.metrics) | {"tpr": Figure(why="fewer than 11 positives"), "precision": Figure(why="not shown")}
    return dataclasses.replace(line, metrics=tuple(metrics.items()), rows="about 120")


def budget(**changes) -> Budget:
    steps = range(10, 261, 10)
    made = Budget(
        unit="person",
        population="uci-diabetes-130",
        run_epsilon=2.9987,
        run_limit=3.0,
        run_delta=1e-6,
        used=5.4312,
        cap=8.0,
        guarantee_delta=2e-6,
        path=tuple((step, round(0.55 + 2.4487 * math.sqrt(step / 260), 4)) for step in steps),
    )
    return dataclasses.replace(made, **changes)


def attack(**changes) -> AttackPanel:
    rates = [10 ** (-4 + 4 * step / 60) for step in range(61)]
    made = AttackPanel(
        verdict="PASS",
        words="The attack tells members from others hardly better than a coin: its advantage stays below the limit.",
        unit="person",
        lines=(
            AttackLine(name="AUC", measured=Figure(value=0.506, lower=0.499, upper=0.513), allowed=0.957),
            AttackLine(name="advantage", measured=Figure(value=0.012, lower=0.004, upper=0.021), allowed=0.9051),
            AttackLine(
                name="true positives at 1 % false positives",
                measured=Figure(value=0.0124, lower=0.0088, upper=0.0171),
                allowed=0.2009,
            ),
            AttackLine(
                name="true positives at 0.1 % false positives",
                measured=Figure(why="fewer than 11 false positives"),
                allowed=None,
            ),
        ),
        control=Figure(value=0.703, lower=0.689, upper=0.717),
        blind=Figure(value=0.501, lower=0.492, upper=0.511),
        twin=Figure(value=0.509, lower=0.502, upper=0.516),
        roc=tuple((rate, min(1.0, rate**0.985)) for rate in rates),
        twin_roc=tuple((rate, min(1.0, rate**0.96)) for rate in rates),
        ceiling=tuple((rate, min(1.0, 20.08 * rate + 1e-6, 1 - (1 - rate) / 20.08)) for rate in rates),
    )
    return dataclasses.replace(made, **changes)


def realistic(**changes) -> CardContent:
    races = zip(("Caucasian", "AfricanAmerican", "Hispanic", "Other"), (0.664, 0.655, 0.671, 0.648), strict=True)
    ages = zip(("<30", "30-79", "80+"), (0.702, 0.667, 0.611), strict=True)
    loss = Figure(value=0.0112, lower=-0.002, upper=0.0241)
    groups = (
        *(group("race", name, auc) for name, auc in races),
        few_positives("race", "Asian"),
        suppressed("race"),
        group("sex", "Female", 0.669),
        group("sex", "Male", 0.657),
        *(group("age_band", name, auc, loss=loss if name == "80+" else Figure(value=0.003)) for name, auc in ages),
        group("race × sex", "Caucasian, Female", 0.667),
        group("race × sex", "Caucasian, Male", 0.659),
        few_positives("race × sex", "Hispanic, Male"),
        suppressed("race × sex"),
    )
    passed = (
        ("run_epsilon", "epsilon of the run for one person at delta 1e-06 is 2.999, within its limit of 3", 2.9987, 3),
        ("ledger_epsilon", "epsilon over all runs on the population is 5.431, within its limit of 8", 5.4312, 8),
        ("self_test", "the noise path passed its self-test before step 1", None, None),
        ("min_auc", "AUC on the hold-out is 0.664; its lower bound 0.655 reaches the limit of 0.6", 0.664, 0.6),
    )
    made = CardContent(
        model="readmission",
        version="7",
        created="2025-11-30T21:38:04+00:00",
        run_id="0b7d8d1f3a6e4d0c9b0e5a1f2c3d4e5f",
        simulated=False,
        rehearsal=False,
        verdict="promoted",
        reasons=tuple(
            Reason(gate=gate, outcome="passed", words=words, number=number, limit=limit)
            for gate, words, number, limit in passed
        ),
        claim=(
            "Whether or not any one person was in the training data changes what anybody can learn from the trained "
            "model by at most epsilon 2.999 at delta 1e-06; all models ever trained on this population together stay "
            "within epsilon 8 at delta 2e-06 per person, of which 5.432 is used."
        ),
        statement=(
            "(2.999, 1e-06)-differential privacy under addition or removal of one person with at most 3 rows, for one "
            "Gaussian release of the moments (σ = 8) and 254 steps of DP-SGD with poisson sampling at q = 0.157538, "
            "flat clipping at C = 1 and Gaussian noise of standard deviation 2.313 C, composed by the privacy loss "
            "distribution (dp-accounting 0.6.0); over all runs the ledger's fixed-order Rényi filter guarantees "
            "(8, 2e-06), used 5.432, remaining 2.569."
        ),
        threshold=0.15,
        budget=budget(),
        attack=attack(),
        overall=(
            ("this model", Figure(value=0.664, lower=0.655, upper=0.673)),
            ("without noise", Figure(value=0.667, lower=0.658, upper=0.676)),
            ("boosted trees", Figure(value=0.676, lower=0.667, upper=0.685)),
            ("champion", Figure(value=0.662, lower=0.653, upper=0.671)),
        ),
        groups=groups,
        gaps=(
            ("race", "auc", Figure(value=0.023, lower=0.0, upper=0.061)),
            ("sex", "tpr", Figure(value=0.012, lower=0.0, upper=0.043)),
            ("age_band", "auc", Figure(value=0.091, lower=0.05, upper=0.133)),
        ),
        covers=("the final weights", "the noisy means and variances of the features", "what follows from these alone"),
        not_covered=(
            "metrics on the hold-out, on its members, or per group",
            "results of twins, controls and shadow models",
            "the people in the hold-out: they have no epsilon at all",
        ),
        data=(("Population", "uci-diabetes-130"), ("Label", "readmitted within 30 days"), ("Training units", "52,000")),
        recipe=(("Network", "mlp, hidden 64"), ("Optimizer", "sgd, momentum 0.9, learning rate 2, linear decay")),
        provenance=(
            ("Weights", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
            ("Ledger head", "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"),
            ("Versions", "discreet 0.1.0, torch 2.13.0, dp-accounting 0.6.0"),
        ),
    )
    return dataclasses.replace(made, **changes)


DRAW = charts.draw


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    """The figures of the same points are drawn once a session; `test_charts.py` draws them anew."""
    monkeypatch.setattr(charts, "draw", _drawn_content)


def _drawn_content(content: CardContent):
    return _drawn(content.budget, content.rehearsal, content.attack, content.groups)


@functools.cache
def _drawn(spent: Budget, rehearsal: bool, found: AttackPanel | None, groups: tuple[GroupLine, ...]):
    return DRAW(realistic(budget=spent, rehearsal=rehearsal, attack=found, groups=groups))


IN_THE_WAY = (
    Reason(
        gate="max_privacy_loss",
        outcome="insufficient",
        words="loss of AUC to noise is 0.0112; its interval from -0.002 to 0.0541 straddles the limit of 0.05",
        number=0.0112,
        limit=0.05,
        group="age_band 80+",
    ),
    Reason(gate="attack", outcome="blocked", words="the attack is missing: it was not run"),
)


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def replaced(value, leaf):
    """The content with every leaf put through `leaf(value)`."""
    if isinstance(value, tuple):
        return tuple(replaced(part, leaf) for part in value)
    if dataclasses.is_dataclass(value):
        changes = {part.name: replaced(getattr(value, part.name), leaf) for part in dataclasses.fields(value)}
        return type(value)(**changes)
    return leaf(value)


def tables_of(text: str) -> str:
    """The card's Markdown, without its front matter, as HTML."""
    body = text.split("---\n", 2)[2]
    return MarkdownIt("commonmark").enable("table").render(body)


def metadata_of(text: str) -> dict:
    return YAML(typ="safe", pure=True).load(io.StringIO(text.split("\n---\n", 1)[0].removeprefix("---\n")))


def words_in(text: str) -> set[str]:
    return set(re.findall(r"leaf\d+x", text))


def test_every_text_of_the_content_is_on_every_form_of_the_card():
    leaves = []

    def name(value):
        if not isinstance(value, str):
            return value
        leaves.append(f"leaf{len(leaves)}x")
        return f"× {leaves[-1]}" if "×" in value else leaves[-1]

    rendered = card.render(replaced(realistic(reasons=IN_THE_WAY + realistic().reasons), name))
    # An outcome and the name of a metric repeat: a group's row holds the metric's figure under another name.
    assert words_in(rendered.json) == set(leaves)
    known = set(leaves) - words_in(rendered.html)
    assert not known, [leaf for leaf in leaves if leaf in known]
    assert set(leaves) <= words_in(rendered.markdown)


def test_every_number_outside_a_curve_is_on_every_form_of_the_card():
    numbers = []

    def number(value):
        if not isinstance(value, float):
            return value
        numbers.append(round(0.1001 + 0.0037 * len(numbers), 4))
        return numbers[-1]

    plain = realistic(reasons=IN_THE_WAY, budget=budget(path=()))
    plain = dataclasses.replace(plain, attack=attack(roc=(), twin_roc=(), ceiling=()))
    rendered = card.render(replaced(plain, number))
    page = Page(rendered.html).text
    for value in numbers:
        shown = {decimal(value), general(value), epsilon(value)}
        assert any(text in page for text in shown), value
        assert any(text in rendered.markdown for text in shown), value
        assert str(value) in rendered.json, value


def test_every_point_of_a_curve_is_in_the_json_and_its_ends_in_words():
    found = json.loads(card.render(realistic()).json)
    assert found["attack"]["roc"] == [list(point) for point in attack().roc]
    assert found["budget"]["path"] == [list(point) for point in budget().path]
    rendered = card.render(realistic())
    for text in (rendered.html, rendered.markdown):
        assert f"{epsilon(budget().path[0][1])} at step 10" in text
        assert f"{epsilon(budget().path[-1][1])} at step 260" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup_in_the_page(text):
    clean = Page(card.render(replaced(realistic(), lambda v: "x" if isinstance(v, str) else v)).html)
    hostile = Page(card.render(replaced(realistic(), lambda v: text if isinstance(v, str) else v)).html)
    allowed = {tag for tag, _ in clean.tags}
    assert {tag for tag, _ in hostile.tags} <= allowed | {"details", "summary"}
    names = {name for _, attributes in hostile.tags for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    assert visible(text).strip() in " ".join(hostile.words)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup_in_the_markdown_and_every_table_keeps_its_columns(text):
    html = tables_of(card.render(replaced(realistic(), lambda v: text if isinstance(v, str) else v)).markdown)
    page = Page(html)
    plain = Page(tables_of(card.render(replaced(realistic(), lambda v: "x" if isinstance(v, str) else v)).markdown))
    assert not page.of("script") + page.of("img") + page.of("a") + page.of("code") + page.of("em") + page.of("pre")
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert " ".join(visible(text).split()) in page.text


@pytest.mark.parametrize("text", HOSTILE)
def test_the_front_matter_is_yaml_whatever_the_names(text):
    content = replaced(realistic(), lambda v: text if isinstance(v, str) else v)
    rendered = card.render(content)
    (index,) = metadata_of(rendered.markdown)["model-index"]
    assert index["name"] == visible(text)
    assert index["results"][0]["metrics"][0]["value"] == 2.9987


def test_the_front_matter_states_epsilon_with_delta_and_unit_and_says_what_is_simulated():
    found = metadata_of(card.render(realistic(simulated=True)).markdown)
    assert "simulated-data" in found["tags"]
    names = [entry["name"] for entry in found["model-index"][0]["results"][0]["metrics"] if entry["type"] == "epsilon"]
    assert names == [
        "epsilon of the run at delta 1e-06 for one person",
        "epsilon of all runs at delta 2e-06 for one person",
    ]


def test_the_page_asks_for_nothing_and_runs_nothing():
    rendered = card.render(realistic(reasons=IN_THE_WAY))
    page = Page(rendered.html)
    assert not re.search(r"https?://|//[a-z]", rendered.html)
    assert not page.of("script") + page.of("link") + page.of("iframe") + page.of("object") + page.of("form")
    assert all(link["href"].startswith("#") for link in page.of("a"))
    sources = [image["src"] for image in page.of("img")] + [source["srcset"] for source in page.of("source")]
    assert len(sources) == 8
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    policy = next(m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "@import" not in rendered.html
    assert "url(" not in rendered.html


def test_the_same_content_gives_the_same_bytes():
    assert card.render(realistic()) == card.render(realistic())


def test_headings_go_down_one_by_one_and_every_table_has_a_caption_and_scopes():
    page = Page(card.render(realistic()).html)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert len(page.of("caption")) == len(page.of("table"))
    assert all(cell["scope"] in ("col", "row", "rowgroup") for cell in page.of("th"))
    assert all(image["alt"] for image in page.of("img"))


LOOKS = {
    "promoted": ("good", "✓", "Promoted"),
    "blocked": ("bad", "✗", "Blocked"),
    "insufficient": ("unsure", "?", "Not enough evidence"),
    "awaiting_approval": ("wait", "…", "Awaiting approval"),
    "": ("none", "–", "Not judged"),
    "invented": ("unsure", "?", "invented"),
}


@pytest.mark.parametrize(("verdict", "look"), LOOKS.items())
def test_each_verdict_has_a_colour_a_sign_and_a_word_of_its_own(verdict, look):
    tone, sign, word = look
    rendered = card.render(realistic(verdict=verdict))
    (banner,) = [s for s in Page(rendered.html).of("section") if s.get("data-verdict") is not None]
    assert banner == {"class": f"verdict {tone}", "aria-labelledby": "verdict", "data-verdict": verdict}
    assert f'<span class="sign" aria-hidden="true">{sign}</span>\n<div>\n<h2 id="verdict">{word}</h2>' in rendered.html
    assert f"## {sign} {word}" in rendered.markdown
    if verdict != "promoted":
        assert "Every gate passed" not in rendered.html + rendered.markdown


def test_a_promotion_against_a_gate_does_not_look_like_one_that_every_gate_agrees_to():
    rendered = card.render(realistic(reasons=IN_THE_WAY))
    assert 'class="verdict unsure"' in rendered.html
    assert "Promoted, although not every gate passed." in rendered.html
    assert "Every gate passed" not in rendered.html


def test_the_reasons_in_the_way_stand_in_the_first_screen_with_their_group():
    rendered = card.render(realistic(verdict="blocked", reasons=IN_THE_WAY + realistic().reasons))
    banner = Page(rendered.html.split('data-verdict="blocked"')[1].split("</section>")[0]).text
    assert all(reason.words in banner for reason in IN_THE_WAY)
    assert "age_band 80+" in banner
    assert "self-test" not in banner


def test_more_than_five_reasons_in_the_way_are_counted_and_stand_below():
    reasons = tuple(dataclasses.replace(IN_THE_WAY[1], words=f"reason {i}") for i in range(8))
    html = card.render(realistic(verdict="blocked", reasons=reasons)).html
    assert "and 3 more" in html
    assert "reason 7" in html.split('id="gates"')[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"rehearsal": True}, "Rehearsal."), ({"simulated": True}, "Simulated records.")],
)
def test_what_is_nobodys_says_so_before_anything_else(changes, words):
    rendered = card.render(realistic(**changes))
    assert rendered.html.index(words) < rendered.html.index("<h1>")
    assert rendered.markdown.index(words) < rendered.markdown.index("## ")
    plain = card.render(realistic())
    assert words not in plain.html + plain.markdown


def test_the_card_never_calls_a_model_safe_anonymous_or_fair():
    for content in (realistic(), realistic(attack=None, groups=()), realistic(verdict="blocked", simulated=True)):
        rendered = card.render(content)
        text = Page(rendered.html.split("</style>")[1]).text + rendered.markdown
        assert not re.search(r"\b(safe|safely|anonym\w*|fair model|unbiased|no leakage)\b", text, re.IGNORECASE)


def test_epsilon_stands_with_delta_and_unit_on_the_first_screen_and_in_the_table():
    text = Page(card.render(realistic()).html).text
    tile = text.split("Budget")[1].split("What epsilon covers")[0]
    assert "2.999" in tile
    assert "5.432" in tile
    assert "For one person of uci-diabetes-130 , at δ 1e-06 (run) and 2e-06 (over all runs)" in tile
    assert "ε 2.999 at δ 1e-06" in text


def test_a_rehearsal_does_not_say_that_anything_is_used():
    rendered = card.render(realistic(rehearsal=True, claim="", statement=""))
    for text in (rendered.html.split("</style>")[1], rendered.markdown):
        assert "first run" in text
        assert "All runs on" not in text
        assert not re.search(r"all runs:? (have )?used", text, re.IGNORECASE)


@pytest.mark.parametrize(("used", "width"), [(8.0001, "100.0"), (math.nan, "100.0"), (7.9999, "100.0"), (2.0, "25.0")])
def test_a_budget_that_is_not_shown_to_hold_says_so_beside_its_bar(used, width):
    tile = card.render(realistic(budget=budget(used=used))).html.split('id="tile-budget"')[1].split("</section>")[0]
    assert tile.count("not within") == (0 if used < 8 else 1)
    assert f"width: {width}%" in tile.split("All runs")[1]


def test_without_an_attack_the_card_says_that_nothing_is_known_and_draws_no_roc():
    rendered = card.render(realistic(attack=None))
    for text in (rendered.html, rendered.markdown):
        assert "nothing is known of what one would find" in text
    assert [chart.name for chart in rendered.charts] == ["epsilon", "group_auc", "intersection_auc"]
    assert json.loads(rendered.json)["attack"] is None


def test_an_attack_without_points_has_no_chart_and_says_why():
    rendered = card.render(realistic(attack=attack(roc=((0.0, 0.0),))))
    for text in (rendered.html, rendered.markdown):
        assert "it has no point above zero that could be estimated" in text
    assert "attack_roc" not in [chart.name for chart in rendered.charts]


def test_without_groups_the_card_says_that_nothing_is_known_of_them():
    rendered = card.render(realistic(groups=(), gaps=(), overall=(), reasons=()))
    for text in (rendered.html, rendered.markdown):
        assert "nothing is known of how the model serves different people" in text
        assert "No groups are reported." in text
        assert "No gate has given a reason." in text


def test_a_column_that_is_undefined_for_every_group_becomes_one_sentence():
    lines = tuple(dataclasses.replace(line, champion=NO_CHAMPION) for line in realistic().groups[:4])
    rendered = card.render(realistic(groups=lines))
    for text in (rendered.html, rendered.markdown):
        assert text.count("there is no champion to compare with") == 1
        assert "AUC of champion: – there is no champion to compare with" in text


def test_a_suppressed_group_is_shown_in_words_and_never_as_zero():
    html = card.render(realistic(groups=(group("sex", "Female", 0.66), suppressed("sex")))).html
    rows = re.findall(r"<tr class=\"unjudged\">.*?</tr>", html, re.DOTALL)
    assert len(rows) == 2
    for row in rows:
        assert "10 or fewer rows, not shown" in row
        assert not re.search(r"\b0\b|0\.0|nan", Page(row).text, re.IGNORECASE)


def test_twenty_five_groups_all_stand_in_tables_and_chart():
    lines = tuple(group(f"attribute {i // 5}", f"group {i}", 0.6 + i / 250) for i in range(25))
    rendered = card.render(realistic(groups=lines))
    assert all(rendered.html.count(f"<bdi>group {i}</bdi>") == 2 for i in range(25))
    (chart,) = [chart for chart in rendered.charts if chart.name == "group_auc"]
    assert all(f">group {i}<" in chart.light.decode() for i in range(25))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max])
def test_a_number_that_is_none_is_undefined_in_words_in_every_form(number):
    rendered = card.render(replaced(realistic(reasons=IN_THE_WAY), lambda v: number if isinstance(v, float) else v))
    page = Page(rendered.html)
    shown = page.text + " ".join(image["alt"] or "" for image in page.of("img")) + rendered.markdown
    shown += "".join(chart.light.decode() for chart in rendered.charts)
    assert not re.search(r"\b(nan|inf|infinity)\b|e\+30\d|\d{30}", shown, re.IGNORECASE)
    assert "– not a finite number" in page.text
    assert "– not a finite number" in rendered.markdown
    found = json.loads(rendered.json, parse_constant=pytest.fail)
    assert "budget.run_epsilon" in found["undefined"]
    assert found["budget"]["run_epsilon"] is None
    assert not metadata_of(rendered.markdown)["model-index"][0]["results"][0]["metrics"]


def test_the_json_has_a_schema_sorted_keys_and_nothing_undefined_where_all_is_defined():
    text = card.render(realistic()).json
    found = json.loads(text)
    assert found["schema"] == "discreet.model-card/1"
    assert list(found) == sorted(found)
    assert found["undefined"] == []
    assert {part.name for part in dataclasses.fields(CardContent)} == set(found) - {"schema", "undefined"}


def test_a_date_that_is_none_is_shown_as_it_is():
    assert "30 November 2025, 21:38 UTC" in card.render(realistic()).html
    assert ">yesterday</time>" in card.render(realistic(created="yesterday")).html


def test_numbers_are_written_without_false_zeros():
    assert decimal(-0.0001) == "\N{MINUS SIGN}0.0001"
    assert decimal(-0.0) == "0.000"
    assert decimal(0.0000012) == "1.2e-06"
    assert decimal(1.03) == "1.030"
    assert general(1e-6) == "1e-06"
    assert general(-2.5) == "\N{MINUS SIGN}2.5"
    assert epsilon(2.99871) == "2.999"
    assert epsilon(0.000123) == "0.00013"
    assert epsilon(math.nan) == "– not a finite number"


def test_an_open_side_of_an_interval_is_said_in_words():
    assert bounds(Figure(value=0.1, upper=0.2)) == "at most 0.200"
    assert bounds(Figure(value=0.1, lower=0.05)) == "at least 0.050"
    assert in_line(Figure(value=0.1)) == "0.100"
    assert in_line(Figure(value=0.1, why="few rows")) == "0.100 (few rows)"


def test_a_share_that_cannot_be_told_is_shown_as_full():
    assert [share(1.0, 4.0), share(5.0, 4.0), share(math.nan, 4.0), share(1.0, 0.0)] == [25.0, 100.0, 100.0, 100.0]


def test_markdown_keeps_ordinary_names_readable():
    assert markdown("age_band [70-80) is about 3,800") == "age_band [70-80) is about 3,800"
    assert markdown("1. [a](b)") == "1\\. [a\\](b)"
