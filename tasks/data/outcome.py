"""Why a simulated patient comes back: the generating model of the simulated label.

    readmitted ~ Bernoulli(p),   log(p / (1 - p)) = b_g + sum over terms t of c_{g,t} · x_t

g is 0 below `OLD_AGE` years and 1 from then on; x_t are the terms of `terms`, functions of the record as it
stands (what was not measured adds 0); c_{g,t} is `COEFFICIENTS[t][g]` and b_g is `INTERCEPTS[g]`. Most
terms are additive in what an encoder sees; six are products. Old patients follow other coefficients:
earlier visits matter less, laboratory values more, and length of stay, a nursing home and diuretics point
the other way.

As p depends on the record alone, no model can expect a better AUC than that of p itself: about .81 overall
and about .74 among the old.
"""

import numpy as np
import pandas as pd

from tasks.data.encoding import ICD9_VALUES, icd9_chapter

OLD_AGE = 80
INTERCEPTS = (-3.10, -1.85)
# term: (below OLD_AGE, from OLD_AGE on), in log-odds per unit of the term
COEFFICIENTS: dict[str, tuple[float, float]] = {
    "age": (0.25, -0.30),
    "male": (0.15, 0.00),
    "inpatient": (1.00, 0.45),
    "emergency": (0.60, 0.25),
    "outpatient": (0.15, 0.00),
    "length_of_stay": (0.40, -0.40),
    "diagnoses": (0.30, 0.10),
    "nursing_home": (0.70, -0.70),
    "home_care": (0.40, 0.30),
    "rehabilitation": (-0.30, 0.40),
    "emergency_admission": (0.35, 0.10),
    "elective_admission": (-0.35, 0.00),
    "circulatory": (0.45, 0.60),
    "neoplasms": (0.85, 0.20),
    "respiratory": (0.30, 0.60),
    "mental": (0.60, 0.00),
    "diabetes": (0.50, 0.10),
    "injury": (-0.50, 0.30),
    "pregnancy": (-1.60, 0.00),
    "heart_failure": (0.55, 0.40),
    "kidney_disease": (0.50, 0.50),
    "insulin_changed": (0.50, 0.10),
    "diuretic": (0.25, -0.35),
    "anticoagulant": (0.20, 0.45),
    "opioid": (0.45, 0.00),
    "antidepressant": (0.20, -0.25),
    "medicines": (0.30, 0.15),
    "haemoglobin_low": (0.30, 0.60),
    "sodium_low": (0.25, 0.45),
    "creatinine": (0.45, 0.75),
    "inpatient x insulin_changed": (0.40, 0.00),
    "inpatient x nursing_home": (0.35, 0.00),
    "emergency x opioid": (0.35, 0.00),
    "creatinine x diuretic": (0.40, 0.35),
    "neoplasms x haemoglobin_low": (0.35, 0.00),
    "heart_failure x sodium_low": (0.30, 0.40),
}
NUMBERS = (
    "age",
    "visits_inpatient",
    "visits_emergency",
    "visits_outpatient",
    "length_of_stay",
    "number_of_diagnoses",
    "number_of_medicines",
    "haemoglobin",
    "sodium",
    "creatinine",
)


def readmission_probability(frame: pd.DataFrame) -> np.ndarray:
    """p of the generating model for each simulated discharge, float64 [rows], in (0, 1).

    Args:
        frame: simulated discharges, numbers as text or as numbers.
    """
    numbers = {name: np.asarray(pd.to_numeric(frame[name]), dtype=np.float64) for name in NUMBERS}
    found = terms(frame, numbers)
    old = numbers["age"] >= OLD_AGE
    logit = np.where(old, INTERCEPTS[1], INTERCEPTS[0])
    for name, (young_weight, old_weight) in COEFFICIENTS.items():
        logit += np.where(old, old_weight, young_weight) * found[name]
    return 1.0 / (1.0 + np.exp(-logit))


def terms(frame: pd.DataFrame, numbers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every term x_t by name, float64 [rows]."""

    def equals(column: str, *values: str) -> np.ndarray:
        return frame[column].isin(values).to_numpy(dtype=np.float64)

    def measured(values: np.ndarray) -> np.ndarray:
        return np.nan_to_num(values, nan=0.0)

    chapters = _chapters(pd.Series(frame["diagnosis_1"]))
    x = {name: (chapters == name).astype(np.float64) for name in COEFFICIENTS if name in ICD9_VALUES}
    x |= {
        "age": (numbers["age"] - 60) / 20,
        "male": equals("sex", "male"),
        "inpatient": np.log1p(numbers["visits_inpatient"]),
        "emergency": np.log1p(numbers["visits_emergency"]),
        "outpatient": np.log1p(numbers["visits_outpatient"]),
        "length_of_stay": np.log(numbers["length_of_stay"] / 4),
        "diagnoses": (numbers["number_of_diagnoses"] - 6) / 4,
        "emergency_admission": equals("admission", "emergency"),
        "elective_admission": equals("admission", "elective"),
        "heart_failure": np.maximum(equals("diagnosis_2", "428.0"), equals("diagnosis_3", "428.0")),
        "kidney_disease": np.maximum(equals("diagnosis_2", "585.9"), equals("diagnosis_3", "585.9")),
        "insulin_changed": equals("insulin", "up", "down"),
        "medicines": (numbers["number_of_medicines"] - 12) / 8,
        "haemoglobin_low": measured(np.clip((12 - numbers["haemoglobin"]) / 2, 0, 3)),
        "sodium_low": measured(np.clip((136 - numbers["sodium"]) / 4, 0, 3)),
        "creatinine": measured(np.clip(np.log(numbers["creatinine"]), -1, 2)),
    }
    x |= {name: equals("discharge_to", name) for name in ("nursing_home", "home_care", "rehabilitation")}
    x |= {name: equals(name, "yes") for name in ("diuretic", "anticoagulant", "opioid", "antidepressant")}
    for name in COEFFICIENTS:
        left, _, right = name.partition(" x ")
        if right:
            x[name] = x[left] * x[right]
    return x


def _chapters(codes: pd.Series) -> np.ndarray:
    positions, distinct = pd.factorize(codes)
    return np.array([*(icd9_chapter(str(code)) for code in distinct), ""])[positions]
