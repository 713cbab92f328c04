"""The control memorises and is caught; a network that never saw the units is not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import ConfigurationError, DataError
from tasks.dpsgd import networks
from tasks.membership import control as module
from tasks.membership.control import control
from tasks.membership.metrics import AttackResult
from tasks.membership.verdict import CAUGHT
from tasks.statistics.roc import Undefined

FEATURES = 60


def people(count: int, *, seed: int, rows: int = 1) -> module.Units:
    """Uniform features; each unit has from 1 to `rows` rows, and rubbish where it has none."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(count, rows, FEATURES, generator=generator)
    counts = torch.randint(1, rows + 1, (count, 1), generator=generator)
    mask = torch.arange(rows) < counts
    features[~mask] = 1e6
    return features, mask


def attacked(members: module.Units, non_members: module.Units, **settings) -> AttackResult:
    found = control(members=members, non_members=non_members, seed=3, **settings)
    assert isinstance(found, AttackResult)
    return found


@pytest.mark.parametrize("rows", [1, 3])
def test_a_network_that_memorised_is_caught(rows):
    found = attacked(people(800, seed=1, rows=rows), people(800, seed=2, rows=rows))
    assert found.accuracy.lower >= CAUGHT
    assert (found.members, found.non_members) == (800, 800)


@pytest.mark.statistical
def test_a_network_trained_on_other_people_is_not_caught(monkeypatch):
    """Negative control. False alarm at most .002: the floor of the AUC is a one-sided bound at that level; the
    accuracy would have to be .1 above chance, more than seven standard errors.
    """
    others, train = people(800, seed=9), module._memorise
    monkeypatch.setattr(
        module, "_memorise", lambda network, units, labels, **how: train(network, others, labels, **how)
    )
    found = attacked(people(800, seed=1), people(800, seed=2))
    assert found.accuracy.lower < CAUGHT
    assert found.floors.auc < 0.5


def test_an_untrained_network_is_not_caught(monkeypatch):
    monkeypatch.setattr(module, "_memorise", lambda *units, **how: None)
    assert attacked(people(800, seed=1), people(800, seed=2)).accuracy.lower < 0.55


def test_how_features_are_scaled_does_not_decide_whether_the_control_memorises():
    members, others = people(800, seed=1), people(800, seed=2)
    plain = attacked(members, others)
    moved = attacked((members[0] * 4 + 32, members[1]), (others[0] * 4 + 32, others[1]))  # exact in binary
    assert moved.accuracy.value == pytest.approx(plain.accuracy.value, abs=0.05)
    assert moved.accuracy.lower >= CAUGHT


def test_a_constant_column_and_padding_disturb_nothing():
    members, others = people(400, seed=1, rows=2), people(400, seed=2, rows=2)
    first = attacked(members, others, epochs=2)
    for features, mask in (members, others):
        features[~mask] = -7.0
    assert attacked(members, others, epochs=2) == first
    for features, _ in (members, others):
        features[..., 0] = 5.0
    assert attacked(members, others, epochs=2).auc.auc > 0


def test_a_unit_weighs_the_same_however_many_rows_it_has():
    once, _ = people(256, seed=1)
    features, few = once.expand(-1, 3, -1).contiguous(), torch.tensor([[True, False, False]])
    labels = torch.arange(256).unsqueeze(1) % 2
    some = torch.where(torch.arange(256).unsqueeze(1) % 3 == 0, torch.tensor(True), few)  # a third repeat their row
    trained = []
    for mask in (few.expand(256, -1), some):
        network = networks.build({"kind": "mlp", "hidden": [64]}, FEATURES, seed=0)
        generator = torch.Generator().manual_seed(0)
        module._memorise(network, (features, mask), labels, epochs=2, batch=64, rate=2e-3, generator=generator)
        trained.append(torch.cat([part.detach().flatten() for part in network.parameters()]))
    assert torch.allclose(*trained, atol=1e-4)


def test_the_seed_decides_and_the_process_wide_generator_does_not():
    members, others = people(200, seed=1), people(200, seed=2)
    torch.manual_seed(5)
    first = attacked(members, others, epochs=3)
    torch.manual_seed(6)
    assert attacked(members, others, epochs=3) == first
    assert control(members=members, non_members=others, epochs=3, seed=4) != first


def test_the_training_changes_nothing_that_it_was_given():
    members, others = people(200, seed=1), people(200, seed=2)
    before = members[0].clone(), others[0].clone()
    attacked(members, others, epochs=1)
    assert torch.equal(members[0], before[0])
    assert torch.equal(others[0], before[1])


@given(st.integers(1, 50))
@settings(max_examples=10)
def test_labels_are_a_fair_coin_a_unit_of_both_sides(seed):
    """False alarm below 1e-6 a seed: 100 of 400 coins off by 50 is 5 standard errors."""
    seen = []

    def look(network, units, labels):
        seen.append(labels)
        return torch.arange(float(len(labels))).double().numpy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_memorise", lambda *units, **how: None)
        patch.setattr(module, "_scores", look)
        control(members=people(400, seed=1, rows=3), non_members=people(400, seed=2, rows=3), seed=seed)
    for labels in seen:
        assert labels.shape == (400, 1)
        assert 150 < int(labels.sum()) < 250
    assert not torch.equal(*seen)


def test_a_feature_that_is_not_finite_leaves_the_control_undefined():
    members, others = people(200, seed=1), people(200, seed=2)
    members[0][0, 0, 0] = float("nan")
    found = control(members=members, non_members=others, epochs=1, seed=1)
    assert isinstance(found, Undefined)


def test_too_few_units_leave_the_control_undefined():
    assert isinstance(control(members=people(10, seed=1), non_members=people(50, seed=2), epochs=1, seed=1), Undefined)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"hidden": 63}, "hidden = 63 must be at least 64"),
        ({"epochs": 0}, "epochs = 0"),
        ({"batch": 0}, "batch = 0"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"labels": "given"}, "labels = 'given' is not available"),
    ],
)
def test_a_control_that_could_not_prove_anything_is_refused_by_name(setting, named):
    with pytest.raises(ConfigurationError, match=named):
        control(members=people(50, seed=1), non_members=people(50, seed=2), seed=1, **setting)


def test_units_that_do_not_fit_are_refused():
    good, (features, mask) = people(50, seed=1), people(50, seed=2)
    empty = mask.clone()
    empty[3] = False
    for bad in ((features[:, 0], mask), (features, mask[:, :0]), (features[..., :5], mask), (features, empty)):
        with pytest.raises(DataError):
            control(members=good, non_members=bad, epochs=1, seed=1)
