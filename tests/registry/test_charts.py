"""The figures: what is drawn is what is published, the same bytes each time, and never at a point that is none."""

import base64
import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib as mpl
import pytest

from tasks.registry import charts
from tasks.registry.card_content import AttackPanel, Budget, Figure, GroupLine
from tasks.registry.chart_theme import Chart

SVG = "{http://www.w3.org/2000/svg}"
NONE = Figure(why="not measured")
BUDGET = Budget(
    unit="person",
    population="clinic",
    run_epsilon=2.5,
    run_limit=3.0,
    run_delta=1e-6,
    used=5.0,
    cap=8.0,
    guarantee_delta=2e-6,
    path=((1, 0.5), (100, 1.5), (200, 2.5)),
)
ATTACK = AttackPanel(
    verdict="PASS",
    words="",
    unit="person",
    lines=(),
    control=NONE,
    blind=NONE,
    twin=NONE,
    roc=((0.0, 0.0), (0.001, 0.002), (0.01, 0.015), (0.1, 0.12), (1.0, 1.0)),
    twin_roc=((0.001, 0.004), (0.01, 0.03), (0.1, 0.2), (1.0, 1.0)),
    ceiling=((0.001, 0.02), (0.01, 0.2), (0.1, 0.95), (1.0, 1.0)),
)


def line(name: str, auc: Figure, *, gated: bool = True, attribute: str = "sex", twin: float | None = 0.7) -> GroupLine:
    return GroupLine(
        attribute=attribute,
        group=name,
        rows="about 3,800",
        metrics=(("auc", auc),),
        without_noise=NONE if twin is None else Figure(value=twin),
        trees=NONE,
        champion=NONE,
        loss=NONE,
        gated=gated,
    )


GROUPS = (
    line("Female", Figure(value=0.68, lower=0.66, upper=0.70)),
    line("Male", Figure(value=0.65, lower=0.60, upper=0.70), gated=False),
    line("unknown", Figure(why="fewer than 11 positives"), gated=False, twin=None),
)


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def sure(chart: Chart | None) -> Chart:
    assert chart is not None
    return chart


def every() -> list[Chart]:
    found = (charts.epsilon_over_steps(BUDGET), charts.attack_roc(ATTACK), charts.group_auc(GROUPS, name="group_auc"))
    return [sure(chart) for chart in found]


def test_the_same_points_give_the_same_bytes_whatever_the_users_settings_are():
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": None, "svg.fonttype": "path"}):
        other = every()
    assert every() == other


def test_drawing_leaves_matplotlibs_settings_as_they_were():
    before = dict(mpl.rcParams)
    every()
    assert dict(mpl.rcParams) == before


def test_a_figure_holds_no_date_no_script_and_no_reference_to_elsewhere():
    for chart in every():
        for svg in (chart.light, chart.dark):
            tree = ElementTree.fromstring(svg)
            assert not [node for node in tree.iter() if "metadata" in node.tag or "script" in node.tag]
            links = [value for node in tree.iter() for key, value in node.attrib.items() if key.endswith("href")]
            assert all(link.startswith("#") for link in links)


def test_light_and_dark_are_one_figure_in_two_palettes():
    hue = re.compile(rb"(?<=: )#[0-9a-f]{6}")
    for chart in every():
        assert hue.sub(b"", chart.light) == hue.sub(b"", chart.dark)
        light, dark = (set(hue.findall(svg)) for svg in (chart.light, chart.dark))
        assert light
        assert not light & dark
        assert base64.b64decode(chart.dark_uri.partition(",")[2]) == chart.dark
        assert base64.b64decode(chart.light_uri.partition(",")[2]) == chart.light


def test_the_two_curves_differ_in_shape_and_not_only_in_colour():
    group = sure(charts.group_auc(GROUPS[:1], name="group_auc")).light.decode()
    assert "#0072b2" in group
    assert "#d55e00" in group
    assert "stroke-dasharray" in sure(charts.attack_roc(ATTACK)).light.decode()


def test_a_group_that_is_not_judged_is_hollow_dashed_and_named_so():
    judged = sure(charts.group_auc(GROUPS[:1], name="group_auc")).light.decode()
    both = sure(charts.group_auc(GROUPS[:2], name="group_auc"))
    assert "this model, not judged" in texts(both.light)
    assert "not judged" not in judged
    assert both.light.decode().count("stroke-dasharray: ") > judged.count("stroke-dasharray: ")
    assert "sex Male: 0.650 [0.600, 0.700], without noise 0.700, not judged" in both.alt


def test_an_undefined_auc_is_a_reason_in_the_figure_and_no_point():
    chart = sure(charts.group_auc(GROUPS, name="group_auc"))
    assert "– fewer than 11 positives" in texts(chart.light)
    assert "sex unknown: – fewer than 11 positives, without noise – not measured, not judged" in chart.alt
    without = sure(charts.group_auc(GROUPS[:2], name="group_auc"))
    assert chart.light.count(b"<use") - without.light.count(b"<use") == 0


def test_without_any_point_there_is_no_figure():
    assert charts.group_auc((), name="group_auc") is None
    assert charts.group_auc(GROUPS[2:], name="group_auc") is None
    assert charts.epsilon_over_steps(replace(BUDGET, path=())) is None
    assert charts.epsilon_over_steps(replace(BUDGET, path=((1, math.inf),))) is None
    assert charts.attack_roc(replace(ATTACK, roc=())) is None
    assert charts.attack_roc(replace(ATTACK, roc=((0.0, 0.2), (0.1, 0.0), (math.nan, 0.5)))) is None


def test_points_at_zero_have_no_place_on_log_axes_and_change_nothing():
    assert charts.attack_roc(ATTACK) == charts.attack_roc(replace(ATTACK, roc=ATTACK.roc[1:]))
    assert charts.attack_roc(ATTACK) != charts.attack_roc(replace(ATTACK, roc=ATTACK.roc[2:]))


def test_the_ceiling_and_the_twin_are_left_out_where_there_are_none():
    chart = sure(charts.attack_roc(replace(ATTACK, twin_roc=(), ceiling=())))
    assert "ruled out by epsilon" not in texts(chart.light)
    assert "recipe without noise" not in texts(chart.light)
    assert "Epsilon gives no ceiling here." in chart.alt


def test_the_alt_text_tells_the_figure_with_epsilon_delta_and_unit():
    assert sure(charts.epsilon_over_steps(BUDGET)).alt == (
        "Epsilon over the steps of the run, at delta 1e-06 for one person: 0.500 at step 1, 2.500 at step 200; the "
        "run's limit is 3. All runs on these people: 5.000 used of 8, at delta 2e-06 for one person."
    )
    assert (
        "On this model: 0.2 % true positives at 0.1 % false positives, 1.5 % true positives at 1 % false positives, "
        "12 % true positives at 10 % false positives."
    ) in sure(charts.attack_roc(ATTACK)).alt


@pytest.mark.parametrize("used", [math.nan, math.inf])
def test_an_undefined_use_has_no_bar_and_says_so(used):
    chart = sure(charts.epsilon_over_steps(replace(BUDGET, used=used)))
    assert not [text for text in texts(chart.light) if "All runs" in text]
    assert "All runs on these people: – not a finite number used of 8" in chart.alt


def test_a_rehearsal_has_used_nothing_and_tells_what_a_first_run_would_use():
    chart = sure(charts.epsilon_over_steps(BUDGET, rehearsal=True))
    assert "A first run on these people: 5.000 used of 8" in texts(chart.light)
    assert "All runs" not in chart.alt + "".join(texts(chart.light))


def test_use_above_the_cap_is_said_in_words():
    chart = sure(charts.epsilon_over_steps(replace(BUDGET, used=9.0)))
    assert "All runs on these people: 9.000 above the cap of 8" in texts(chart.light)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["$\\frac{1}{0}$", "</text><script>x</script>", "&amp; ]]>", "日本 עברית", "_legend"])
def test_a_hostile_name_stays_text(name):
    chart = sure(charts.group_auc((line(name, Figure(value=0.6)),), name="group_auc"))
    assert name in texts(chart.light)


def test_a_long_name_is_cut_in_the_figure_and_whole_in_words():
    chart = sure(charts.group_auc((line("x" * 80, Figure(value=0.6)),), name="group_auc"))
    assert f"{'x' * 25}…" in texts(chart.light)
    assert "x" * 80 in chart.alt


def test_with_25_groups_each_has_a_row_of_its_own_that_nothing_overlaps():
    lines = tuple(line(f"group {i}", Figure(value=0.6 + i / 300), attribute=f"attribute {i // 5}") for i in range(25))
    tree = ElementTree.fromstring(sure(charts.group_auc(lines, name="group_auc")).light)
    heights = []
    for node in tree.iter(f"{SVG}text"):
        if re.fullmatch(r"group \d+|attribute \d", "".join(node.itertext())):
            place = re.search(r"translate\([-\d.]+ ([-\d.]+)\)", node.attrib["transform"])
            heights.append(float(place[1]) if place else float(node.attrib["y"]))
    assert len(heights) == 30
    gaps = [below - above for above, below in itertools.pairwise(sorted(heights))]
    assert min(gaps) > 12  # points; the text is 9.5 high
