"""What crosses between steps: small frozen records of scalars and references, never frames, tensors or rows.

Whatever a Prefect step takes or returns can end in a database or a pickle, so nothing in here may be a value of a
record or an exact count of people. Records lie in the run's work folder and are named by path and keyed digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from configs.runtime_schema import Runtime
from configs.schema import Config
from tasks.dpsgd.plan import DpSgdPlan
from tasks.fairness.suppression import PublishedReport
from tasks.registry.card_content import AttackPanel


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one configuration: what every step needs to know.

    Attributes:
        config: the configuration.
        config_text: its file as written, environment references unresolved.
        config_digest: sha256 of that text.
        runtime: where it runs.
        home: `$DISCREET_HOME`, or a folder that dies with a rehearsal.
        work: the run's work folder, removed at the end.
        name: the run's own name, unique; also the ledger's idempotency key.
        reason: why it runs, in the operator's words.
        actor: who started it.
        rehearsal: rows are generated from the schema, nothing is spent and nothing is promoted.
        key: the population's key; never shown.
    """

    config: Config
    config_text: str = field(repr=False)
    config_digest: str
    runtime: Runtime
    home: Path
    work: Path
    name: str
    reason: str
    actor: str
    rehearsal: bool
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The ingested records.

    Attributes:
        path: parquet in the work folder, every column text.
        digest: HMAC-SHA256 of the content under the population's key, hex.
        about: how many rows there are, to two significant digits.
    """

    path: Path
    digest: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The outcome of validation; a failed one stops the run.

    Attributes:
        passed: whether every expectation was met.
        checks: how many there are.
        report: the HTML report in the work folder, without values of records.
        details: the same as JSON.
    """

    passed: bool
    checks: int
    report: Path
    details: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trained network and what it cost.

    Attributes:
        weights: safetensors file in the work folder.
        encoding: JSON file of the preprocessing.
        network: JSON file of the network's specification.
        plan: everything that epsilon depends on.
        engine: the clipping engine that ran.
        sampling_rate: q.
        noise_multiplier: σ.
        planned_steps: T.
        claimed_steps: steps claimed in the ledger.
        executed_steps: steps run.
        self_test_passed: whether the noise path proved private before the first step.
        epsilon: PLD epsilon of the run at `delta`.
        rdp_epsilon: the same under RDP, the cross-check.
        delta: δ.
        person_epsilon: with `unit: row`, what a person with the most allowed rows gets; else None.
        ledger_epsilon_used: what the population has used after this run.
        ledger_epsilon_cap: its cap.
        ledger_head: hash of the ledger's last entry.
        split: fingerprint of the split: key and shares.
        members: keyed digest of the units that were trained on.
        epsilon_path: (step, epsilon) pairs for the picture of the run.
        claim: the claim in one plain sentence.
        statement: the claim in one exact sentence.
        tags: the `dp.*` tags.
    """

    weights: Path
    encoding: Path
    network: Path
    plan: DpSgdPlan
    engine: str
    sampling_rate: float
    noise_multiplier: float
    planned_steps: int
    claimed_steps: int
    executed_steps: int
    self_test_passed: bool
    epsilon: float
    rdp_epsilon: float
    delta: float
    person_epsilon: float | None
    ledger_epsilon_used: float
    ledger_epsilon_cap: float
    ledger_head: str
    split: str
    members: str
    epsilon_path: tuple[tuple[int, float], ...]
    claim: str
    statement: str
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """What the membership-inference attack found, rounded. Not covered by epsilon.

    Attributes:
        panel: the verdict, its words and the figures, as they are published.
        metrics: (name, value) for the tracking server; None where a metric is undefined.
        max_advantage: the configuration's limit.
        weights_sha256: of the weights that were attacked.
        twin: weights of the same recipe without noise, in the work folder; they never leave it.
        twin_encoding: JSON file of the twin's preprocessing, there too.
    """

    panel: AttackPanel
    metrics: tuple[tuple[str, float | None], ...]
    max_advantage: float
    weights_sha256: str
    twin: Path
    twin_encoding: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A metric with its 95 % bounds; `why` says why there is none."""

    value: float | None
    lower: float | None
    upper: float | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    """What the hold-out says. Not covered by epsilon.

    Attributes:
        auc: AUC on the audit hold-out, bounds clustered by person.
        champion: version that holds the alias `champion`, None for a first model.
        auc_drop: the champion's AUC less this model's, on the same rows, one-sided 95 % bounds.
        others: AUC on the same rows of the recipe without noise, of boosted trees without privacy and of the champion.
        fairness: by group, as it may be published; None where the configuration declares no group.
        min_count: positives and negatives that made a group gated.
    """

    auc: Estimate
    champion: str | None
    auc_drop: Estimate
    others: tuple[tuple[str, Estimate], ...]
    fairness: PublishedReport | None
    min_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Where the run stands in MLflow.

    Attributes:
        tracking_uri: the store.
        run_id: MLflow's run.
        model_version: version in the registry; None in a rehearsal.
        metrics: what was logged, by name.
        weights_sha256: of the weights that were registered, as they lie in the store.
        files_sha256: of all files that were registered, likewise.
    """

    tracking_uri: str
    run_id: str
    model_version: str
    metrics: tuple[tuple[str, float], ...]
    weights_sha256: str
    files_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to.

    Attributes:
        model: the registered model's name.
        verdict: `promoted`, `blocked` or `insufficient`; a rehearsal's is what it would have been.
        exit_code: the verdict's.
        reasons: (gate, outcome, words) of every gate, those in the way first.
        claim: the claim in one plain sentence.
        statement: the claim in one exact sentence.
        run_id: MLflow's run.
        model_version: version in the registry.
        tracking_uri: the store.
        card: the model card: a file of this machine by its path, anything else by its URI; "" in a rehearsal,
            whose card is gone.
        metrics: what was logged, by name.
        unit: what epsilon protects.
        guarantee_delta: δ of the population's guarantee.
        simulated: whether the records are simulated.
        rehearsal: whether nothing was spent.
        seconds: (step, seconds) of the run.
    """

    model: str
    verdict: str
    exit_code: int
    reasons: tuple[tuple[str, str, str], ...]
    claim: str
    statement: str
    run_id: str
    model_version: str
    tracking_uri: str
    card: str
    metrics: tuple[tuple[str, float], ...]
    unit: str
    guarantee_delta: float
    simulated: bool
    rehearsal: bool
    seconds: tuple[tuple[str, float], ...] = ()
