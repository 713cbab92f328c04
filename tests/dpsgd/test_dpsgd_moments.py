import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from configs.errors import BudgetError, ConfigurationError
from tasks.dpsgd.moments import STD_FLOOR, bounded_sum, release_moments
from tasks.dpsgd.units import UnitRecords

NUMERIC = np.array([True, False, True])


def records_of(rows, persons, most):
    features = torch.tensor(rows, dtype=torch.float32)
    return UnitRecords.of_persons(
        features=features,
        labels=torch.zeros(len(features)),
        persons=np.asarray(persons),
        rows_per_person=most,
    )


def release(records, **changes):
    keys = {"numeric": NUMERIC, "bound": 10.0, "noise_multiplier": 1e-9, "units": len(records)}
    return release_moments(records=records, claim=changes.pop("claim", lambda upto: None), **(keys | changes))


def test_a_hand_worked_sum_over_persons():
    # person 0 has rows (1, 0, 2) and (3, 1, 2): mean (2, ½, 2), squares of the numbers (5, 4);
    # person 1 has (0, 1, 1): squares (0, 1). Both norms are below R = 10.
    records = records_of([[1, 0, 2], [0, 1, 1], [3, 1, 2]], [0, 1, 0], 2)
    assert bounded_sum(records=records, numeric=NUMERIC, bound=10.0).tolist() == [2, 1.5, 3, 5, 5]


def test_without_visible_noise_mean_and_deviation_are_those_of_the_rows():
    generator = np.random.default_rng(0)
    rows = np.column_stack([generator.normal(1, 0.5, 400), generator.random(400) < 0.3, generator.normal(0, 2, 400)])
    moments = release(records_of(rows, np.arange(400), 1), bound=1e3, noise_multiplier=1e-12)
    rows = rows.astype(np.float32).astype(np.float64)
    assert np.allclose(moments.mean, rows.mean(axis=0), atol=1e-6)
    assert np.allclose(moments.std, rows.std(axis=0), atol=1e-6)
    assert moments.mean.dtype == moments.std.dtype == np.float64


def test_the_deviation_never_falls_below_the_public_floor():
    moments = release(records_of(np.zeros((5, 3)), np.arange(5), 1), noise_multiplier=5.0)
    assert (moments.std >= STD_FLOOR).all()
    assert np.isfinite(moments.std).all()


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 999),
    scale=st.sampled_from([1e-3, 1.0, 1e3, 1e30]),
    bound=st.floats(0.01, 100),
    most=st.integers(1, 4),
    removed=st.integers(0, 9),
)
def test_removing_one_unit_moves_the_sum_by_at_most_the_bound(seed, scale, bound, most, removed):
    generator = np.random.default_rng(seed)
    persons = np.repeat(np.arange(10), generator.integers(1, most + 1, 10))
    rows = generator.normal(size=(len(persons), 3))
    rows[persons == removed] *= scale
    kept = persons != removed
    with_unit = bounded_sum(records=records_of(rows, persons, most), numeric=NUMERIC, bound=bound)
    without = bounded_sum(records=records_of(rows[kept], persons[kept], most), numeric=NUMERIC, bound=bound)
    assert np.linalg.norm(with_unit - without) <= bound * (1 + 1e-9)


def test_the_bound_is_reached_so_that_the_sensitivity_test_can_fail():
    rows = np.zeros((2, 3))
    rows[1] = 1e6
    total = bounded_sum(records=records_of(rows, [0, 1], 1), numeric=NUMERIC, bound=3.0)
    assert np.linalg.norm(total) == pytest.approx(3.0)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_unit_that_is_not_finite_contributes_nothing_and_spoils_nothing(poison):
    rows = np.ones((4, 3))
    rows[0, 1] = poison  # row 0 also stands in for padding
    total = bounded_sum(records=records_of(rows, [0, 1, 1, 2], 2), numeric=NUMERIC, bound=10.0)
    assert total.tolist() == [2, 2, 2, 2, 2]


def test_the_claim_comes_first_and_a_refused_claim_computes_nothing(monkeypatch):
    def refuse(upto):
        raise BudgetError(f"claim {upto} refused")

    def never(**keys):
        raise AssertionError("computed without a claim")

    monkeypatch.setattr("tasks.dpsgd.moments.bounded_sum", never)
    with pytest.raises(BudgetError, match="claim 1 refused"):
        release(records_of(np.zeros((2, 3)), [0, 1], 1), claim=refuse)


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.8, False), (1.2, False)])
def test_the_noise_has_standard_deviation_sigma_times_the_bound(factor, passes):
    # zeros as data: the released means are N(0, (σR/units)²), 20,000 of them. Kolmogorov-Smirnov rejects the
    # true law with probability 1e-6
    numeric = np.zeros(20_000, dtype=bool)
    records = records_of(np.zeros((3, 20_000)), [0, 1, 2], 1)
    moments = release(records, numeric=numeric, bound=4.0, noise_multiplier=2.0, units=100)
    noise = moments.mean * 100 / (factor * 2.0 * 4.0)
    assert (stats.kstest(noise, "norm").pvalue > 1e-6) == passes


def test_two_releases_differ():
    records = records_of(np.zeros((3, 3)), [0, 1, 2], 1)
    assert not np.array_equal(release(records).mean, release(records).mean)


def test_the_divisor_is_the_public_number_of_units():
    one, two = (
        records_of(np.ones((100, 3)), np.arange(100), 1),
        records_of(np.ones((101, 3)), np.arange(101), 1),
    )
    means = [release(records, units=100, noise_multiplier=1e-12).mean for records in (one, two)]
    assert np.allclose(means[0], 1.0)
    assert np.allclose(means[1], 1.01)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bound", 0.0),
        ("bound", float("nan")),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", float("inf")),
        ("units", 0),
        ("numeric", np.array([True])),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name_before_the_claim(key, value):
    def claim(upto):
        raise AssertionError("claimed")

    with pytest.raises(ConfigurationError, match=key):
        release(records_of(np.zeros((2, 3)), [0, 1], 1), claim=claim, **{key: value})
