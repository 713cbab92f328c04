"""Knots and crosses of a feature: public choices, checked before any record is read."""

import pytest
from pydantic import ValidationError

from configs.data_schema import Data
from configs.feature_schema import NumberFeature

STAY = {"kind": "number", "min": 1, "max": 14}


def data(**features: object) -> Data:
    return Data.model_validate(
        {
            "source": {"kind": "simulated"},
            "label": {"column": "outcome", "positive": ["1"], "negative": ["0"]},
            "features": features,
        }
    )


@pytest.mark.parametrize(
    ("knots", "words"), [([3, 2], "rise"), ([2, 2], "rise"), ([1], "above min = 1"), ([15], "at most at max = 14")]
)
def test_knots_must_rise_within_the_bounds(knots: list[float], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        NumberFeature.model_validate({**STAY, "knots": knots})


def test_knots_and_crosses_are_kept_as_written() -> None:
    found = data(stay={**STAY, "knots": [2, 10], "crossed_with": ["diagnosis"]}, diagnosis={"kind": "icd9"})
    stay = found.features["stay"]
    assert isinstance(stay, NumberFeature)
    assert (stay.knots, stay.crossed_with) == ((2.0, 10.0), ("diagnosis",))


@pytest.mark.parametrize("partner", ["stay", "outcome", "nowhere"])
def test_a_cross_must_name_another_feature(partner: str) -> None:
    with pytest.raises(ValidationError, match="no other feature"):
        data(stay={**STAY, "crossed_with": [partner]}, diagnosis={"kind": "icd9"})


def test_a_pair_is_crossed_once() -> None:
    with pytest.raises(ValidationError, match="crossed with it already"):
        data(stay={**STAY, "crossed_with": ["code"]}, code={"kind": "icd9", "crossed_with": ["stay"]})
