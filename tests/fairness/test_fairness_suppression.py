"""What is published: words and rounded numbers, of which no small cell can be read or derived."""

import itertools
import json
import re
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.fairness import disclosure, worlds
from tasks.fairness.cells import CELLS, Veil, coarse_rate, words
from tasks.fairness.groups import OTHER, UNKNOWN, intersect, intersect_names
from tasks.fairness.report import FairnessReport, group_report
from tasks.fairness.suppression import HIDDEN, PublishedGroup, PublishedReport, metrics, names, published
from tasks.statistics.proportions import RateEstimate, rate
from tests.fairness import attack


def table(counts, *, declared=None, min_count=100, **attributes) -> FairnessReport:
    """A report on groups with given (true positives, false negatives, false positives, true negatives)."""
    rows = [(name, kind) for name, confusion in counts.items() for kind, n in enumerate(confusion) for _ in range(n)]
    kinds = np.array([kind for _, kind in rows], dtype=int)
    order = np.arange(kinds.size) / (kinds.size + 1)
    scores = np.where(np.isin(kinds, (0, 2)), 0.5 + order / 2, order / 2)
    column = np.array([name for name, _ in rows], dtype=object)
    parts = {"group": column} | {
        key: np.array([f(name) for name, _ in rows], dtype=object) for key, f in attributes.items()
    }
    named = {key: tuple(dict.fromkeys(part)) for key, part in parts.items()}
    return group_report(
        labels=np.isin(kinds, (0, 1)).astype(int),
        groups=parts,
        declared=named | (declared or {}),
        persons=None,
        scores={"model": scores, "without_noise": scores[::-1].copy()},
        threshold=0.5,
        min_count=min_count,
    )


def of(report: PublishedReport, name: str) -> PublishedGroup:
    (found,) = (group for group in report.groups if group.name == name)
    return found


LARGE = (613, 541, 987, 4123)


def test_counts_are_told_in_words_only():
    shown = {11: "about 10", 14: "about 10", 15: "about 20", 95: "about 100", 149: "about 150", 3812: "about 3,800"}
    assert {rows: words(rows) for rows in shown} == shown
    assert {words(rows) for rows in range(11)} == {"10 or fewer"}
    for rows in range(11, 30_000, 7):
        assert attack._about(rows) == words(rows)


def test_no_exact_count_of_a_table_is_published():
    report = published(table({"a": (613, 541, 977, 4023), "b": (311, 217, 403, 2213)}))
    text = json.dumps(asdict(report)) + json.dumps(metrics(report))
    told = {int(number) for number in re.findall(r"(?<![\d.])\d+(?![\d.])", re.sub(r"(\d),(\d)", r"\1\2", text))}
    assert {6200, 3100} <= told
    assert not told & {613, 541, 977, 4023, 6154, 1154, 5000, 311, 217, 403, 2213, 3144, 528, 2616}
    assert [group.rows for group in report.groups] == ["about 6,200", "about 3,100"]


@given(st.integers(11, 400), st.data())
def test_the_published_interval_encloses_the_exact_one(rows, data):
    hits = data.draw(st.integers(0, rows))
    people = data.draw(st.sampled_from([None, 1, 2, 3]))
    found = rate(hits=np.arange(rows) < hits, clusters=None if people is None else np.arange(rows) // people)
    assert isinstance(found, RateEstimate)
    value, lower, upper = coarse_rate(found, found.rows / found.effective, 0.95)
    assert value == round(found.rate, 2)
    assert lower <= found.lower + 1e-9
    assert found.upper <= upper + 1e-9


def test_three_rows_of_unknown_sex_do_not_hide_the_men():
    report = published(table({"f": LARGE, "m": LARGE, UNKNOWN: (0, 1, 1, 1)}))
    unknown = of(report, UNKNOWN)
    assert [of(report, name).shown for name in ("f", "m")] == [True, True]
    assert (unknown.shown, unknown.rows, unknown.why_not) == (False, "10 or fewer", HIDDEN)
    assert all(number.value is None and number.why == HIDDEN for _, number in unknown.metrics)


def test_among_small_groups_a_second_is_hidden_and_it_is_the_smallest():
    counts = {"a": (2, 1, 2, 1), "b": (11, 11, 11, 11), "c": (14, 14, 14, 14), "d": (13, 13, 13, 13)}
    report = published(table(counts))
    assert {name: of(report, name).rows for name in "ab"} == {"a": "10 or fewer", "b": "more than 10"}
    assert [of(report, name).shown for name in "abcd"] == [False, False, True, True]


def test_a_group_with_few_positives_is_hidden_however_large_it_is():
    report = published(table({"a": (5, 5, 900, 4000), "b": LARGE, "c": LARGE}))
    assert (of(report, "a").shown, of(report, "a").rows) == (False, "more than 10")
    assert of(report, "b").shown


def test_a_group_without_positives_is_shown_with_its_states():
    report = published(table({"a": (0, 0, 900, 4000), "b": LARGE, "c": LARGE}))
    found = dict(of(report, "a").metrics)
    assert found["tpr"].why == found["auc"].why == "no row is positive"
    assert found["tpr"].value is None
    assert found["base_rate"].value == 0.0
    logged = metrics(report)
    assert logged["fairness/group/a/undefined"] == 2
    assert "fairness/group/a/tpr" not in logged


@pytest.mark.parametrize(("confusion", "hidden"), [
    ((600, 10, 900, 4000), {"tpr", "precision", "selection_rate"}),
    ((10, 600, 900, 4000), {"tpr", "precision", "selection_rate"}),
    ((600, 500, 10, 4000), {"fpr", "precision", "selection_rate"}),
    ((600, 500, 900, 10), {"fpr", "precision", "selection_rate"}),
    ((600, 0, 900, 4000), set()),
    ((600, 11, 900, 4000), set()),
    ((600, 500, 0, 4000), set()),
])  # fmt: skip
def test_a_rate_that_tells_a_small_cell_of_the_confusion_matrix_is_hidden(confusion, hidden):
    report = published(table({"a": confusion, "b": LARGE, "c": LARGE}))
    found = dict(of(report, "a").metrics)
    assert {name for name, number in found.items() if number.why == HIDDEN} == hidden
    assert found["auc"].value is not None


def test_the_gap_of_a_rate_falls_with_a_gated_groups_hidden_rate():
    report = published(table({"a": (5, 600, 900, 4000), "b": LARGE, "c": LARGE}))
    gaps = {metric: number for _, metric, number in report.gaps}
    assert all(group.gated for group in report.groups)
    assert gaps["tpr"].value is None
    assert "not shown" in gaps["tpr"].why
    assert gaps["fpr"].value == 0.01  # .18 of a, .19 of the others
    assert gaps["auc"].value is not None


def test_a_gap_of_rates_is_made_of_what_is_shown():
    report = published(table({"a": (700, 400, 900, 4000), "b": LARGE}))
    gaps = {metric: number for _, metric, number in report.gaps}
    shown = [dict(of(report, name).metrics)["tpr"].value for name in "ab"]
    assert gaps["tpr"].value == round(shown[0] - shown[1], 2)
    assert gaps["tpr"].lower < gaps["tpr"].value < gaps["tpr"].upper


def test_persons_and_not_rows_make_a_cell_small():
    rows = 400
    labels, column = np.tile([0, 1], rows), np.repeat(np.array(["a", "b"], dtype=object), rows)
    people = np.r_[np.repeat(np.arange(8), rows // 8), 100 + np.arange(rows)]
    found = group_report(
        labels=labels, groups={"sex": column}, declared={"sex": ("a", "b")}, persons=people,
        scores={"model": np.random.default_rng(0).random(2 * rows)}, threshold=0.5, min_count=100,
    )  # fmt: skip
    assert found.groups[0].counts.of("rows") == rows
    assert not of(published(found), "a").shown


def test_an_absent_group_reads_like_a_tiny_one_and_gives_no_metric():
    report = published(table({"b": LARGE, "c": LARGE}, declared={"group": ("absent", "b", "c")}))
    absent = of(report, "absent")
    assert (absent.rows, absent.shown, absent.why_not, absent.gated) == ("10 or fewer", False, HIDDEN, False)
    assert not any("absent" in key for key in metrics(report))


def test_where_a_total_is_small_its_cell_is_hidden_everywhere():
    report = published(table({"a": (0, 600, 900, 4000), "b": (4, 600, 900, 4000), "c": (3, 700, 900, 4000)}))
    for group in report.groups:
        found = dict(group.metrics)
        assert group.shown
        assert {name for name, number in found.items() if number.why == HIDDEN} == {
            "tpr", "precision", "selection_rate"
        }  # fmt: skip
    few = published(table({"a": (0, 4, 900, 4000), "b": (0, 0, 900, 4000)}))
    assert not any(group.shown for group in few.groups)


def test_bounds_are_rounded_outwards_to_three_decimals_at_most():
    exact = table({"a": LARGE, "b": (300, 150, 401, 1203)})
    for result, group in zip(exact.groups, published(exact).groups, strict=True):
        for found, number in ((result.loss, group.loss), (result.primary, group.primary)):
            assert number.value is not None
            assert number.lower is not None
            assert number.upper is not None
            assert number.lower <= found.lower <= found.upper <= number.upper  # type: ignore[union-attr]
            assert number.upper - number.lower <= found.upper - found.lower + 0.002  # type: ignore[union-attr]
    for key, number in metrics(published(exact)).items():
        assert number == round(number, 3), key


def test_metric_keys_name_shown_groups_by_slugs_and_the_mapping_has_their_names():
    counts = {"65+": LARGE, "[70-80)": LARGE, "O'Neil": LARGE, "Zürich": LARGE, "..": LARGE, OTHER: (1, 1, 1, 1)}
    report = published(table(counts))
    logged, real = metrics(report), names(report)
    groups = {key.split("/")[2] for key in logged}
    assert groups == {"65_", "_70-80_", "O_Neil", "Z_rich", "_."}
    assert {real[f"group/{part}"] for part in groups} == set(counts) - {OTHER}
    assert set(real) == {"group", *(f"group/{part}" for part in groups)}
    assert logged["fairness/group/65_/tpr"] == round(613 / 1154, 2)
    assert all(isinstance(value, float) and np.isfinite(value) for value in logged.values())
    assert {key.rsplit("/", 1)[1] for key in logged} >= {
        "base_rate", "auc", "tpr", "fpr", "precision", "selection_rate", "calibration", "undefined",
        "auc_without_noise", "privacy_loss", "privacy_loss_lower", "privacy_loss_upper",
    }  # fmt: skip


def test_publishing_is_a_function_of_the_report_alone():
    counts = {"a": (2, 1, 2, 1), "b": (11, 11, 11, 11), "c": (14, 14, 14, 14)}
    assert published(table(counts)) == published(table(counts))


def exposed(report: FairnessReport, shown: PublishedReport, dims: tuple[int, ...]) -> list[tuple[str, str, set[int]]]:
    """Small cells of which fewer than five values between 1 and 10 are possible to the attacker."""
    totals = tuple(sum(result.counts.confusion[kind] for result in report.groups) for kind in range(4))
    worlds = [attack.possible(group, totals, dims[0]) for group in shown.groups]
    found = []
    for at, result in enumerate(report.groups):
        assert worlds[at][result.counts.confusion], "the truth must be possible"
        for cell, parts in CELLS.items():
            if result.counts.is_small(cell):
                open_to = {value for value in attack.values(parts, at, worlds, totals) if 1 <= value <= 10}
                if max(open_to) - min(open_to) < disclosure.SPREAD:
                    found.append((result.group, cell, open_to))
    return found


def large_totals(counts) -> bool:
    sums = np.sum(counts, axis=0)
    return all(total == 0 or total > 10 for total in (*sums, sums[0] + sums[1], sums[2] + sums[3]))


few = st.sampled_from([0, 1, 2, 5, 9, 10, 11, 12, 15, 20])


@given(st.lists(st.tuples(few, few, few, st.just(0)), min_size=2, max_size=3))
@settings(max_examples=25)
def test_an_exact_attack_on_small_tables_finds_no_small_cell(counts):
    assume(large_totals(counts))
    report = table(dict(zip("abc", counts, strict=False)), min_count=12)
    assert exposed(report, published(report), (12,)) == []


some = st.sampled_from([0, 1, 3, 8, 10, 11, 14, 25, 60, 110, 170])


@given(st.lists(st.tuples(some, st.just(0), some, st.just(0)), min_size=2, max_size=5))
@settings(max_examples=25)
def test_an_exact_attack_on_larger_tables_of_two_kinds_finds_no_small_cell(counts):
    assume(large_totals(counts))
    report = table(dict(zip("abcde", counts, strict=False)), min_count=100)
    assert exposed(report, published(report), (100,)) == []


def test_the_same_attack_reads_small_cells_where_only_they_are_hidden(monkeypatch):
    counts = {"a": (3, 0, 4, 0), "b": (12, 0, 11, 0), "c": (13, 0, 11, 0)}
    monkeypatch.setattr(disclosure, "_first_exposed", lambda *_: None)
    report = table(counts, min_count=100)
    found = exposed(report, published(report), (100,))
    assert ("a", "positives", {3}) in found
    assert ("a", "negatives", {4}) in found


def two_way_values(report: PublishedReport, cells: dict[str, int], ones, twos) -> dict[str, set[int]]:
    """All values of each intersection's size, by enumeration, where nobody is positive and everybody flagged."""
    total = sum(cells.values())
    fits = {
        (group.attribute, group.name): attack.possible(group, (0, 0, total, 0), 100)[0, 0, :, 0]
        for group in report.groups
    }

    def line(one):
        """Sizes of one row of the table that fit its cells and its margin."""
        rows = [np.flatnonzero(fits["group", f"{one} × {two}"]) for two in twos]
        grid = np.stack(np.meshgrid(*rows, indexing="ij"), -1).reshape(-1, len(twos))
        grid = grid[grid.sum(1) <= total]
        return grid[fits["one", one][grid.sum(1)]]

    first, second = (line(one) for one in ones)
    found: dict[str, set[int]] = {name: set() for name in cells}
    for row in first:
        margins = second + row
        ok = margins.sum(1) == total
        margins, rest = margins[ok], second[ok]
        keep = np.all([fits["two", two][margins[:, at]] for at, two in enumerate(twos)], axis=0)
        if keep.any():
            for at, two in enumerate(twos):
                found[f"{ones[0]} × {two}"].add(int(row[at]))
                found[f"{ones[1]} × {two}"] |= set(map(int, rest[keep][:, at]))
    return found


sizes = st.sampled_from([0, 1, 4, 7, 10, 11, 13, 16, 22])


def two_way(numbers) -> tuple[dict[str, int], FairnessReport, tuple[str, ...], tuple[str, ...]]:
    ones, twos = ("p", "q"), ("x", "y", "z")[: len(numbers) // 2]
    cells = dict(zip(intersect_names(ones, twos), numbers, strict=True))
    counts = {name: (0, 0, size, 0) for name, size in cells.items()}
    report = table(
        counts, declared={"group": tuple(cells), "one": ones, "two": twos},
        one=lambda name: name.split(" × ")[0], two=lambda name: name.split(" × ")[1],
    )  # fmt: skip
    return cells, report, ones, twos


def two_way_exposed(numbers) -> list[tuple[str, set[int]]]:
    cells, report, ones, twos = two_way(numbers)
    found = two_way_values(published(report), cells, ones, twos)
    small = {name: {size for size in found[name] if 1 <= size <= 10} for name, n in cells.items() if 1 <= n <= 10}
    return [(name, open_to) for name, open_to in small.items() if max(open_to) - min(open_to) < disclosure.SPREAD]


@given(st.lists(sizes, min_size=4, max_size=4) | st.lists(sizes, min_size=6, max_size=6))
@settings(max_examples=25)
def test_an_exact_attack_on_rows_and_columns_of_an_intersection_finds_no_small_cell(numbers):
    assume(sum(numbers) > 10)
    assert two_way_exposed(numbers) == []


def test_the_same_attack_reads_an_intersection_off_its_margins_where_only_it_is_hidden(monkeypatch):
    monkeypatch.setattr(disclosure, "_first_exposed", lambda *_: None)
    assert ("p × x", {4}) in two_way_exposed([4, 11, 11, 11])


def test_where_hiding_every_group_is_not_enough_their_sizes_go_too():
    # 12 in all, of which a group of more than 10 would leave the other 1 at most
    _, report, _, _ = two_way([0, 0, 1, 11])
    assert {group.rows for group in published(report).groups} == {"not shown"}


def test_sums_are_found_in_the_rows_whatever_the_names():
    one = np.array(["f", "f", "m", "m", "m"], dtype=object)
    two = np.array(["old", "young", "old", "old", "young"], dtype=object)
    rows = {"sex": one, "age": two, "both": intersect(one, two)}
    groups = {"sex": ("f", "m"), "age": ("old", "young"), "both": intersect_names(("f", "m"), ("old", "young"))}
    found = {(each.members, each.target) for each in disclosure.sums(groups, rows)}
    assert found == {
        ((0, 1), None), ((2, 3), None), ((4, 5, 6, 7), None),
        ((4, 5), 0), ((6, 7), 1), ((4, 6), 2), ((5, 7), 3),
    }  # fmt: skip


def test_groups_without_rows_are_in_no_sum():
    rows = {"sex": np.array(["f", "f"], dtype=object)}
    assert [each.members for each in disclosure.sums({"sex": ("m", "f")}, rows)] == [(1,)]


def test_what_the_solver_cannot_show_safe_is_hidden(monkeypatch):
    monkeypatch.setattr(disclosure.Search, "world", lambda *_: None)
    report = published(table({"f": LARGE, "m": LARGE, UNKNOWN: (0, 1, 1, 1)}))
    assert not any(group.shown for group in report.groups)


def test_all_published_parts_of_a_hidden_group_are_empty():
    report = published(table({"a": (2, 1, 2, 1), "b": LARGE, "c": LARGE}))
    group = of(report, "a")
    numbers = itertools.chain((number for _, number in group.metrics), (group.loss, group.primary, group.trees))
    assert all((one.value, one.lower, one.upper) == (None, None, None) for one in numbers)


def answered(monkeypatch, answer) -> object:
    """What becomes of a solver's answer for two groups that are shown and one of three rows that is not."""
    counts = [result.counts for result in table({"f": LARGE, "m": LARGE, UNKNOWN: (0, 1, 1, 1)}).groups]
    hidden = [Veil(), Veil(), Veil(everything=True)]
    search = worlds.Search(counts, hidden, [worlds.Sum(members=(0, 1, 2))], 100)
    truth = np.array(search.truth, dtype=float)
    solved = SimpleNamespace(x=None if answer is None else (truth + answer).ravel())
    monkeypatch.setattr(worlds, "milp", lambda *_, **__: solved)
    return search.world(worlds.Target(cell="rows", groups=(2,)), 1)


def test_an_answer_of_the_solver_counts_only_if_a_reader_would_be_told_the_same(monkeypatch):
    nothing = np.zeros((3, 4))
    moved, lost, far, below = (nothing.copy() for _ in range(4))
    moved[[1, 2], 3] = -1, 1  # one true negative from `m` to the hidden group
    lost[2, 3] = 1  # one out of nowhere
    far[[1, 2], 3] = -8, 8  # the hidden group would have eleven rows, which are told in another word
    below[[1, 2], 3] = 3, -3  # fewer than no rows
    rates = nothing.copy()
    rates[[0, 1], 0] = 90, -90  # the true positive rate of both reads otherwise
    assert answered(monkeypatch, moved) is not None
    assert answered(monkeypatch, nothing + 1e-7) is not None
    for answer in (None, lost, far, below, rates, nothing + np.nan):
        assert answered(monkeypatch, answer) is None
