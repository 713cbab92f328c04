"""The benchmark's pieces at tiny sizes: they run, and write the promised keys. No time is judged."""

import json
from pathlib import Path

import pytest

from configs.load import load
from tests.benchmarks import __main__ as command
from tests.benchmarks import engines, memory, orchestration, results, speed
from tests.benchmarks.engines import ENGINES, NETWORK

ROWS, BATCH = 400, 50
TINY = speed.Effort(rounds=2, block_seconds=0.0)


class Clockwork:
    """An engine and its clock: the warm-up is slow, and each later step takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def run(self, *, steps: int, mark: engines.Mark) -> None:
        mark(0)
        for done in range(1, steps + 1):
            self.now += 100.0 if done <= speed._WARM_UP else self.seconds
            mark(done)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_marks_the_start_and_each_of_its_steps(name: str) -> None:
    marks: list[int] = []
    engines.make(name, engines.synthetic(ROWS), BATCH).run(steps=4, mark=marks.append)
    assert marks == [0, 1, 2, 3, 4]


def test_the_warm_up_is_not_timed() -> None:
    engine = Clockwork(2.0)
    assert speed.seconds_per_step(engine, steps=5, clock=lambda: engine.now) == 2.0


def test_a_ratio_is_formed_within_each_round() -> None:
    # other work came and went, most of it in the last two rounds; the ratio of the medians would be 4 / 10
    assert speed.ratio([2.0, 4.0, 20.0], base=[1.0, 10.0, 10.0]) == 2.0


def test_the_steps_part_gives_its_keys_and_no_others() -> None:
    values, about = speed.measure(TINY, batches=(BATCH,), rows=ROWS, epoch_batch=200, sizes=(1000, 2000))
    assert set(values) == {
        *(f"dp_step_ratio/{name}/{NETWORK}/{BATCH}" for name in ENGINES),
        *(f"epoch_seconds/{name}" for name in ENGINES),
        f"dp_step_ratio/discreet_n2k_over_n1k/{NETWORK}/512",
    }
    assert values[f"dp_step_ratio/non_private/{NETWORK}/{BATCH}"] == 1.0
    assert all(value > 0 for value in values.values())
    assert {"threads", "load_before", "load_after", "rounds", "clock"} <= set(about)


def test_sizes_that_do_not_fit_into_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "available", lambda: 0.0)
    assert speed._sizes((1000, 2000), TINY) == {}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the meter reads Linux's /proc")
def test_the_memory_meter_sees_what_steps_allocate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hungry:
        def run(self, *, steps: int, mark: engines.Mark) -> None:
            mark(0)
            assert bytearray(b"x" * 100_000_000)  # two copies while it is made
            mark(1)

    monkeypatch.setattr(memory, "make", lambda *_: Hungry())
    assert 100 < memory.grown_mb("discreet", rows=ROWS, batch=BATCH, steps=1) < 300


def test_orchestration_is_what_the_steps_do_not_account_for() -> None:
    timing = orchestration.timing_of(started=100.0, ended=130.0, steps=12.0, flow=(109.0, 126.0))
    assert (timing.before, timing.between, timing.after) == (9.0, 5.0, 4.0)
    assert timing.orchestration == 18.0 == 9.0 + 5.0 + 4.0


def test_the_shrunk_configuration_is_valid_and_small(tmp_path: Path) -> None:
    config = load(orchestration.shrunk(tmp_path / "small.yaml")).config
    assert (config.privacy.units, config.privacy.run.delta) == (2500, 1e-5)
    assert config.network.model_dump()["hidden"] == (8,)


def test_results_are_added_to_those_already_there(tmp_path: Path) -> None:
    path = tmp_path / "home" / "bench.json"
    results.merge(path, {"a/1": 1.0, "b/1": 2.0}, {"steps": {"threads": 2}})
    results.merge(path, {"b/1": 3.0}, {"memory": {"threads": 1}})
    about = {"steps": {"threads": 2}, "memory": {"threads": 1}}
    assert json.loads(path.read_text()) == {"a/1": 1.0, "b/1": 3.0, "_about": about}
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_the_command_runs_the_parts_asked_for_and_writes_them_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_HOME", str(tmp_path))
    monkeypatch.setattr(memory, "measure", lambda: ({f"memory_mb/discreet/{NETWORK}/8192": 1.0}, {"load_before": []}))
    command.main(["--only", "memory"])
    assert json.loads((tmp_path / "bench.json").read_text()) == {
        f"memory_mb/discreet/{NETWORK}/8192": 1.0,
        "_about": {"memory": {"load_before": []}},
    }
