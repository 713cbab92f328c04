"""What may be published: rounded, bounds outwards, never finer than one unit, without counts."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.membership.metrics import AttackResult, NotEstimable, Rate, evaluate
from tasks.membership.results import down, nearest, published, published_auc, step_for, up


def result(units: int, shift: float = 0.3) -> AttackResult:
    generator = np.random.default_rng(units)
    found = evaluate(members=generator.normal(shift, 1, units + 5), non_members=generator.normal(0, 1, units))
    assert isinstance(found, AttackResult)
    return found


STEPS = {20: 0.1, 50: 0.05, 150: 0.02, 500: 0.005, 1000: 0.002, 1999: 0.002, 2000: 0.001, 10**6: 0.001}


@pytest.mark.parametrize(("units", "step"), STEPS.items())
def test_the_step_is_never_finer_than_two_units(units, step):
    assert step_for(units) == step
    assert step >= 2 / units


@given(st.floats(-1, 1), st.sampled_from([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]))
def test_bounds_round_outwards_onto_the_grid(value, step):
    assert down(value, step) <= value + 1e-9
    assert up(value, step) >= value - 1e-9
    assert up(value, step) - down(value, step) <= step + 1e-9
    assert abs(nearest(value, step) - value) <= step / 2 + 1e-9
    for rounded in (down(value, step), up(value, step), nearest(value, step)):
        assert abs(rounded / step - round(rounded / step)) < 1e-6


@given(st.integers(-1000, 1000))
def test_what_is_on_the_grid_stays_there(thousandths):
    value = thousandths / 1000
    assert down(value, 0.001) == up(value, 0.001) == nearest(value, 0.001) == value


@pytest.mark.parametrize("units", [30, 150, 1200, 3000])
def test_published_intervals_contain_the_exact_ones(units):
    exact = result(units)
    shown = published(exact)
    for name in ("auc", "accuracy", "advantage"):
        inner, outer = getattr(exact, name), getattr(shown, name)
        assert outer.lower <= inner.lower + 1e-9
        assert outer.upper >= inner.upper - 1e-9
        assert getattr(shown.floors, name) <= getattr(exact.floors, name) + 1e-9
    assert shown.auc == published_auc(exact.auc)


def test_what_is_published_holds_no_count_of_units():
    names = {field.name for field in dataclasses.fields(published(result(1200)))}
    assert names == {"auc", "accuracy", "advantage", "tpr_at_1pct", "tpr_at_01pct", "roc", "floors", "step"}
    assert {field.name for field in dataclasses.fields(Rate)} == {"value", "lower", "upper"}


def test_one_unit_more_rarely_shows():
    """Two counts in a row of hits share a published value at least every second time."""
    step = step_for(1000)
    shown = [nearest(hits / 1000, step) for hits in range(1001)]
    assert len(set(shown)) <= 502


def test_what_is_not_estimable_says_so_in_public_too():
    shown = published(result(1200))
    assert isinstance(shown.tpr_at_1pct, Rate)
    assert shown.tpr_at_01pct == NotEstimable(needs=10_000)
    assert shown.floors.tpr_at_01pct is None
    assert [fpr for fpr, _ in shown.roc] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
