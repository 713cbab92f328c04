from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from configs.load import load
from tasks.data import encoding, labels, synthetic, validation

FEATURES = {
    "age": {"kind": "number", "min": 18, "max": 104, "scale": "linear", "fill": 18},
    "dose": {"kind": "number", "min": 0.5, "max": 1.0, "scale": "log", "fill": 0.5},
    "flag": {"kind": "number", "min": 0, "max": 1, "scale": "linear", "fill": 0},
    "sex": {"kind": "category", "values": ["f", "m"], "reference": "f"},
    "ward": {"kind": "category", "values": ["one"], "reference": "one"},
    "diagnosis": {"kind": "icd9"},
}
LABEL = {"column": "back", "positive": ["<30"], "negative": [">30", "NO"]}


def rows(**options) -> pd.DataFrame:
    given = {
        "features": FEATURES,
        "label": LABEL,
        "person": "who",
        "max_rows": 3,
        "n": 4000,
        "seed": 0,
    } | options
    return synthetic.rows(**given)


def test_rows_fit_the_schema():
    frame = rows(unique=["stay"], extra={"group": ["a", "b"], "age": ["ignored: already a feature"]})
    assert list(frame.columns) == [*FEATURES, "group", "who", "stay", "back"]
    assert {str(dtype) for dtype in frame.dtypes} == {"str"}
    outside = encoding.outside_counts(frame, encoding.build(FEATURES))
    assert {count["outside"] for count in outside.values()} == {0}
    assert all(0 < count["missing"] < 0.1 * len(frame) for count in outside.values())
    assert set(frame.back) == {"<30", ">30", "NO"}
    assert set(frame.group) == {"a", "b"}
    assert frame.stay.is_unique
    sizes = frame.who.value_counts()
    assert set(sizes) == {1, 2, 3}


def test_whole_bounds_give_whole_numbers_that_reach_both_ends():
    ages = rows().age.dropna().astype(int)
    assert (ages.min(), ages.max()) == (18, 104)


@pytest.mark.parametrize("name", ["readmission", "diabetes130"])
def test_rows_for_a_rehearsal_of_a_shipped_configuration_pass_its_own_expectations(name):
    path = Path(__file__).parents[2] / "configs" / f"{name}.yaml"
    config = load(path, {"DISCREET_DATA": "unused"}).config
    features = {key: feature.model_dump() for key, feature in config.data.features.items()}
    frame = rows(
        features=features,
        label=config.data.label.model_dump(),
        person=config.data.person,
        max_rows=config.privacy.max_rows_per_person,
        n=20_000,
        prior_rate=config.network.prior_rate,
        unique=config.data.checks.unique,
        max_missing=config.data.checks.max_missing,
    )
    result = validation.validate(
        frame,
        features=features,
        label=config.data.label.model_dump(),
        person=config.data.person,
        checks=config.data.checks.model_dump(),
    )
    assert result.failures() == []


def test_no_cell_is_missing_where_none_may_be():
    frame = rows(max_missing={"default": 0.0, "age": 0.5})
    assert frame.drop(columns="age").notna().all().all()
    assert 0.01 < frame.age.isna().mean() < 0.03


@pytest.mark.parametrize("prior", [0.1, 0.5])
def test_a_model_can_learn_something_from_them(prior):
    frame = rows(prior_rate=prior)
    matrix = encoding.encode(frame, encoding.build(FEATURES))
    label = labels.binary(frame, **LABEL)
    model = LogisticRegression(max_iter=500).fit(matrix[:3000], label[:3000])
    assert abs(label.mean() - prior) < 0.05
    # The standard error of this AUC is at most .03 (100 positives among 1,000): .5 is five of them below .65.
    assert roc_auc_score(label[3000:], model.predict_proba(matrix[3000:])[:, 1]) > 0.65


def test_the_seed_decides_everything_and_no_person_is_needed():
    assert rows(seed=3).equals(rows(seed=3))
    assert not rows(seed=3).equals(rows(seed=4))
    assert "who" not in rows(person=None, n=1).columns
