"""What a model card says: frozen records of words and numbers, already rounded and suppressed.

Whatever stands in here is published. Nothing in it is a record's value or an exact count of people.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.registry.evidence import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its interval, or the reason why there is none.

    Attributes:
        value: the estimate; None if undefined.
        lower: lower bound; None if undefined or unbounded on that side.
        upper: upper bound.
        why: why there is no number.
    """

    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the run and all runs on these people cost.

    Attributes:
        unit: what epsilon protects, "person" or "row".
        population: the ledger's name for the people.
        run_epsilon: of this run.
        run_limit: what the configuration allows one run.
        run_delta: δ of the run.
        used: epsilon over all runs.
        cap: the guarantee.
        guarantee_delta: its δ.
        path: (step, epsilon so far).
    """

    unit: str
    population: str
    run_epsilon: float
    run_limit: float
    run_delta: float
    used: float
    cap: float
    guarantee_delta: float
    path: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackLine:
    """One measure of the attack beside what the accountant's curve allows.

    Attributes:
        name: the measure in words, such as "true positives at 1 % false positives".
        measured: what the attack reached on this model.
        allowed: the most that epsilon allows any attack; None where there is no finite statement.
    """

    name: str
    measured: Figure
    allowed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackPanel:
    """What the membership-inference attack found.

    Attributes:
        verdict: one of VETO, CONTRADICTION, INVALID_SPLIT, ATTACK_BROKEN, FAIL, INCONCLUSIVE, PASS.
        words: the verdict in one plain sentence.
        unit: who is attacked, "person" or "row".
        lines: the measures.
        control: balanced accuracy on the overfitted control that the attack has to catch.
        blind: AUC of a classifier that sees the records but no model; near .5 where the split is random.
        twin: AUC of the attack on the same recipe without noise.
        roc: (false positive rate, true positive rate) of the attack, where estimable.
        twin_roc: the same for the twin.
        ceiling: (false positive rate, highest true positive rate that epsilon allows).
    """

    verdict: str
    words: str
    unit: str
    lines: tuple[AttackLine, ...]
    control: Figure
    blind: Figure
    twin: Figure
    roc: tuple[tuple[float, float], ...]
    twin_roc: tuple[tuple[float, float], ...]
    ceiling: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """One group: this model's metrics, and what privacy cost it.

    Attributes:
        attribute: such as `sex`, or `race × sex` for an intersection.
        group: its name; "suppressed" stands for groups that are not shown.
        rows: how many rows, in words: "about 3,800", or "10 or fewer".
        metrics: by name: base_rate, auc, tpr, fpr, precision, selection_rate, calibration (observed over expected).
        without_noise: AUC of the same recipe with σ = 0 on the same rows.
        trees: AUC of boosted trees without privacy on the same rows.
        champion: AUC of the current champion on the same rows.
        loss: AUC without noise less this model's: estimate and the one-sided simultaneous upper and lower bounds.
        gated: whether the group is judged by the gate.
        why_not: why it is not.
    """

    attribute: str
    group: str
    rows: str
    metrics: tuple[tuple[str, Figure], ...]
    without_noise: Figure
    trees: Figure
    champion: Figure
    loss: Figure
    gated: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardContent:
    """A model card.

    Attributes:
        model: the registered model's name.
        version: its version; "" while it has none.
        created: ISO 8601, UTC.
        run_id: MLflow's run.
        simulated: the records are nobody's.
        rehearsal: rows were made up from the schema; nothing was spent.
        verdict: `promoted`, `blocked`, `insufficient` or `awaiting_approval`; "" while it is not judged.
        reasons: every gate's reason, those in the way first.
        claim: the claim in one plain sentence.
        statement: the claim in one exact sentence.
        threshold: probability from which the deployed model flags; rates by group are at this threshold.
        budget: what it cost.
        attack: what the attack found; None where it did not run.
        overall: AUC on the hold-out of (this model, without noise, boosted trees, champion), by name.
        groups: by group and intersection.
        gaps: largest difference between gated groups, by attribute and metric: (attribute, metric, figure).
        covers: what epsilon covers, one sentence each.
        not_covered: what it does not.
        data: (label, value) of the records, public facts only.
        recipe: (label, value).
        provenance: (label, value): digests, ledger head, versions of code and libraries.
    """

    model: str
    version: str
    created: str
    run_id: str
    simulated: bool
    rehearsal: bool
    verdict: str
    reasons: tuple[Reason, ...]
    claim: str
    statement: str
    threshold: float
    budget: Budget
    attack: AttackPanel | None
    overall: tuple[tuple[str, Figure], ...]
    groups: tuple[GroupLine, ...]
    gaps: tuple[tuple[str, str, Figure], ...]
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]
    data: tuple[tuple[str, str], ...]
    recipe: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...] = field(default=())
