import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from configs.errors import ConfigurationError, NotPrivateError
from tasks.dpsgd.clipping import ClippingRule, clipped_total, make_engine, mean_row_loss, trainable
from tasks.dpsgd.networks import build
from tasks.dpsgd.reference import ReferenceEngine
from tasks.dpsgd.units import UnitBatch

ENGINES = ["ghost", "hooks", "reference"]
RULES = [ClippingRule(kind="flat", norm=1.0), ClippingRule(kind="normalised", norm=1.0)]


def engine_of(name, network, rule, loss=mean_row_loss):
    if name == "reference":
        return ReferenceEngine(network=network, rule=rule, loss=loss)
    return make_engine(network=network, rule=rule, loss=loss, engine=name)


def clipped_sum(name, network, batch, rule, loss=mean_row_loss):
    return engine_of(name, copy.deepcopy(network), rule, loss).clipped_sum(batch)


def flat(parts):
    return torch.cat([part.flatten() for part in parts])


def batch_of(units, rows, features, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(rows) < torch.randint(1, rows + 1, (units, 1), generator=generator)
    values = scale * torch.randn(units, rows, features, generator=generator)
    labels = torch.randint(0, 2, (units, rows), generator=generator).float()
    return UnitBatch(features=values * mask.unsqueeze(2), labels=labels * mask, mask=mask)


def without(batch, place):
    return batch.select(torch.arange(len(batch)) != place)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    hidden=st.lists(st.integers(1, 9), max_size=2),
    layer_norm=st.booleans(),
    units=st.sampled_from([0, 1, 2, 7, 33]),
    rows=st.integers(1, 4),
    features=st.integers(1, 8),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    rule=st.sampled_from(RULES),
    norm=st.sampled_from([0.01, 1.0, 50.0]),
    seed=st.integers(0, 999),
    double=st.booleans(),
)
def test_ghost_hooks_and_brute_force_agree(hidden, layer_norm, units, rows, features, scale, rule, norm, seed, double):
    # a narrow LayerNorm loses digits of float32 in any order of operations, so it is compared in float64
    double = double or layer_norm
    spec = {"kind": "mlp", "hidden": hidden, "layer_norm": layer_norm} if hidden else {"kind": "linear"}
    network = build(spec, features, seed=seed)
    batch = batch_of(units, rows, features, seed, scale)
    if double:
        network = network.double()
        batch = replace(batch, features=batch.features.double(), labels=batch.labels.double())
    rule = ClippingRule(kind=rule.kind, norm=norm)
    ghost, hooks, reference = (flat(clipped_sum(name, network, batch, rule)) for name in ENGINES)
    alone = [clipped_sum("reference", network, batch.select([place]), rule) for place in range(units)]
    tolerance = (1e-8 if double else 1e-5) * sum(float(flat(parts).norm()) for parts in alone)
    assert float((ghost - reference).norm()) <= tolerance
    assert float((hooks - reference).norm()) <= tolerance


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("rule", RULES, ids=["flat", "normalised"])
def test_a_hand_worked_clipped_sum(name, rule):
    # one weight, no bias, logit 0: a row's gradient is (½ - y) x. Units: x = 2, y = 0 gives 1; x = 8, y = 1
    # gives -4; rows x = 1, 3 with y = 0, 1 give the mean of ½ and -3/2, -½. Flat at C = 1: 1 - 1 - ½ = -½.
    # Normalised: 1/1.01 - 4/4.01 - .5/.51.
    network = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(network.weight)
    batch = UnitBatch(
        features=torch.tensor([[[2.0], [0.0]], [[8.0], [0.0]], [[1.0], [3.0]]]),
        labels=torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        mask=torch.tensor([[True, False], [True, False], [True, True]]),
    )
    expected = {"flat": -0.5, "normalised": 1 / 1.01 - 4 / 4.01 - 0.5 / 0.51}[rule.kind]
    assert clipped_sum(name, network, batch, rule)[0].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["flat", "normalised"])
def test_no_factor_lets_a_gradient_exceed_the_norm(kind):
    norms = torch.tensor([0.0, 1e-30, 1e-3, 0.5, 1.0, 1.1, 1e6, 1e30])
    rule = ClippingRule(kind=kind, norm=0.7)
    assert ((norms * rule.coefficients(norms)) <= 0.7 * (1 + 1e-6)).all()


def test_flat_clipping_leaves_small_gradients_alone_and_normalised_does_not():
    norms = torch.tensor([0.0, 0.2, 0.7])
    assert (ClippingRule(kind="flat", norm=0.7).coefficients(norms) == 1).all()
    assert (ClippingRule(kind="normalised", norm=0.7).coefficients(norms[1:2]) > 3).all()


@pytest.mark.parametrize("name", ENGINES)
def test_t1_one_outlier_moves_the_sum_by_at_most_c_with_logits_of_shape_b_1(name):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))  # [B, 1] logits
    batch = batch_of(64, 1, 6)
    batch.features[5] *= 50
    with torch.no_grad():  # the outlier is far on the wrong side, where its gradient is large
        batch.labels[5] = float(network(batch.features[5])[0, 0] < 0)
    rule = ClippingRule(kind="flat", norm=1.0)
    moved = flat(clipped_sum(name, network, batch, rule)) - flat(clipped_sum(name, network, without(batch, 5), rule))
    assert float(moved.norm()) <= 1.0001
    assert float(moved.norm()) > 0.9  # the outlier is there, and it is clipped


@pytest.mark.parametrize("name", ENGINES)
def test_t1_a_loss_of_shape_b_1_is_refused(name):
    def column_loss(logits, labels, mask):
        return mean_row_loss(logits, labels, mask).unsqueeze(1)

    with pytest.raises(NotPrivateError, match=r"shape \[\d, 1\]"):
        clipped_sum(name, nn.Linear(3, 1), batch_of(8, 1, 3), RULES[0], column_loss)


@pytest.mark.parametrize("name", ENGINES)
def test_t3_fixed_class_weights_keep_the_sensitivity(name):
    def weighted(logits, labels, mask):
        rows = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return (rows * (1 + 49 * labels) * mask).sum(dim=1) / mask.sum(dim=1)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    batch = batch_of(64, 1, 5)
    batch.labels[:] = 0
    batch.labels[9] = 1
    rule = ClippingRule(kind="flat", norm=1.0)
    moved = flat(clipped_sum(name, network, batch, rule, weighted)) - flat(
        clipped_sum(name, network, without(batch, 9), rule, weighted)
    )
    assert 0.9 < float(moved.norm()) <= 1.0001


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    rule=st.sampled_from(RULES),
    scale=st.sampled_from([1e-2, 1.0, 1e3, 1e6]),
    place=st.integers(0, 11),
    rows=st.integers(1, 4),
    seed=st.integers(0, 999),
    name=st.sampled_from(ENGINES),
)
def test_removing_one_unit_moves_the_sum_by_at_most_c(rule, scale, place, rows, seed, name):
    network = build({"kind": "mlp", "hidden": [6], "layer_norm": True}, 4, seed=seed)
    batch = batch_of(12, rows, 4, seed)
    batch.features[place] *= scale
    moved = flat(clipped_sum(name, network, batch, rule)) - flat(
        clipped_sum(name, network, without(batch, place), rule)
    )
    assert float(moved.norm()) <= rule.norm * (1 + 1e-4)


@pytest.mark.parametrize("name", ["ghost", "hooks"])
@pytest.mark.parametrize("gap", [0.1, 0.5, 2.0])
def test_rows_that_nearly_cancel_are_still_clipped(name, gap):
    # two large rows with opposite labels: every term of the squared norm is about 1e9 times the result
    network = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(network.weight)
    rows = torch.full((1, 2, 8), 4096.0)
    rows[0, 1] += gap
    batch = UnitBatch(features=rows, labels=torch.tensor([[0.0, 1.0]]), mask=torch.ones(1, 2, dtype=torch.bool))
    exact = gap * 8**0.5 / 4
    found = float(clipped_sum(name, network, batch, RULES[0])[0].norm())
    assert found == pytest.approx(min(1.0, exact), rel=1e-3)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_unit_without_a_finite_gradient_contributes_nothing_and_spoils_nothing(name, poison, rows):
    network = build({"kind": "mlp", "hidden": [6]}, 4, seed=1)
    batch = batch_of(9, rows, 4)
    batch.features[3, 0, 1] = poison
    batch.features[7, 0, :] = poison
    found = flat(clipped_sum(name, network, batch, RULES[0]))
    assert found.isfinite().all()
    if poison != 1e38:
        expected = flat(clipped_sum(name, network, without(without(batch, 7), 3), RULES[0]))
        assert torch.allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ENGINES)
def test_only_poisoned_units_give_zeros(name):
    batch = batch_of(2, 1, 4)
    batch.features[:] = float("nan")
    assert not flat(clipped_sum(name, build({"kind": "linear"}, 4), batch, RULES[0])).any()


class Embedded(nn.Module):
    """Column 0 is a code book of ten entries; the rest are numbers."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(10, 4)
        self.numbers = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 1)

    def forward(self, features):
        codes = features[..., 0].nan_to_num().clamp(0, 9).long()
        return self.head(torch.relu(self.norm(self.codes(codes) + self.numbers(features[..., 1:])))).squeeze(-1)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("units", [0, 1, 20])
@pytest.mark.parametrize("rule", RULES, ids=["flat", "normalised"])
def test_t5_embedding_and_layer_norm_are_exact_also_on_an_empty_batch(rows, units, rule):
    torch.manual_seed(0)
    network = Embedded()
    batch = batch_of(units, rows, 4, scale=3.0)
    ghost, hooks, reference = (flat(clipped_sum(name, network, batch, rule)) for name in ENGINES)
    tolerance = 1e-5 * float(reference.norm())
    assert float((ghost - reference).norm()) <= tolerance
    assert float((hooks - reference).norm()) <= tolerance
    if units == 0:
        assert not ghost.any()


def test_ghost_clipping_is_chosen_where_it_serves_every_layer_and_hooks_otherwise():
    class OwnLinear(nn.Linear):
        pass

    assert make_engine(network=Embedded(), rule=RULES[0], loss=mean_row_loss).name == "ghost"
    own = nn.Sequential(nn.Linear(3, 3), OwnLinear(3, 1))
    assert make_engine(network=own, rule=RULES[0], loss=mean_row_loss).name == "hooks"
    with pytest.raises(ConfigurationError, match="layer 1 is a OwnLinear"):
        make_engine(network=own, rule=RULES[0], loss=mean_row_loss, engine="ghost")


@pytest.mark.parametrize(
    ("frozen", "left"), [(["0.weight", "0.bias"], 7), (["0.weight"], 13), (["0.bias", "2.bias"], 30)]
)
def test_frozen_parameters_get_no_gradient_and_take_no_part_in_the_norm(frozen, left):
    network = build({"kind": "mlp", "hidden": [6]}, 4, seed=1)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name not in frozen)
    batch = batch_of(9, 2, 4)
    sums = [flat(clipped_sum(name, network, batch, RULES[0])) for name in ENGINES]
    assert len(sums[0]) == left
    assert torch.allclose(sums[0], sums[2], rtol=0, atol=1e-5)
    assert torch.allclose(sums[1], sums[2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["ghost", "hooks"])
def test_a_closed_engine_leaves_no_per_unit_values_behind(name):
    network = build({"kind": "mlp", "hidden": [6]}, 4)
    plain = set(vars(network[0].weight)) | set(vars(network[0]))
    engine = engine_of(name, network, RULES[0])
    engine.clipped_sum(batch_of(9, 2, 4))
    engine.close()
    left = set(vars(network[0].weight)) | set(vars(network[0]))
    assert not {"grad_sample", "_norm_sample", "_current_grad_sample"} & left
    assert not [value for value in vars(network[0]).get("activations", []) if value]
    assert not network[0]._forward_hooks
    assert left - plain <= {"activations"}
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("name", ["ghost", "hooks"])
@pytest.mark.parametrize("most", [1, 4])
def test_t16_the_sum_does_not_depend_on_the_physical_batch(name, most, make_records):
    records = make_records(300, features=6, most=most)
    network = build({"kind": "mlp", "hidden": [8]}, 6, seed=3)
    units = torch.arange(0, 300, 2)
    reference = engine_of("reference", copy.deepcopy(network), RULES[0])
    whole = flat(reference.clipped_sum(records.gather(units)))
    engine = engine_of(name, network, RULES[0])
    for size in (1, 8, 32, 256):
        found = flat(clipped_total(engine, records, units, like=trainable(network), physical_batch=size))
        assert float((found - whole).norm()) <= 1e-5 * float(whole.norm())


@pytest.mark.parametrize("values", [1, 500, 2**22])
def test_the_hooks_engine_takes_few_units_at_a_time_to_the_same_sum(monkeypatch, values):
    monkeypatch.setattr("tasks.dpsgd.hooks._GRADIENT_VALUES", values)
    network = build({"kind": "mlp", "hidden": [8]}, 6, seed=3)
    batch = batch_of(23, 3, 6)
    hooks, reference = (flat(clipped_sum(name, network, batch, RULES[0])) for name in ENGINES[1:])
    assert float((hooks - reference).norm()) <= 1e-5 * float(reference.norm())
