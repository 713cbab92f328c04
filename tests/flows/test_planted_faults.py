"""The gate on the real hospital records: an honest run passes, and each planted fault is kept from promotion.

Nothing is tuned to the faults: the limits are those of the shipped configuration, and the splits are the bench's keys
from 1 on, on which no recipe was chosen. The noise is new in every run.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.errors import NotPrivateError
from tasks.data import encoding, split
from tasks.dpsgd import loop
from tests.benchmarks.utility import split_key

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "diabetes130"
OLD = ("[80-90)", "[90-100)")
pytestmark = [
    pytest.mark.orchestration,
    pytest.mark.proof,
    pytest.mark.usefixtures("prefect_api"),
    pytest.mark.skipif(
        not (DATA.is_dir() or "DISCREET_DATA" in os.environ), reason="the hospital records are not beside this checkout"
    ),
]


def honest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong."""


def noise_times_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the noise that the plan accounts for; the recipe without noise stays as it is."""
    _noise_times(4, monkeypatch)


def noise_times_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the noise that the plan accounts for: epsilon would be claimed wrongly."""
    _noise_times(0.25, monkeypatch)


def _noise_times(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.train

    def train(*, plan: Any, **arguments: Any) -> loop.TrainingResult:
        return real(plan=dataclasses.replace(plan, noise_multiplier=factor * plan.noise_multiplier), **arguments)

    monkeypatch.setattr(loop, "train", train)


def features_of_one_group_zeroed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken join: whatever is known of African American patients reaches no model."""
    real = encoding.encode

    def encode(frame: Any, spec: Any) -> Any:
        features = real(frame, spec)
        features[(frame["race"] == "AfricanAmerican").to_numpy()] = 0
        return features

    monkeypatch.setattr(encoding, "encode", encode)


def one_group_left_out_on_the_way_into_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody over 80 is trained on, and no other step knows."""
    from tasks import train

    _without_the_old(monkeypatch, train)


def one_group_left_out_of_the_training_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody over 80 is in the training part, for every step alike; they are in the hold-out."""
    from tasks import assess, attack, train

    for module in (train, attack, assess):
        _without_the_old(monkeypatch, module)


def one_group_left_out_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody over 80 is anywhere."""
    from tasks.data import sources

    real = sources.read_records
    monkeypatch.setattr(sources, "read_records", lambda **arguments: _young(real(**arguments)))


def _without_the_old(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    real = module.part_of

    def part_of(frame: Any, run: Any, part: int) -> Any:
        found = real(frame, run, part)
        return _young(found) if part == split.TRAIN else found

    monkeypatch.setattr(module, "part_of", part_of)


def _young(frame: Any) -> Any:
    return frame[~frame["age"].isin(OLD)].reset_index(drop=True)


@pytest.mark.parametrize(
    ("plant", "key", "verdicts", "gate", "words"),
    [
        (honest, 1, {"promoted"}, None, ""),
        (honest, 2, {"promoted"}, None, ""),
        (honest, 3, {"promoted"}, None, ""),
        (noise_times_four, 1, {"NotPrivateError"}, "train", "what ran is not what was accounted"),
        (noise_times_a_quarter, 1, {"NotPrivateError"}, "train", "what ran is not what was accounted"),
        (features_of_one_group_zeroed, 1, {"blocked", "insufficient"}, "min_group", "AUC of race/AfricanAmerican"),
        (one_group_left_out_on_the_way_into_training, 1, {"blocked"}, "attack", "VETO: The people and rows"),
        (one_group_left_out_of_the_training_part, 1, {"insufficient"}, "attack", "INVALID_SPLIT"),
        (one_group_left_out_of_the_records, 1, {"insufficient"}, "required", "age_band/80+"),
    ],
)
def test_an_honest_run_is_promoted_and_a_planted_fault_is_not(
    plant: Callable[[pytest.MonkeyPatch], None],
    key: int,
    verdicts: set[str],
    gate: str | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from flows.retraining import retrain

    monkeypatch.setenv("DISCREET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DISCREET_DATA", os.environ.get("DISCREET_DATA", str(DATA)))
    monkeypatch.setenv("DISCREET_POPULATION_KEY", split_key(key).hex())
    plant(monkeypatch)
    try:
        outcome = retrain(config_path=str(ROOT / "configs" / "diabetes130.yaml"), reason="planted")
    except NotPrivateError as error:  # nothing is recorded, so there is nothing to judge
        verdict, standing = type(error).__name__, [("train", str(error))]
    else:
        verdict = outcome.verdict
        standing = [(name, told) for name, state, told in outcome.reasons if state in {"blocked", "insufficient"}]
    with capsys.disabled():
        print(f"\n{plant.__name__} (split {key}): {verdict}")
        print("\n".join(f"  {name}: {told}" for name, told in standing))
    assert verdict in verdicts
    assert gate is None or any(name == gate and words in told for name, told in standing)
