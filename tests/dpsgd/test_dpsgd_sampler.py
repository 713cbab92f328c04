import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tasks.dpsgd.csprng import SystemKeystream
from tasks.dpsgd.sampler import PoissonSampler


class FixedUniforms:
    """A keystream whose uniform numbers are those given, to within 2⁻⁵²."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers)
        self.position = 0

    def words(self, count):
        taken = self.numbers[(self.position + np.arange(count)) % len(self.numbers)]
        self.position += count
        return (taken * 2.0**52).astype(np.uint64) << np.uint64(12)


def sampler(units, rate, keystream=None):
    return PoissonSampler(units=units, sampling_rate=rate, keystream=keystream or SystemKeystream())


def test_a_hand_worked_walk():
    # q = 1/2: gap = ⌊log U / log ½⌋; U = .6, .3, .1 give 0, 1, 3, so the members are 0, 2, 6, then 7, 9, 13 …
    assert sampler(10, 0.5, FixedUniforms([0.6, 0.3, 0.1])).draw().tolist() == [0, 2, 6, 7, 9]


def test_rate_one_takes_every_unit_at_every_step():
    full = sampler(7, 1.0)
    assert all(full.draw().tolist() == list(range(7)) for _ in range(3))


@pytest.mark.parametrize("rate", [1e-300, 1e-18, 1e-9])
def test_a_tiny_rate_gives_an_empty_sample_and_no_overflow(rate):
    assert len(sampler(1000, rate).draw()) == 0


def test_no_units_give_an_empty_sample():
    assert len(sampler(0, 0.3).draw()) == 0


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match="sampling_rate"):
        sampler(10, rate)


@settings(deadline=None, max_examples=100)
@given(units=st.integers(0, 500), rate=st.floats(1e-12, 1.0))
def test_a_sample_holds_increasing_unit_numbers_in_range(units, rate):
    members = sampler(units, rate).draw()
    assert members.dtype == np.int64
    assert (np.diff(members) > 0).all()
    assert len(members) == 0 or (members[0] >= 0 and members[-1] < units)


def test_the_work_does_not_grow_with_the_number_of_units():
    class Counting(SystemKeystream):
        drawn = 0

        def words(self, count):
            Counting.drawn += count
            return super().words(count)

    drawn = []
    for units in (10_000, 100_000_000):
        Counting.drawn = 0
        sampler(units, 500 / units, Counting()).draw()
        drawn.append(Counting.drawn)
    assert drawn[1] <= 2 * drawn[0]
    assert drawn[1] < 2000


def poisson(units, rate):
    draws = sampler(units, rate)
    return draws.draw


def fixed_size(units, rate):
    generator = np.random.default_rng(1)
    return lambda: generator.choice(units, size=round(units * rate), replace=False)


def shuffled(units, rate):
    generator = np.random.default_rng(2)
    size = round(units * rate)
    pending: list[np.ndarray] = []

    def draw():
        if not pending:
            pending.extend(generator.permutation(units).reshape(-1, size))
        return pending.pop()

    return draw


def other_rate(factor):
    return lambda units, rate: sampler(units, factor * rate).draw


STEPS, UNITS, RATE = 4000, 200, 0.1


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("scheme", "passes"),
    [
        (poisson, True),
        (fixed_size, False),
        (shuffled, False),
        (other_rate(0.9), False),
        (other_rate(1.1), False),
    ],
    ids=["poisson", "fixed size", "shuffled epochs", "rate x 0.9", "rate x 1.1"],
)
def test_batch_sizes_follow_the_binomial_law_of_poisson_sampling(scheme, passes):
    # chi-square of 4000 batch sizes against Binomial(200, .1), cells of expectation ≥ 20; the true law is
    # rejected with probability 1e-6
    draw = scheme(UNITS, RATE)
    sizes = np.array([len(draw()) for _ in range(STEPS)])
    law = stats.binom(UNITS, RATE)
    edges = np.arange(law.ppf(0.01), law.ppf(0.99))
    cells = np.searchsorted(edges, sizes)
    expected = np.diff(np.concatenate([[0], law.cdf(edges), [1]])) * STEPS
    observed = np.bincount(cells, minlength=len(expected))
    assert expected.min() > 20
    assert (stats.chisquare(observed, expected).pvalue > 1e-6) == passes


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bias", "passes"), [(0.0, True), (0.06, False)], ids=["every unit alike", "one half favoured"]
)
def test_every_unit_joins_at_the_same_rate(bias, passes):
    # chi-square of inclusion counts of 200 units over 20,000 steps; false alarm 1e-6
    draw = poisson(UNITS, RATE)
    favoured = np.random.default_rng(3)
    counts = np.zeros(UNITS)
    for _ in range(20_000):
        members = draw()
        kept = (members < UNITS // 2) | (favoured.random(len(members)) >= bias)
        counts[members[kept]] += 1
    variance = 20_000 * RATE * (1 - RATE)
    statistic = ((counts - 20_000 * RATE) ** 2 / variance).sum()
    assert (stats.chi2(UNITS).sf(statistic) > 1e-6) == passes


@pytest.mark.statistical
def test_two_units_join_independently():
    # joint inclusions of neighbours, where a walk of gaps could go wrong: Binomial(20,000 · 199 pairs, q²) up
    # to the dependence of overlapping pairs, which at most trebles the variance; |z| > 5 has probability 6e-7
    draw = poisson(UNITS, RATE)
    joint = sum(int((np.diff(draw()) == 1).sum()) for _ in range(20_000))
    trials = 20_000 * (UNITS - 1)
    assert abs(joint - trials * RATE**2) < 5 * (3 * trials * RATE**2) ** 0.5
