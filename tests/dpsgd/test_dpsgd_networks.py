import ast
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.dpsgd import networks
from tasks.dpsgd.networks import build

SPECS = [
    {"kind": "linear"},
    {"kind": "mlp", "hidden": [8]},
    {"kind": "mlp", "hidden": [8, 4], "layer_norm": True, "prior_rate": 0.2, "zero_last_layer": True},
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", [(), (7,), (7, 3), (0,)])
def test_features_of_any_leading_shape_give_one_logit_a_row(spec, shape):
    assert build(spec, 5)(torch.randn(*shape, 5)).shape == shape


def test_layers_are_those_of_the_spec():
    kinds = [type(layer) for layer in build(SPECS[2], 5)]
    block = [nn.Linear, nn.LayerNorm, nn.ReLU]
    assert kinds == [*block, *block, nn.Linear]
    assert [type(layer) for layer in build(SPECS[0], 5)] == [nn.Linear]


@pytest.mark.parametrize("kind", [{"kind": "linear"}, {"kind": "mlp", "hidden": [8]}])
@pytest.mark.parametrize("rate", [0.001, 0.11, 0.5, 0.9])
def test_a_zeroed_last_layer_predicts_the_public_prior(kind, rate):
    network = build({**kind, "prior_rate": rate, "zero_last_layer": True}, 5)
    assert torch.allclose(network(torch.randn(9, 5)).sigmoid(), torch.tensor(rate))
    assert network[-1].bias.item() == pytest.approx(math.log(rate / (1 - rate)), abs=1e-6)


def test_a_zeroed_last_layer_without_a_prior_predicts_one_half():
    network = build({"kind": "mlp", "hidden": [8], "zero_last_layer": True}, 5)
    assert not network(torch.randn(9, 5)).any()


@pytest.mark.parametrize("spec", SPECS[:2])
def test_the_seed_decides_and_the_process_wide_generator_does_not(spec):
    torch.manual_seed(1)
    first = build(spec, 5, seed=3).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    same, other = build(spec, 5, seed=3).state_dict(), build(spec, 5, seed=4).state_dict()
    assert all(torch.equal(value, same[name]) for name, value in first.items())
    assert not any(torch.equal(value, other[name]) for name, value in first.items())
    assert torch.equal(torch.get_rng_state(), state)


def test_initial_weights_stay_within_one_over_root_inputs():
    layer = build({"kind": "linear"}, 10_000, seed=1)[0]
    assert float(layer.weight.detach().abs().max()) == pytest.approx(0.01, rel=1e-2)
    assert float(layer.weight.detach().std()) == pytest.approx(0.01 / 3**0.5, rel=0.05)


@pytest.mark.parametrize(
    ("spec", "features", "named"),
    [
        ({"kind": "tree"}, 5, "tree"),
        ({}, 5, "kind"),
        ({"kind": "linear", "hidden": [3]}, 5, "hidden"),
        ({"kind": "mlp"}, 5, "hidden"),
        ({"kind": "mlp", "hidden": []}, 5, "hidden"),
        ({"kind": "mlp", "hidden": [0]}, 5, r"\[0\]"),
        ({"kind": "mlp", "hidden": [2.5]}, 5, "2.5"),
        ({"kind": "mlp", "hidden": [4], "dropout": 0.1}, 5, "dropout"),
        ({"kind": "linear", "prior_rate": 0}, 5, "prior_rate"),
        ({"kind": "linear", "prior_rate": 1.0}, 5, "prior_rate"),
        ({"kind": "linear"}, 0, "feature"),
    ],
)
def test_a_spec_out_of_range_is_refused_by_name(spec, features, named):
    with pytest.raises(ValueError, match=named):
        build(spec, features)


def test_the_file_that_ships_inside_a_model_imports_torch_and_the_standard_library_alone():
    tree = ast.parse(Path(networks.__file__).read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {"torch", "math", "collections", "itertools", "typing"}
