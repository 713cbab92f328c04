"""The training loop: claim, sample, clip, add noise, step. It runs what was claimed, and skips nothing.

Momentum, decay and averaging are post-processing of noisy gradients and cost no privacy. No loss, norm or
batch size leaves this function.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from configs.errors import ConfigurationError, NotPrivateError
from tasks.dpsgd.clipping import Engine, EngineName, UnitLoss, clipped_total, mean_row_loss, trainable
from tasks.dpsgd.csprng import SystemKeystream
from tasks.dpsgd.noise import NoiseMeter, NoisyMean
from tasks.dpsgd.plan import DpSgdPlan
from tasks.dpsgd.preflight import EngineFactory, checked_engine
from tasks.dpsgd.preflight import check as check
from tasks.dpsgd.recipe import Decay, OptimizerName, Recipe
from tasks.dpsgd.sampler import PoissonSampler
from tasks.dpsgd.selftest import SelfTestReport, synthetic_rows
from tasks.dpsgd.units import UnitRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What a run releases.

    Attributes:
        state_dict: the trained weights (their average, with averaging), on the CPU.
        executed_steps: steps that ran, equal to the plan's.
        claimed: steps that were claimed before they ran, without the moments; equal to `executed_steps`.
        engine: name of the engine that clipped.
        self_test: what was checked before the first claim.
        noise: measured over all steps; stays in the process.
    """

    state_dict: dict[str, Tensor]
    executed_steps: int
    claimed: int
    engine: str
    self_test: SelfTestReport
    noise: NoiseMeter


def train(
    *,
    plan: DpSgdPlan,
    network: nn.Module,
    records: UnitRecords,
    learning_rate: float,
    optimizer: OptimizerName = "sgd",
    momentum: float = 0.9,
    decay: Decay = "linear",
    averaging: float = 0.0,
    claim: Callable[[int], None],
    progress: Callable[[int], None] | None = None,
    loss: UnitLoss = mean_row_loss,
    engine: EngineName | EngineFactory = "auto",
    physical_batch: int = 8192,
    feature_range: tuple[float, float] = (-3.0, 3.0),
) -> TrainingResult:
    """Train by DP-SGD (Abadi et al. 2016, algorithm 1) with Poisson sampling over units.

    Args:
        plan: everything that epsilon depends on. The twin's plan runs the same loop without noise.
        network: features [*, d] → logits [*]; left as it was. Its modes (train, eval) are respected.
        records: the training units.
        learning_rate: of the first step, on gradients divided by the plan's expected batch.
        optimizer: "sgd" or "adam".
        momentum: in [0, 1): sgd's momentum, adam's beta1.
        decay: "linear" lets the rate fall to 0 at the last step.
        averaging: weight in [0, 1) of the exponential average of the iterates, bias-corrected, which is then
            what is released; 0 releases the last iterate.
        claim: called with the number of mechanisms claimed so far, in the order of `plan.mechanisms`
            flattened (with moments the first step is number 2), before those steps run. What it raises ends
            the run.
        progress: called with the number of steps done after each chunk.
        loss: one number a unit; see `mean_row_loss`.
        engine: "auto", "ghost" or "hooks"; tests pass a factory.
        physical_batch: the most units in memory at a time; the result does not depend on it.
        feature_range: public range of the encoded features, for the self-test's synthetic rows.

    Raises:
        NotPrivateError: the network is refused, the self-test failed, or what ran is not what was claimed.
        ConfigurationError: a setting is out of its range.
        BudgetError: a claim was refused.
    """
    recipe = Recipe(
        learning_rate=learning_rate, optimizer=optimizer, momentum=momentum, decay=decay, averaging=averaging
    )
    _check_inputs(plan, records, physical_batch)
    network = copy.deepcopy(network)
    release = NoisyMean(plan=plan, keystream=SystemKeystream())
    chosen, report = checked_engine(
        plan=plan,
        network=network,
        loss=loss,
        engine=engine,
        release=release,
        rows=synthetic_rows(
            features=records.features.shape[1], rows_per_unit=plan.rows_per_unit, feature_range=feature_range
        ),
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    try:
        run = _Run(plan=plan, network=network, records=records, recipe=recipe, engine=chosen, release=release)
        run.steps(claim=claim, progress=progress, physical_batch=physical_batch)
    finally:
        chosen.close()
    if not run.executed == run.claimed == plan.steps:
        raise NotPrivateError(f"{run.executed} steps ran, {run.claimed} were claimed, {plan.steps} were planned")
    run.noise.check(plan)
    _check_changes(network, before)
    return TrainingResult(
        state_dict=run.released(),
        executed_steps=run.executed,
        claimed=run.claimed,
        engine=chosen.name,
        self_test=report,
        noise=run.noise,
    )


class _Run:
    """One pass through the plan's steps, with its counters."""

    def __init__(
        self,
        *,
        plan: DpSgdPlan,
        network: nn.Module,
        records: UnitRecords,
        recipe: Recipe,
        engine: Engine,
        release: NoisyMean,
    ) -> None:
        self._plan, self._network, self._records, self._recipe = plan, network, records, recipe
        self._engine, self._release = engine, release
        self._parameters = trainable(network)
        self._optimizer = recipe.build_optimizer(self._parameters)
        self._average = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._sampler = PoissonSampler(
            units=len(records), sampling_rate=plan.sampling_rate, keystream=SystemKeystream()
        )
        self.noise = NoiseMeter()
        self.executed = 0
        self.claimed = 0

    def steps(
        self, *, claim: Callable[[int], None], progress: Callable[[int], None] | None, physical_batch: int
    ) -> None:
        """Run every step of the plan in chunks of max(1, T // 100), each claimed before it is computed."""
        chunk = max(1, self._plan.steps // 100)
        for start in range(0, self._plan.steps, chunk):
            upto = min(start + chunk, self._plan.steps)
            claim(self._plan.claims_before_training + upto)
            self.claimed = upto
            for _ in range(start, upto):
                self._step(physical_batch)
            if progress is not None:
                progress(self.executed)

    def _step(self, physical_batch: int) -> None:
        units = torch.from_numpy(self._sampler.draw())
        sums = clipped_total(self._engine, self._records, units, like=self._parameters, physical_batch=physical_batch)
        self.executed += 1
        self._optimizer.param_groups[0]["lr"] = self._recipe.rate(self.executed, self._plan.steps)
        gradients = self._release(sums)
        self.noise.add(sums=sums, gradients=gradients, divisor=self._plan.expected_batch)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        if self._recipe.averaging:
            with torch.no_grad():
                for average, parameter in zip(self._average, self._parameters, strict=True):
                    average.lerp_(parameter, 1 - self._recipe.averaging)

    def released(self) -> dict[str, Tensor]:
        """The state that leaves the run: a copy without gradients or hooks."""
        state = {name: value.detach().clone() for name, value in self._network.state_dict().items()}
        if self._recipe.averaging:
            correction = 1 - self._recipe.averaging**self.executed
            names = [name for name, parameter in self._network.named_parameters() if parameter.requires_grad]
            state |= {name: part / correction for name, part in zip(names, self._average, strict=True)}
        return state


def _check_inputs(plan: DpSgdPlan, records: UnitRecords, physical_batch: int) -> None:
    if records.rows_per_unit > plan.rows_per_unit:
        raise NotPrivateError(
            f"a unit may hold {records.rows_per_unit} rows where the plan accounts for {plan.rows_per_unit}"
        )
    if physical_batch < 1:
        raise ConfigurationError.of("training", [f"physical_batch = {physical_batch} must be at least 1"])


def _check_changes(network: nn.Module, before: dict[str, Tensor]) -> None:
    optimised = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    for name, value in network.state_dict().items():
        if name not in before or (name not in optimised and not torch.equal(value, before[name])):
            raise NotPrivateError(f"training changed {name}, which is no optimised parameter: no noise covers it")
