"""Each broken noise path that the field has met must be caught before the first claim."""

import pytest
import torch
from torch import nn

from configs.errors import NotPrivateError
from tasks.dpsgd.clipping import ClippingRule, make_engine, mean_row_loss
from tasks.dpsgd.ghost import GhostEngine
from tasks.dpsgd.loop import train
from tasks.dpsgd.networks import build
from tasks.dpsgd.noise import NoisyMean
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.preflight import check
from tasks.dpsgd.units import UnitBatch

FEATURES = 12


def plan_of(rows=1, **changes):
    fields = {"units": 200, "expected_batch": 20, "steps": 4, "noise_multiplier": 1.0, "delta": 1e-5}
    return DpSgdPlan(**(fields | {"unit": "person", "rows_per_unit": rows} | changes))


def mlp(**keys):
    return build({"kind": "mlp", "hidden": [16], **keys}, FEATURES, seed=1)


def run(make_records, *, rows=1, network=None, claim=None, **keys):
    """Train with a part replaced; a claim is a failure, since the self-test must come first."""

    def no_claim(upto):
        raise AssertionError("claimed before the self-test had failed")

    return train(
        plan=keys.pop("plan", plan_of(rows)),
        network=network or mlp(),
        records=make_records(200, features=FEATURES, most=rows),
        learning_rate=0.5,
        claim=claim or no_claim,
        **keys,
    )


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("clipping", ["flat", "normalised"])
@pytest.mark.parametrize("engine", ["ghost", "hooks"])
@pytest.mark.parametrize(
    "network", [build({"kind": "linear"}, FEATURES), mlp(), mlp(layer_norm=True, zero_last_layer=True)]
)
def test_a_sound_path_passes_with_the_limits_kept(make_records, rows, clipping, engine, network):
    plan = plan_of(rows, clipping=clipping)
    result = run(make_records, rows=rows, network=network, plan=plan, engine=engine, claim=lambda upto: None)
    report = result.self_test
    assert report.engine == engine
    assert 0.9 < report.sensitivity <= 1 + 1e-4  # the outliers were there
    assert report.reference_error <= 1e-4
    assert abs(report.noise_ratio - 1) < 0.035


class Unclipped(GhostEngine):
    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=ClippingRule(kind="flat", norm=1e12), loss=loss)


class LooselyClipped(GhostEngine):
    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=ClippingRule(kind="flat", norm=1.01 * rule.norm), loss=loss)


class Averaged(GhostEngine):
    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        return [part / max(1, len(batch)) for part in super().clipped_sum(batch)]


class RowsClippedApart(GhostEngine):
    """Clips rows and claims persons."""

    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        mask = batch.mask.flatten()
        rows = UnitBatch(
            features=batch.features.flatten(0, 1)[mask].unsqueeze(1),
            labels=batch.labels.flatten()[mask].unsqueeze(1),
            mask=mask[mask].unsqueeze(1),
        )
        return super().clipped_sum(rows)


class PaddingCounted(GhostEngine):
    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        everything = torch.ones_like(batch.mask)
        return super().clipped_sum(UnitBatch(features=batch.features, labels=batch.labels, mask=everything))


class FakeRecordOnEmpty(GhostEngine):
    """Adds a record to an empty batch, as some loaders do."""

    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        if len(batch):
            return super().clipped_sum(batch)
        shape = (1, *batch.mask.shape[1:])
        return super().clipped_sum(
            UnitBatch(
                features=torch.ones(*shape, batch.features.shape[2]),
                labels=torch.ones(shape),
                mask=torch.ones(shape, dtype=torch.bool),
            )
        )


class OneLayerForgotten(GhostEngine):
    def __init__(self, network, rule, loss):
        super().__init__(network=network, rule=rule, loss=loss)

    def clipped_sum(self, batch):
        first, *rest = super().clipped_sum(batch)
        return [2 * first, *rest]


@pytest.mark.parametrize(
    ("engine", "rows", "named"),
    [
        (Unclipped, 1, "brute force"),
        (LooselyClipped, 1, "brute force"),
        (Averaged, 1, "brute force"),
        (RowsClippedApart, 3, "brute force"),
        (PaddingCounted, 3, "brute force"),
        (FakeRecordOnEmpty, 1, "over no units"),
        (OneLayerForgotten, 1, r"parameter 0\.weight \(Linear\)"),
    ],
)
def test_a_broken_engine_is_caught_before_the_first_claim(make_records, engine, rows, named):
    with pytest.raises(NotPrivateError, match=named):
        run(make_records, rows=rows, engine=engine)


def test_clipping_off_is_caught_by_sensitivity_alone():
    from tasks.dpsgd.selftest import _batch, _check_sensitivity, synthetic_rows

    network = mlp()
    batch = _batch(synthetic_rows(features=FEATURES, rows_per_unit=3), 3)
    rule = ClippingRule(kind="flat", norm=1.0)
    for broken in (Unclipped, LooselyClipped):
        engine = broken(network, rule, mean_row_loss)
        with pytest.raises(NotPrivateError, match="one unit moved the clipped sum"):
            _check_sensitivity(engine, batch, rule, network)
        engine.close()
    engine = make_engine(network=network, rule=rule, loss=mean_row_loss)
    assert _check_sensitivity(engine, batch, rule, network) <= 1 + 1e-4


def column_loss(logits, labels, mask):
    return mean_row_loss(logits, labels, mask).unsqueeze(1)


def batch_mean_loss(logits, labels, mask):
    return mean_row_loss(logits, labels, mask) / len(logits)


def class_weighted_mean_loss(logits, labels, mask):
    rows = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    weights = 1 + 49 * labels
    return (weights * rows * mask).sum(dim=1) / (weights * mask).sum() * len(logits)


def padding_loss(logits, labels, mask):
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)


@pytest.mark.parametrize("engine", ["ghost", "hooks"])
@pytest.mark.parametrize(
    ("loss", "rows", "named"),
    [
        (column_loss, 1, "the loss returns shape"),
        (batch_mean_loss, 1, "the loss of a unit depends"),
        (class_weighted_mean_loss, 1, "the loss of a unit depends"),
        (padding_loss, 3, "the loss of a unit depends"),
    ],
)
def test_a_loss_that_is_not_one_term_a_unit_is_caught(make_records, loss, rows, named, engine):
    with pytest.raises(NotPrivateError, match=named):
        run(make_records, rows=rows, loss=loss, engine=engine)


@pytest.mark.parametrize("factor", [0.0, 0.8, 0.9, 1.2])
def test_noise_of_another_size_than_accounted_is_caught(make_records, monkeypatch, factor):
    class Scaled(NoisyMean):
        def __init__(self, **keys):
            super().__init__(**keys)
            self._deviation *= factor

    monkeypatch.setattr("tasks.dpsgd.loop.NoisyMean", Scaled)
    with pytest.raises(NotPrivateError, match=r"noise"):
        run(make_records)


def test_noise_that_repeats_is_caught(make_records, monkeypatch):
    class Repeated:
        def words(self, count):
            return torch.randint(0, 2**62, (count,), generator=torch.Generator().manual_seed(5)).numpy().view("u8")

    monkeypatch.setattr("tasks.dpsgd.loop.SystemKeystream", Repeated)
    with pytest.raises(NotPrivateError, match="same noise"):
        run(make_records)


def with_batch_norm(frozen=False, **keys):
    layer = nn.BatchNorm1d(8, **keys)
    for parameter in layer.parameters():
        parameter.requires_grad_(not frozen)
    return nn.Sequential(nn.Linear(FEATURES, 8), layer, nn.Linear(8, 1))


@pytest.mark.parametrize(
    "network",
    [
        with_batch_norm(),
        with_batch_norm(frozen=True),
        with_batch_norm(affine=False),
        with_batch_norm(affine=False, track_running_stats=False),
    ],
    ids=["trainable", "frozen", "affine=False", "no statistics"],
)
def test_t2_batch_norm_in_train_mode_is_refused_by_name(make_records, network):
    with pytest.raises(NotPrivateError, match=r"layer 1 \(BatchNorm1d\)"):
        run(make_records, network=network)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "affine=False"])
def test_t2_batch_norm_in_eval_mode_is_accepted_and_unchanged(make_records, frozen):
    network = with_batch_norm(frozen=True) if frozen else with_batch_norm(affine=False)
    network[1].running_mean.normal_()
    network[1].eval()
    before = {name: value.clone() for name, value in network[1].state_dict().items()}
    result = run(make_records, network=network, claim=lambda upto: None)
    assert before
    for name, value in before.items():
        assert torch.equal(result.state_dict[f"1.{name}"], value)
    assert not torch.equal(result.state_dict["0.weight"], network[0].weight)


def test_batch_norm_in_eval_mode_with_trainable_parameters_is_refused(make_records):
    network = with_batch_norm()
    network[1].eval()
    with pytest.raises(NotPrivateError, match=r"layer 1 .*freeze"):
        run(make_records, network=network)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, features):
        return self.head(self.inner(torch.relu(self.inner(features))))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, features):
        return self.head(self.second(torch.relu(self.first(features))))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)
        self.spare = nn.Linear(3, 3)

    def forward(self, features):
        return self.head(features)


class Counting(nn.Module):
    """Keeps a statistic of its inputs in a buffer that is no float."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, features):
        self.seen += len(features)
        return self.head(features)


class CountingInRoot(Counting):
    pass


class MixingUnits(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, features):
        return self.head(features - features.mean(dim=0))


class ReadsWeightElsewhere(nn.Module):
    """Uses a layer's weight outside the layer, where no hook sees it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, features):
        return self.head(features) + features @ self.head.weight.T


def dropout():
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.1), nn.Linear(8, 1))


def sleeping():
    network = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1))
    network[0].eval()
    return network


@pytest.mark.parametrize("engine", ["auto", "hooks"])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (Twice, "layer inner runs 2 times"),
        (Tied, r"parameters first\.weight and second\.weight are tied"),
        (Unused, "layer spare runs 0 times"),
        (Counting, "seen"),
        (MixingUnits, "depends on the other units"),
        (ReadsWeightElsewhere, r"brute force.*parameter head\.weight \(Linear\)"),
        (dropout, r"layer 1 \(Dropout\)"),
        (sleeping, r"layer 0 \(Linear\) is trainable but in eval mode"),
        (lambda: nn.Linear(FEATURES, 1).double(), "weight is torch.float64"),
        (lambda: nn.Linear(FEATURES, 1).requires_grad_(False), "no parameter is trainable"),
        (lambda: nn.Linear(FEATURES, 2), "logits of shape"),
        (
            lambda: nn.Sequential(nn.Linear(FEATURES, 4), nn.LayerNorm(4, bias=False), nn.Linear(4, 1)),
            "no bias",
        ),
    ],
)
def test_a_network_that_no_engine_clips_is_refused_by_name(make_records, make, named, engine):
    with pytest.raises(NotPrivateError, match=named):
        run(make_records, network=make(), engine=engine)


class BareParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FEATURES))
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, features):
        return self.head(features * self.scale)


class ScaledHead(nn.Module):
    """A layer of its own kind, without children."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(-1, 1, FEATURES))

    def forward(self, features):
        return (features * self.scale).sum(dim=-1)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("make", [BareParameter, ScaledHead])
def test_a_layer_of_its_own_kind_is_served_by_hooks_if_they_are_exact(make_records, make, rows):
    result = run(make_records, rows=rows, network=make(), claim=lambda upto: None)
    assert result.engine == "hooks"
    assert result.self_test.reference_error <= 1e-4


def test_the_self_test_leaves_the_network_and_its_mode_as_they_were(make_records):
    network = mlp(layer_norm=True)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    run(make_records, network=network, claim=lambda upto: None)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not network[0]._forward_hooks


def test_a_failure_shows_no_value_of_a_record(make_records):
    records = make_records(200, features=FEATURES)
    records.features[:, 0] = 123.4567
    with pytest.raises(NotPrivateError) as failure:
        train(
            plan=plan_of(),
            network=mlp(),
            records=records,
            learning_rate=0.5,
            claim=lambda upto: None,
            engine=Unclipped,
        )
    assert "123" not in str(failure.value)


def test_the_self_test_runs_alone_before_anything_is_reserved():
    network = mlp()
    report = check(plan=plan_of(3), network=network, features=FEATURES, feature_range=(0.0, 1.0))
    assert report.engine == "ghost"
    assert report.sensitivity <= 1 + 1e-4
    assert not network[0]._forward_hooks
    with pytest.raises(NotPrivateError, match="layer 1"):
        check(plan=plan_of(), network=with_batch_norm(), features=FEATURES, feature_range=(0.0, 1.0))


def test_a_network_that_fails_on_synthetic_rows_fails_closed():
    with pytest.raises(NotPrivateError, match="a network of Linear cannot be clipped: RuntimeError"):
        check(plan=plan_of(), network=nn.Linear(FEATURES + 1, 1), features=FEATURES, feature_range=(0.0, 1.0))


def test_statistics_kept_in_buffers_are_refused_by_name():
    network = nn.Sequential(nn.Linear(FEATURES, 8), nn.InstanceNorm1d(8, track_running_stats=True), nn.Linear(8, 1))
    with pytest.raises(NotPrivateError, match=r"layer 1 \(InstanceNorm1d\) may keep statistics"):
        check(plan=plan_of(), network=network, features=FEATURES, feature_range=(0.0, 1.0))


def test_batch_norm_without_statistics_is_refused_in_eval_mode_too():
    network = with_batch_norm(affine=False, track_running_stats=False)
    network[1].eval()
    with pytest.raises(NotPrivateError, match=r"layer 1 \(BatchNorm1d\) normalises over the batch"):
        check(plan=plan_of(), network=network, features=FEATURES, feature_range=(0.0, 1.0))
