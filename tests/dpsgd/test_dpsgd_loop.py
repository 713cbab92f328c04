import inspect

import numpy as np
import pytest
import torch
from torch import nn

from configs.errors import BudgetError, ConfigurationError, NotPrivateError
from tasks.dpsgd import loop
from tasks.dpsgd.clipping import ClippingRule, clipped_total, mean_row_loss, trainable
from tasks.dpsgd.ghost import GhostEngine
from tasks.dpsgd.loop import train
from tasks.dpsgd.networks import build
from tasks.dpsgd.noise import NoisyMean
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.recipe import Recipe
from tasks.dpsgd.reference import ReferenceEngine
from tasks.dpsgd.units import UnitRecords

FEATURES = 5


def plan_of(**changes):
    fields = {"units": 300, "expected_batch": 30, "steps": 7, "noise_multiplier": 1.0, "delta": 1e-5}
    return DpSgdPlan(**(fields | changes))


def network_of(**keys):
    return build({"kind": "mlp", "hidden": [6], **keys}, FEATURES, seed=2)


def run(records, *, plan=None, network=None, claim=lambda upto: None, **keys):
    keys = {"learning_rate": 0.5} | keys
    return train(plan=plan or plan_of(), network=network or network_of(), records=records, claim=claim, **keys)


def difference(first, second):
    return max(float((value - second[name]).abs().max()) for name, value in first.items())


class Recording(GhostEngine):
    """Notes in `log` when it computes; the self-test's calls come before the first claim."""

    log: list[str]

    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        self.log.append("sum")
        return super().clipped_sum(batch)


@pytest.mark.parametrize(("steps", "chunk"), [(1, 1), (7, 1), (100, 1), (250, 2), (399, 3)])
@pytest.mark.parametrize("moments", [None, 8.0])
def test_every_step_is_claimed_before_it_is_computed(make_records, monkeypatch, steps, chunk, moments):
    records = make_records(4, features=FEATURES)
    plan = plan_of(units=4, expected_batch=4, steps=steps, delta=0.01, moments_noise_multiplier=moments)
    monkeypatch.setattr(Recording, "log", log := [], raising=False)
    first = 0 if moments is None else 1
    result = run(records, plan=plan, claim=log.append, engine=Recording, network=build({"kind": "linear"}, FEATURES))
    while log[0] == "sum":  # the self-test
        log.pop(0)
    claims = [entry for entry in log if entry != "sum"]
    assert claims == [first + min(upto, steps) for upto in range(chunk, steps + chunk, chunk)]
    computed = claimed = 0
    for entry in log:
        if entry == "sum":  # at q = 1 a step is one micro-batch
            computed += 1
            assert computed <= claimed
        else:
            claimed = entry - first
    assert computed == claimed == steps == result.executed_steps == result.claimed


@pytest.mark.parametrize("refused", [1, 3, 7])
def test_a_refused_claim_ends_the_run_with_nothing_more_computed(make_records, monkeypatch, refused):
    records = make_records(4, features=FEATURES)
    plan = plan_of(units=4, expected_batch=4, delta=0.01)
    monkeypatch.setattr(Recording, "log", log := [], raising=False)

    def claim(upto):
        if upto == refused:
            log.append("refused")
            raise BudgetError("the last step is not in the budget")
        log.append("granted")

    with pytest.raises(BudgetError, match="last step"):
        run(records, plan=plan, claim=claim, engine=Recording)
    assert log[-1] == "refused"
    ran = log[log.index("granted") if "granted" in log else len(log) :]
    assert ran.count("sum") == refused - 1


def test_a_claim_that_breaks_half_way_raises_and_leaves_the_network_alone(make_records):
    network = network_of()
    before = {name: value.clone() for name, value in network.state_dict().items()}

    def claim(upto):
        if upto == 4:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        run(make_records(300, features=FEATURES), network=network, claim=claim)
    assert difference(network.state_dict(), before) == 0
    assert not hasattr(network[0].weight, "grad_sample")


def test_steps_that_run_unclaimed_are_found_out(make_records, monkeypatch):
    original = loop._Run._step

    def twice(self, physical_batch):
        original(self, physical_batch)
        original(self, physical_batch)

    monkeypatch.setattr(loop._Run, "_step", twice)
    with pytest.raises(NotPrivateError, match="14 steps ran, 7 were claimed"):
        run(make_records(300, features=FEATURES))


def test_a_changed_tensor_that_is_no_optimised_parameter_is_found_out(make_records, monkeypatch):
    original = loop._Run._step

    def leak(self, physical_batch):
        original(self, physical_batch)
        self._network.frozen += 1

    network = nn.Sequential(nn.Linear(FEATURES, 1))
    network.register_buffer("frozen", torch.zeros(1, dtype=torch.int64))
    monkeypatch.setattr(loop._Run, "_step", leak)
    with pytest.raises(NotPrivateError, match="frozen"):
        run(make_records(300, features=FEATURES), network=network)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("decay", ["linear", "none"])
@pytest.mark.parametrize("averaging", [0.0, 0.9])
@pytest.mark.parametrize("clipping", ["flat", "normalised"])  # momentum .7 is adam's beta1
def test_the_loop_equals_dp_sgd_written_out(
    make_records, seeded_keystreams, monkeypatch, optimizer, decay, averaging, clipping
):
    # the same sampled units and noise, in a transcription of the algorithm with brute-force gradients
    records = make_records(60, features=FEATURES, most=3)
    plan = plan_of(units=60, expected_batch=20, unit="person", rows_per_unit=3, clipping=clipping, delta=1e-3)
    sampled, noises = [], []
    draw = loop.PoissonSampler.draw
    monkeypatch.setattr(loop.PoissonSampler, "draw", lambda self: sampled.append(units := draw(self)) or units)
    release = NoisyMean.__call__

    def noted(self, sums):
        released = release(self, sums)
        noises.append([20 * after - before for after, before in zip(released, sums, strict=True)])
        return released

    monkeypatch.setattr(NoisyMean, "__call__", noted)
    seeded_keystreams(11)
    result = run(
        records,
        plan=plan,
        optimizer=optimizer,
        decay=decay,
        averaging=averaging,
        learning_rate=0.2,
        momentum=0.7,
    )
    network = network_of()
    rule = ClippingRule(kind=clipping, norm=1.0)
    reference = ReferenceEngine(network=network, rule=rule, loss=mean_row_loss)
    parameters = trainable(network)
    velocity = [torch.zeros_like(each) for each in parameters]
    square = [torch.zeros_like(each) for each in parameters]
    average = [torch.zeros_like(each) for each in parameters]
    for step, (units, noise) in enumerate(zip(sampled, noises[-7:], strict=True), start=1):
        rate = 0.2 * (1 - (step - 1) / 7) if decay == "linear" else 0.2
        sums = reference.clipped_sum(records.gather(torch.from_numpy(units)))
        with torch.no_grad():
            for place, parameter in enumerate(parameters):
                gradient = (sums[place] + noise[place]) / 20
                if optimizer == "sgd":
                    velocity[place] = 0.7 * velocity[place] + gradient
                    parameter -= rate * velocity[place]
                else:
                    velocity[place] = 0.7 * velocity[place] + 0.3 * gradient
                    square[place] = 0.999 * square[place] + 0.001 * gradient**2
                    scale = (square[place] / (1 - 0.999**step)).sqrt() + 1e-8
                    parameter -= rate * velocity[place] / (1 - 0.7**step) / scale
                average[place] = averaging * average[place] + (1 - averaging) * parameter
    released = [part / (1 - averaging**7) for part in average]
    for (name, _), expected in zip(network.named_parameters(), released, strict=True):
        assert torch.allclose(result.state_dict[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most", [1, 3])
def test_t16_the_update_does_not_depend_on_the_physical_batch(make_records, seeded_keystreams, most):
    records = make_records(300, features=FEATURES, most=most)
    plan = plan_of(units=300, expected_batch=150, unit="person", rows_per_unit=most)
    states = []
    for size in (8, 32, 256):
        seeded_keystreams(3)
        states.append(run(records, plan=plan, physical_batch=size).state_dict)
    assert difference(states[0], network_of().state_dict()) > 0.01
    assert difference(states[0], states[1]) <= 1e-5
    assert difference(states[0], states[2]) <= 1e-5


def test_ghost_and_hooks_give_the_same_update(make_records, seeded_keystreams):
    records = make_records(300, features=FEATURES, most=2)
    states = []
    for engine in ("ghost", "hooks"):
        seeded_keystreams(3)
        plan = plan_of(unit="person", rows_per_unit=2)
        states.append(run(records, plan=plan, engine=engine).state_dict)
    assert difference(*states) <= 1e-5


def test_two_runs_share_neither_noise_nor_sample(make_records):
    records = make_records(300, features=FEATURES)
    first, second = run(records).state_dict, run(records).state_dict
    assert difference(first, second) > 1e-3


def test_no_argument_seeds_noise_or_sampling():
    assert not [name for name in inspect.signature(train).parameters if "seed" in name or "generator" in name]
    assert not [name for name in DpSgdPlan.__dataclass_fields__ if "seed" in name]


class EmbeddedNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(10, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 1)

    def forward(self, features):
        return self.head(self.norm(self.codes(features[..., 0].nan_to_num().clamp(0, 9).long())))


@pytest.mark.parametrize("engine", ["ghost", "hooks"])
def test_t5_an_empty_batch_is_a_step_of_noise_alone(engine):
    torch.manual_seed(0)
    network = EmbeddedNetwork()
    features = torch.randint(0, 10, (64, 2)).float()
    records = UnitRecords.of_rows(features=features, labels=torch.zeros(64))
    # q = 1e-4 and 64 units: a sample is empty with probability .9936, all six with .96
    plan = plan_of(units=10_000, expected_batch=1, steps=6, delta=1e-6)
    claims = []
    result = run(records, plan=plan, network=network, engine=engine, claim=claims.append)
    assert result.executed_steps == 6 == claims[-1]
    moved = difference(result.state_dict, network.state_dict())
    assert 0.1 < moved < 100  # σC / expected batch = 1 a step, all of it noise


@pytest.mark.parametrize("units", [0, 1])
def test_a_run_on_almost_no_units_completes(units):
    records = UnitRecords.of_rows(features=torch.zeros(units, FEATURES), labels=torch.zeros(units))
    assert run(records).executed_steps == 7


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [1.0, 0.9, 1.1])
def test_the_noise_in_an_update_has_standard_deviation_sigma_c_over_the_expected_batch(factor):
    # no unit, learning rate 1, one step: the update is the noise. 10,007 weights: the standard error of a
    # standard deviation is 1/√(2n) = .0071; |z| > 5 has probability 6e-7, and ±10 % is fourteen errors away
    width = 10_006
    records = UnitRecords.of_rows(features=torch.zeros(0, width), labels=torch.zeros(0))
    network = build({"kind": "linear"}, width)
    plan = plan_of(steps=1, noise_multiplier=1.7, clipping_norm=0.6)
    state = run(records, plan=plan, network=network, learning_rate=1.0, momentum=0.0).state_dict
    moved = torch.cat([(state[name] - value).flatten() for name, value in network.state_dict().items()])
    ratio = float(moved.double().std()) / (factor * 1.7 * 0.6 / 30)
    assert (abs(ratio - 1) < 5 / (2 * len(moved)) ** 0.5) == (factor == 1.0)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -1e38])
@pytest.mark.parametrize("engine", ["ghost", "hooks"])
def test_poisoned_rows_neither_stop_a_step_nor_reach_the_weights(make_records, seeded_keystreams, poison, engine):
    records = make_records(300, features=FEATURES, most=2)
    plan = plan_of(unit="person", rows_per_unit=2, expected_batch=200)
    index = records.index[:5].flatten()
    records.features[index[index >= 0]] = poison
    records.features[0] = poison  # the row that stands in for padding
    result = run(records, plan=plan, engine=engine)
    assert result.executed_steps == 7
    assert all(value.isfinite().all() for value in result.state_dict.values())


def test_the_twin_runs_the_same_loop_without_noise(make_records, seeded_keystreams):
    records = make_records(300, features=FEATURES)
    quiet = []
    for _ in range(2):
        seeded_keystreams(5)
        quiet.append(run(records, plan=plan_of().without_noise()))
    assert quiet[0].self_test.noise_ratio is None
    assert difference(quiet[0].state_dict, quiet[1].state_dict) == 0
    seeded_keystreams(5)
    assert difference(quiet[0].state_dict, run(records).state_dict) > 1e-3


def test_a_twin_learns_what_there_is_to_learn(make_records):
    records = make_records(2000, features=FEATURES)
    plan = plan_of(units=2000, expected_batch=400, steps=60, delta=1e-5).without_noise()
    network = network_of(zero_last_layer=True, prior_rate=0.5)
    network.load_state_dict(run(records, plan=plan, network=network, learning_rate=2.0).state_dict)
    with torch.no_grad():
        agree = (network(records.features) > 0) == (records.labels > 0.5)
    assert float(agree.float().mean()) > 0.7  # the best possible is 3/4


def test_t10_640_or_641_units_under_the_same_nominal_number_run_the_same_mechanism(make_records, monkeypatch):
    seen = []
    for units in (640, 641):
        plan = plan_of(units=640, expected_batch=64, steps=10)
        sampler = loop.PoissonSampler

        def noted(*, units, sampling_rate, keystream, sampler=sampler, plan=plan):
            seen.append((sampling_rate, plan.steps, plan.expected_batch, plan.noise_multiplier, plan.mechanisms))
            return sampler(units=units, sampling_rate=sampling_rate, keystream=keystream)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "PoissonSampler", noted)
            assert run(make_records(units, features=FEATURES), plan=plan).executed_steps == 10
    assert seen[0] == seen[1]
    assert seen[0][0] == 0.1


def test_units_with_more_rows_than_accounted_are_refused(make_records):
    with pytest.raises(NotPrivateError, match="may hold 3 rows where the plan accounts for 2"):
        run(make_records(50, features=FEATURES, most=3), plan=plan_of(unit="person", rows_per_unit=2))


@pytest.mark.parametrize(("optimizer", "expected"), [("adam", {"betas": (0.3, 0.999)}), ("sgd", {"momentum": 0.3})])
def test_momentum_is_the_momentum_of_sgd_and_beta1_of_adam(optimizer, expected):
    recipe = Recipe(learning_rate=0.1, optimizer=optimizer, momentum=0.3, decay="none", averaging=0.0)
    group = recipe.build_optimizer([nn.Parameter(torch.zeros(2))]).param_groups[0]
    assert {name: group[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("momentum", 1.0),
        ("averaging", -0.1),
        ("optimizer", "lamb"),
        ("decay", "cosine"),
        ("physical_batch", 0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(make_records, key, value):
    with pytest.raises(ConfigurationError, match=key):
        run(make_records(20, features=FEATURES), **{key: value})


def test_progress_counts_the_steps_done(make_records):
    done = []
    run(make_records(300, features=FEATURES), progress=done.append)
    assert done == list(range(1, 8))


def test_a_result_holds_weights_and_counts_and_nothing_per_record(make_records):
    result = run(make_records(300, features=FEATURES))
    assert set(result.__dataclass_fields__) == {
        "state_dict",
        "executed_steps",
        "claimed",
        "engine",
        "self_test",
        "noise",
    }
    assert set(vars(result.noise)) == {"_squares", "_values", "_largest"}
    for value in result.state_dict.values():
        assert not value.requires_grad
        assert not vars(value)


def test_an_empty_selection_gives_zeros(make_records):
    network = network_of()
    engine = GhostEngine(network=network, rule=ClippingRule(kind="flat", norm=1.0), loss=mean_row_loss)
    none = torch.from_numpy(np.empty(0, dtype=np.int64))
    records = make_records(9, features=FEATURES)
    total = clipped_total(engine, records, none, like=trainable(network), physical_batch=8)
    assert not any(part.any() for part in total)
