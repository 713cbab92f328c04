"""The model card of a run: what every step handed over, put into words that may be published."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

from tasks.fairness.suppression import Number, PublishedGroup
from tasks.handover import Assessed, Attacked, Estimate, Recorded, Records, Run, Trained, Validation
from tasks.registry.card_content import Budget, CardContent, Figure, GroupLine
from tasks.registry.evidence import Decision

COVERS = (
    "The final weights of the network.",
    "The released means and variances of the inputs, where the recipe has them.",
    "Whatever is computed from these alone: predictions, explanations, fine-tuned copies.",
)
NOT_COVERED = (
    "Metrics on the hold-out, overall and by group: the people in it have no epsilon at all.",
    "What the attack and the comparisons say: they look at members without noise, so only rounded figures are shown.",
    "Counts of rows, whether the validation passed, how long the run took, and the gate's decision.",
    "Choices made by looking at the records: inputs, code books, bounds and recipe, unless they were charged.",
    "Anything outside the training data: prompts, indexes, logs and the records themselves need redaction, access "
    "control and retention.",
    "Facts about a group that the model was meant to learn, also about people who are not in the records.",
)
_NETWORKS = {"linear": "logistic regression", "mlp": "multilayer perceptron"}


def card_of(
    run: Run,
    records: Records,
    validation: Validation,
    trained: Trained,
    attacked: Attacked,
    assessed: Assessed,
    recorded: Recorded,
    decision: Decision,
) -> CardContent:
    """Everything that the card shows of a run and its decision."""
    privacy = run.config.privacy
    return CardContent(
        model=run.config.model,
        version=recorded.model_version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run_id=recorded.run_id,
        simulated=run.config.data.source.kind == "simulated",
        rehearsal=run.rehearsal,
        verdict=decision.verdict,
        reasons=decision.reasons,
        claim=trained.claim,
        statement=trained.statement,
        threshold=run.config.network.threshold,
        budget=Budget(
            unit=privacy.unit,
            population=privacy.population,
            run_epsilon=trained.epsilon,
            run_limit=privacy.run.epsilon,
            run_delta=trained.delta,
            used=trained.ledger_epsilon_used,
            cap=trained.ledger_epsilon_cap,
            guarantee_delta=privacy.guarantee.delta,
            path=trained.epsilon_path,
        ),
        attack=attacked.panel,
        overall=_overall(assessed),
        groups=tuple(map(_line, assessed.fairness.groups)) if assessed.fairness else (),
        gaps=tuple((attribute, metric, _figure(number)) for attribute, metric, number in assessed.fairness.gaps)
        if assessed.fairness
        else (),
        covers=COVERS,
        not_covered=NOT_COVERED,
        data=_data(run, records, validation),
        recipe=_recipe(run, trained),
        provenance=_provenance(run, records, trained, attacked),
    )


def _overall(assessed: Assessed) -> tuple[tuple[str, Figure], ...]:
    named = {
        "without_noise": "same recipe without noise",
        "trees": "boosted trees without privacy",
        "champion": "current champion",
    }
    others = ((named[name], _estimate(found)) for name, found in assessed.others)
    return (("this model", _estimate(assessed.auc)), *others)


def _line(group: PublishedGroup) -> GroupLine:
    return GroupLine(
        attribute=group.attribute,
        group=group.group,
        rows=group.rows,
        metrics=tuple((name, _figure(number)) for name, number in group.metrics),
        without_noise=_figure(group.without_noise),
        trees=_figure(group.trees),
        champion=_figure(group.champion),
        loss=_figure(group.loss),
        gated=group.gated,
        why_not=group.why_not,
    )


def _figure(number: Number) -> Figure:
    return Figure(value=number.value, lower=number.lower, upper=number.upper, why=number.why)


def _estimate(found: Estimate) -> Figure:
    return Figure(value=found.value, lower=found.lower, upper=found.upper, why=found.why)


def _data(run: Run, records: Records, validation: Validation) -> tuple[tuple[str, str], ...]:
    data, privacy = run.config.data, run.config.privacy
    shares = f"{data.holdout.audit:.0%} test set and non-members, {data.holdout.population:.0%} in no model"
    excluded = ", ".join(rule.column for rule in data.exclude)
    return (
        ("source", data.source.kind),
        ("rows", records.about),
        ("population", privacy.population),
        ("units, nominal", f"{privacy.units:,} {privacy.unit}s"),
        ("rows a person, at most", str(privacy.max_rows_per_person)),
        ("inputs", str(len(data.features))),
        ("held out at random by " + ("person" if data.person else "row"), shares),
        ("left out by rule on", excluded or "nothing"),
        ("validation", f"{validation.checks} expectations met"),
    )


def _recipe(run: Run, trained: Trained) -> tuple[tuple[str, str], ...]:
    network, training, privacy = run.config.network, run.config.training, run.config.privacy
    hidden = "" if network.kind == "linear" else f", hidden {'-'.join(map(str, network.hidden))}"
    moments = privacy.moments
    return (
        ("network", f"{_NETWORKS[network.kind]}{hidden}"),
        ("optimiser", f"{training.optimizer}, learning rate {training.learning_rate:g}, decay {training.decay}"),
        ("averaging of the iterates", f"{training.averaging:g}" if training.averaging else "none"),
        ("clipping", f"{privacy.clipping.kind}, norm {privacy.clipping.norm:g}"),
        ("noise multiplier σ", f"{trained.noise_multiplier:g}"),
        ("sampling rate q", f"{trained.sampling_rate:.6g} (Poisson, by {privacy.unit})"),
        ("steps", f"{trained.executed_steps:,}"),
        ("moments", f"one charged Gaussian release, σ = {moments.noise_multiplier:g}" if moments else "none"),
        ("prior rate, set by people", f"{network.prior_rate:g}"),
        ("threshold, set by people", f"{network.threshold:g}"),
    )


def _provenance(run: Run, records: Records, trained: Trained, attacked: Attacked) -> tuple[tuple[str, str], ...]:
    libraries = ("torch", "opacus", "dp-accounting", "mlflow", "prefect", "great-expectations")
    return (
        ("weights, sha256", attacked.weights_sha256),
        ("configuration, sha256", run.config_digest),
        ("records, keyed digest", records.digest),
        ("split, fingerprint", trained.split),
        ("ledger, head after training", trained.ledger_head),
        ("clipping engine", trained.engine),
        ("reason of the run", run.reason),
        ("discreet", version("discreet")),
        ("python", platform.python_version()),
        *((name, version(name)) for name in libraries),
    )
