"""Every limit of a configuration lies where it is written: what is on it is right, what is just beyond is refused."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from configs.runtime_schema import Runtime
from configs.schema import Config

INF, NAN = float("inf"), float("nan")
GOOD: dict[str, Any] = {
    "model": "readmission",
    "data": {
        "source": {"kind": "simulated"},
        "person": "patient",
        "label": {"column": "readmitted", "positive": ["Yes"], "negative": ["No"]},
        "features": {
            "age": {"kind": "number", "min": 0, "max": 110},
            "sex": {"kind": "category", "values": ["F", "M"]},
            "ward": {"kind": "icd9"},
        },
        "holdout": {},
        "checks": {"groups": {"columns": ["sex"], "min_rows": 5}, "label_rate": {}},
    },
    "privacy": {
        "population": "ward",
        "unit": "person",
        "guarantee": {"epsilon": 8, "delta": 1e-13, "planned_runs": 5},
        "run": {"epsilon": 0.2, "delta": 1e-14},
        "units": 50_000,
        "expected_batch": 5_000,
        "epochs": 10,
        "clipping": {},
        "moments": {"noise_multiplier": 8},
    },
    "network": {"kind": "mlp", "hidden": [8], "prior_rate": 0.1, "threshold": 0.2},
    "training": {"learning_rate": 1},
    "gates": {"min_auc": 0.6, "max_auc_drop": 0.1},
    "schedule": {"cron": "0 3 1 * *"},
}
CSV = {"kind": "csv", "path": "a.csv"}
SQL = {"kind": "sql", "url": "sqlite://", "query": "select 1"}


def changed(**changes: Any) -> dict[str, Any]:
    raw = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *above, last = path.split("__")
        section = raw
        for key in above:
            section = section[key]
        section[last] = value
    return raw


def fails(raw: dict[str, Any]) -> str:
    """Where a configuration is wrong, "" if nowhere."""
    try:
        Config.model_validate(raw)
    except ValidationError as error:
        return "__".join(str(part) for part in error.errors()[0]["loc"])
    return ""


LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    ("model", ["a", "x" * 100], ["", "x" * 101, "-a", "a.b"]),
    ("data__label__column", ["y", "y" * 200], ["", "y" * 201]),
    ("data__label__positive", [["1"]], [[]]),
    ("data__person", ["p", "p" * 200], ["", "p" * 201]),
    ("data__source__rows", [1, 100_000_000], [0, 100_000_001]),
    ("data__source__seed", [0, 1], [-1]),
    ("data__features", [{"sex": {"kind": "category", "values": ["F"]}}], [{}]),
    ("data__features__age__min", [-1e9, 0, 109], [INF, -INF, NAN]),
    ("data__features__age__max", [1e9, 1], [0, INF, NAN]),
    ("data__features__age__fill", [0, 110], [-1, 111, INF, NAN]),
    ("data__features__age__knots", [list(range(1, 51)), [110]], [list(range(1, 52)), [0], [111], [INF], [NAN]]),
    ("data__holdout__audit", [0.001, 0.5], [0, 0.501, NAN]),
    ("data__holdout__population", [0, 0.3], [-0.001, 0.301, NAN]),
    ("data__checks__max_outside", [0, 1], [-0.001, 1.001, INF, NAN]),
    ("data__checks__max_missing", [{"age": 0}, {"default": 1}], [{"age": -0.001}, {"age": 1.001}, {"age": NAN}]),
    ("data__checks__min_rows", [1, 10**12], [0, 10**12 + 1]),
    ("data__checks__max_rows_of_one_person", [1, 10**12], [0, 10**12 + 1]),
    ("data__checks__groups__min_rows", [1, 10**12], [0, 10**12 + 1]),
    ("data__checks__groups__columns", [["sex"]], [[]]),
    ("data__checks__label_rate__min", [0, 1], [-0.001, 1.001, NAN]),
    ("data__checks__label_rate__max", [0, 1], [-0.001, 1.001, NAN]),
    ("privacy__population", ["a", "x" * 100], ["", "x" * 101]),
    ("privacy__guarantee__epsilon", [0.2, 0.3, 100], [0, 100.001, INF, NAN]),
    ("privacy__guarantee__delta", [1e-14, 1e-13], [0, 1, 1.5, NAN]),
    ("privacy__guarantee__planned_runs", [1, 10_000], [0, 10_001]),
    ("privacy__run__epsilon", [0.001, 8], [0, NAN, INF]),
    ("privacy__run__delta", [1e-20, 1e-13], [0, 1, NAN]),
    ("privacy__units", [5_000, 10**6], [9, 10**12 + 1]),
    ("privacy__max_rows_per_person", [1, 1000], [0, 1001]),
    ("privacy__expected_batch", [1, 50_000], [0, 50_001, 10**9 + 1]),
    ("privacy__epochs", [0.1, 100_000], [0, 100_001, INF, NAN]),
    ("privacy__clipping__norm", [1e-9, 1e9], [0, -1, INF, NAN]),
    ("privacy__moments__noise_multiplier", [0.5, 10_000], [0.499, 10_000.5, INF, NAN]),
    (
        "network__hidden",
        [[1], [65_536], [1] * 16, [1, 1600, 62_499]],
        [[], [0], [65_537], [1] * 17, [3, 4900, 20_401, 1]],
    ),
    ("network__prior_rate", [0.001, 0.999], [0, 1, 1.5, NAN]),
    ("network__threshold", [0.001, 0.999], [0, 1, NAN]),
    ("training__learning_rate", [1e-9, 1e9], [0, INF, NAN]),
    ("training__momentum", [0, 0.999], [-0.001, 1, NAN]),
    ("training__averaging", [0, 0.999], [-0.001, 1, NAN]),
    ("training__seed", [0, 2**63 - 1], [-1, 2**63]),
    ("gates__min_auc", [0.5, 0.999], [0.499, 1, NAN]),
    ("gates__max_auc_drop", [0, 0.5], [-0.001, 0.501, NAN]),
]


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, right, _ in LIMITS for value in right], ids=lambda part: str(part)[:40]
)
def test_what_lies_on_a_limit_is_right(path: str, value: Any) -> None:
    assert fails(changed(**{path: value})) == ""


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, _, wrong in LIMITS for value in wrong], ids=lambda part: str(part)[:40]
)
def test_what_lies_just_beyond_a_limit_is_refused_where_it_stands(path: str, value: Any) -> None:
    where = fails(changed(**{path: value}))
    pieces = [piece for piece in where.split("__") if piece not in {"number", "simulated", "mlp"}]
    assert pieces[: path.count("__") + 1] == path.split("__")


@pytest.mark.parametrize(
    ("source", "key", "right", "wrong"),
    [
        (CSV, "path", ["a"], [""]),
        (CSV, "delimiter", [";", "\t"], ["", ";;"]),
        ({"kind": "parquet", "path": "a"}, "path", ["a"], [""]),
        (SQL, "url", ["a"], [""]),
        (SQL, "query", ["a"], [""]),
        ({"kind": "python", "function": "a:b"}, "function", ["a.b:c"], ["a", "a:b:c", "a b:c", ""]),
    ],
)
def test_a_source_without_a_place_to_read_from_is_refused(
    source: dict[str, Any], key: str, right: list[str], wrong: list[str]
) -> None:
    for value in right:
        assert fails(changed(data__source={**source, key: value})) == ""
    for value in wrong:
        assert fails(changed(data__source={**source, key: value})) == f"data__source__{source['kind']}__{key}"


def test_the_url_of_a_database_is_not_in_what_python_prints() -> None:
    config = Config.model_validate(changed(data__source={**SQL, "url": "postgresql://me:hunter2@host/db"}))
    assert "hunter2" not in repr(config) + str(config)


@pytest.mark.parametrize(("delta", "right"), [(1e-6, False), (9.99e-7, True)])
def test_delta_lies_below_one_in_units(delta: float, right: bool) -> None:
    raw = changed(privacy__units=10**6, privacy__guarantee__delta=delta)
    assert fails(raw) == ("" if right else "privacy__units")


@pytest.mark.parametrize(
    ("batch", "epochs", "right"),
    [(10_000, 0.6, True), (10_000, 0.4, False), (1, 1000.0, True), (1, 1000.0001, False)],
)
def test_a_run_has_between_one_and_ten_million_steps(batch: int, epochs: float, right: bool) -> None:
    raw = changed(privacy__units=10_000, privacy__expected_batch=batch, privacy__epochs=epochs)
    assert fails(raw) == ("" if right else "privacy__epochs")


@pytest.mark.parametrize(("units", "batch"), [(10, 1), (10, 10), (10**12, 10**9)])
def test_few_and_very_many_people_may_train(units: int, batch: int) -> None:
    raw = changed(privacy__units=units, privacy__expected_batch=batch)
    assert fails(raw) == ""
    raw["privacy"] |= {"units": 10**12, "expected_batch": 10**9 + 1}
    assert fails(raw) == "privacy__expected_batch"


def holds(found: Any, given: Any) -> bool:
    """Whether a section that was read says what was written, and anything more."""
    if isinstance(given, dict):
        return all(holds(found[key], value) for key, value in given.items())
    return found == (tuple(given) if isinstance(given, list) else given)


def test_what_is_read_is_what_is_written() -> None:
    given = changed(
        data__features__age__knots=[30, 60],
        data__features__age__fill=40,
        data__features__age__crossed_with=["sex"],
        data__features__sex__reference="M",
        data__checks__label_rate={"min": 0.1, "max": 0.9},
        data__checks__max_missing={"age": 0.5},
        data__exclude=[],
        schedule={"cron": "0 3 1 * *", "timezone": "Europe/Zurich"},
    )
    assert holds(Config.model_validate(given).model_dump(), given)
    assert not holds(Config.model_validate(given).model_dump(), changed(privacy__epochs=11))


def test_one_run_may_cost_the_largest_guarantee_and_no_more() -> None:
    raw = changed(privacy__guarantee__epsilon=100, privacy__run__epsilon=100)
    assert fails(raw) == ""
    raw["privacy"]["run"]["epsilon"] = 100.001
    assert fails(raw).startswith("privacy__run")


def test_what_is_left_out_has_the_values_that_the_readme_promises() -> None:
    raw = changed(data__checks={}, privacy__clipping={}, privacy__moments=None)
    config = Config.model_validate(raw)
    assert config.data.source.model_dump() == {"kind": "simulated", "rows": 200_000, "seed": 20260101}
    checks = config.data.checks
    assert (checks.min_rows, checks.max_rows_of_one_person, checks.groups) == (1000, 1000, None)
    assert config.privacy.max_rows_per_person == 1
    assert (config.training.seed, config.training.zero_last_layer) == (0, True)
    assert config.network.model_dump()["layer_norm"] is False
    runtime = Runtime()
    assert (runtime.threads, runtime.physical_batch, runtime.lease_seconds) == (None, 8192, 3600)


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("home", ["h"], [""]),
        ("threads", [1, 1024], [0, 1025]),
        ("physical_batch", [1, 10**7], [0, 10**7 + 1]),
        ("lease_seconds", [60, 7 * 86_400], [59, 7 * 86_400 + 1]),
    ],
)
def test_a_runtime_has_limits_too(key: str, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        assert getattr(Runtime.model_validate({key: value}), key) == value
    for value in wrong:
        with pytest.raises(ValidationError, match=key):
            Runtime.model_validate({key: value})
