"""From a network to an engine that has passed the self-test; until then, nothing is claimed or trained."""

import copy
from collections.abc import Callable

from torch import Tensor, nn

from configs.errors import DiscreetError, NotPrivateError
from tasks.dpsgd.clipping import ClippingRule, Engine, EngineName, UnitLoss, make_engine, mean_row_loss
from tasks.dpsgd.csprng import SystemKeystream
from tasks.dpsgd.layers import refuse_layers, refuse_repeated_layers
from tasks.dpsgd.noise import NoisyMean
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.selftest import SelfTestReport, self_test, synthetic_rows

EngineFactory = Callable[[nn.Module, ClippingRule, UnitLoss], Engine]


def check(
    *,
    plan: DpSgdPlan,
    network: nn.Module,
    features: int,
    feature_range: tuple[float, float],
    loss: UnitLoss = mean_row_loss,
    engine: EngineName | EngineFactory = "auto",
) -> SelfTestReport:
    """Run the self-test alone, on synthetic rows, before anything is reserved or claimed.

    Args:
        plan: as for `train`.
        network: features [*, d] → logits [*]; left as it was.
        features: d.
        feature_range: public range of the encoded features.
        loss: as for `train`.
        engine: as for `train`.

    Raises:
        NotPrivateError: the network is refused or the self-test failed, naming the layer or loss at fault.
    """
    chosen, report = checked_engine(
        plan=plan,
        network=copy.deepcopy(network),
        loss=loss,
        engine=engine,
        release=NoisyMean(plan=plan, keystream=SystemKeystream()),
        rows=synthetic_rows(features=features, rows_per_unit=plan.rows_per_unit, feature_range=feature_range),
    )
    chosen.close()
    return report


def checked_engine(
    *,
    plan: DpSgdPlan,
    network: nn.Module,
    loss: UnitLoss,
    engine: EngineName | EngineFactory,
    release: NoisyMean,
    rows: Tensor,
) -> tuple[Engine, SelfTestReport]:
    """The engine for the network, after it passed the self-test.

    Args:
        plan: what will be accounted.
        network: about to be trained; left as it was, but for the engine's hooks.
        loss: one number a unit.
        engine: a name, or a factory.
        release: adds the noise.
        rows: synthetic features, float32 [units, k, d].

    Raises:
        NotPrivateError: the network is refused or the self-test failed, naming the layer or loss at fault.
    """
    refuse_layers(network)
    plain = copy.deepcopy(network)
    rule = ClippingRule(kind=plan.clipping, norm=plan.clipping_norm)
    try:
        refuse_repeated_layers(plain, rows[:, 0] if plan.rows_per_unit == 1 else rows)
        chosen = (
            engine(network, rule, loss)
            if callable(engine)
            else make_engine(network=network, rule=rule, loss=loss, engine=engine)
        )
        report = self_test(
            network=network,
            plain=plain,
            engine=chosen,
            rule=rule,
            loss=loss,
            release=release,
            plan=plan,
            rows=rows,
        )
    except DiscreetError:
        raise
    except Exception as error:  # whatever stops the self-test stops the run; its rows are synthetic
        kinds = sorted({type(layer).__name__ for layer in network.modules()})
        raise NotPrivateError(
            f"self-test: a network of {', '.join(kinds)} cannot be clipped: {type(error).__name__}: {error}"
        ) from error
    return chosen, report
