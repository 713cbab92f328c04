"""A hospital's discharges, simulated: no real patient stands behind any row.

A patient has sex, ethnicity, an age at the first stay, a frailty f ~ N(0, 1), long-standing diseases and
long-term medicines (both likelier with f and age), and Geometric(.55) stays, .6 years apart. A stay has
visits in the year before (Poisson, mean rising with f), an ICD-9-CM main diagnosis (its chapter by age
group), up to two of the diseases as further diagnoses, laboratory values that shift with f and the diseases
(8 % are not measured), a length of stay, a place of discharge, and the label by the generating model of
`outcome`, whose AUC no model can expect to beat: about .81 overall and about .74 from 80 years on (about
6 % of the rows), where other coefficients hold. Stays of one patient share their traits; that a readmission
should show as a further row is not modelled.
"""

from typing import Any

import numpy as np
import pandas as pd

from tasks.data.outcome import OLD_AGE, readmission_probability

__all__ = ["DEFAULT_ROWS", "discharges", "readmission_probability"]

DEFAULT_ROWS = 200_000
SEXES = ("female", "male")
ETHNICITIES = ("white", "black", "hispanic", "asian", "other")
ADMISSIONS = ("emergency", "urgent", "elective")
DISCHARGES = ("home", "home_care", "nursing_home", "rehabilitation")
INSULIN = ("none", "steady", "up", "down")
MEDICINES = ("diuretic", "anticoagulant", "opioid", "antidepressant", "statin")

# Main diagnoses: codes of one chapter, and the chapter's weight below OLD_AGE and from then on.
_DIAGNOSES: tuple[tuple[tuple[str, ...], float, float], ...] = (
    (("008.45", "038.9", "041.4"), 0.04, 0.05),
    (("153.9", "162.9", "174.9", "185", "197.7"), 0.07, 0.06),
    (("250.02", "250.13", "250.60", "250.80"), 0.08, 0.05),
    (("244.9", "276.1", "276.51", "278.01"), 0.04, 0.05),
    (("280.9", "285.1", "287.5"), 0.02, 0.03),
    (("291.81", "295.70", "296.30", "303.90"), 0.06, 0.01),
    (("332.0", "340", "345.90"), 0.03, 0.03),
    (("366.16", "386.11"), 0.01, 0.01),
    (("401.9", "410.71", "414.01", "427.31", "428.0", "434.91"), 0.22, 0.30),
    (("466.0", "486", "491.21", "493.92", "518.81"), 0.10, 0.15),
    (("540.9", "560.9", "562.11", "574.10", "577.0"), 0.09, 0.07),
    (("584.9", "585.9", "590.10", "599.0"), 0.05, 0.07),
    (("644.21", "650", "654.21"), 0.04, 0.0),
    (("682.6", "707.03"), 0.03, 0.02),
    (("715.96", "722.10", "724.02"), 0.06, 0.03),
    (("780.2", "786.50", "789.00"), 0.05, 0.04),
    (("805.4", "820.21", "823.82", "996.62", "E888.9"), 0.06, 0.09),
    (("V57.89", "V58.11"), 0.02, 0.02),
)
# Long-standing diseases as further diagnoses: code, log-odds at frailty 0 and age 60, per unit of frailty,
# per 20 years.
_DISEASES: tuple[tuple[str, float, float, float], ...] = (
    ("428.0", -2.0, 0.9, 0.8),
    ("585.9", -2.2, 0.7, 0.5),
    ("250.00", -1.3, 0.4, 0.3),
    ("496", -1.9, 0.5, 0.4),
    ("311", -1.8, 0.4, -0.2),
    ("244.9", -2.3, 0.1, 0.3),
)
# The same for long-term medicines.
_MEDICINES: dict[str, tuple[float, float, float]] = {
    "diuretic": (-1.0, 0.4, 0.5),
    "anticoagulant": (-1.8, 0.2, 0.7),
    "opioid": (-1.4, 0.5, -0.1),
    "antidepressant": (-1.4, 0.3, 0.0),
    "statin": (-0.4, 0.1, 0.6),
}
_NOT_MEASURED = 0.08
# Laboratory values: lowest, highest, digits after the point. g/dL, mmol/L, mg/dL.
_LIMITS = {"haemoglobin": (4.0, 20.0, 1), "sodium": (110.0, 165.0, 0), "creatinine": (0.3, 12.0, 1)}


def discharges(*, rows: int = DEFAULT_ROWS, seed: int = 0) -> pd.DataFrame:
    """Simulate discharges; the same rows and seed give the same frame.

    Args:
        rows: number of discharges, at least 1.
        seed: of numpy's PCG64 generator, at least 0.

    Returns:
        DataFrame [rows, 26] of text, what was not recorded NA, one discharge a row in random order;
        `readmitted` is yes or no.
    """
    random = np.random.default_rng(seed)
    patients = _patients(random, rows)
    frame = pd.DataFrame(_stays(random, patients))
    readmitted = random.random(rows) < readmission_probability(frame)
    frame["readmitted"] = _text(("no", "yes"), readmitted.astype(np.int64))
    for name in ("age", *_WHOLE):
        frame[name] = frame[name].astype(np.int64).astype("str")
    for name, (_, _, digits) in _LIMITS.items():
        cells = [None if value != value else f"{value:.{digits}f}" for value in frame[name]]
        frame[name] = pd.Series(cells, dtype="str")
    return frame.iloc[random.permutation(rows)].reset_index(drop=True)


_WHOLE = (
    "visits_inpatient",
    "visits_emergency",
    "visits_outpatient",
    "length_of_stay",
    "number_of_diagnoses",
    "number_of_medicines",
)


def _patients(random: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Traits that last, one entry a stay: those of the stay's patient."""
    stays = random.geometric(0.55, rows)
    patient = np.repeat(np.arange(rows), stays)[:rows]
    first = np.r_[True, patient[1:] != patient[:-1]]
    stay = np.arange(rows) - np.flatnonzero(first)[patient]
    count = int(patient[-1]) + 1
    frailty = random.normal(size=count)
    age = 18 + 72 * random.beta(2.3, 2.1, count) + 1.0 * frailty
    traits: dict[str, np.ndarray] = {
        "number": random.permutation(np.arange(1_000_000, 1_000_000 + count)),
        "sex": random.integers(0, 2, count),
        "ethnicity": random.choice(5, count, p=(0.62, 0.17, 0.13, 0.05, 0.03)),
        "ethnicity_known": random.random(count) >= 0.02,
        "frailty": frailty,
        "age": age,
        "sodium": random.normal(139, 2.5, count),
        "haemoglobin": random.normal(13.3, 1.2, count),
    }
    decades = (age - 60) / 20
    for code, base, by_frailty, by_age in _DISEASES:
        traits[code] = _bernoulli(random, base + by_frailty * frailty + by_age * decades)
    for name, (base, by_frailty, by_age) in _MEDICINES.items():
        traits[name] = _bernoulli(random, base + by_frailty * frailty + by_age * decades)
    each = {name: values[patient] for name, values in traits.items()}
    each["age"] = np.clip(each["age"] + 0.6 * stay, 18, 104)
    return each


def _stays(random: np.random.Generator, patient: dict[str, np.ndarray]) -> dict[str, Any]:
    rows = len(patient["age"])
    frailty, age = patient["frailty"], np.floor(patient["age"])
    second, third = _further_diagnoses(random, patient)
    medicines = {name: patient[name] ^ (random.random(rows) < 0.05) for name in MEDICINES}
    insulin = np.where(
        patient["250.00"],
        random.choice(4, rows, p=(0.35, 0.3, 0.2, 0.15)),
        random.choice(4, rows, p=(0.88, 0.06, 0.04, 0.02)),
    )
    needs = 0.7 * frailty + 0.6 * (age - 60) / 20
    place = 1 * (needs + random.logistic(size=rows) > 1.5) + 1 * (needs + random.logistic(size=rows) > 1.5)
    rehabilitation = random.random(rows) < 0.06
    return {
        "encounter_id": "E" + pd.Series(random.permutation(np.arange(10_000_000, 10_000_000 + rows))).astype("str"),
        "patient_id": "P" + pd.Series(patient["number"]).astype("str"),
        "age": age,
        "sex": _text(SEXES, patient["sex"]),
        "ethnicity": _text(ETHNICITIES, np.where(patient["ethnicity_known"], patient["ethnicity"], -1)),
        "admission": _text(ADMISSIONS, random.choice(3, rows, p=(0.55, 0.2, 0.25))),
        "diagnosis_1": _main_diagnosis(random, age),
        "diagnosis_2": second,
        "diagnosis_3": third,
        "number_of_diagnoses": np.clip(1 + random.poisson(np.exp(1.5 + 0.2 * frailty + 0.1 * (age - 60) / 20)), 1, 20),
        "visits_inpatient": np.minimum(random.poisson(np.exp(-0.9 + 0.8 * frailty)), 20),
        "visits_emergency": np.minimum(random.poisson(np.exp(-1.3 + 0.8 * frailty)), 20),
        "visits_outpatient": np.minimum(random.poisson(np.exp(-0.4 + 0.4 * frailty)), 40),
        "length_of_stay": np.clip(np.ceil(np.exp(random.normal(1.25 + 0.12 * frailty, 0.7))), 1, 30),
        "number_of_medicines": np.clip(random.poisson(np.exp(2.3 + 0.2 * frailty)), 0, 60),
        "insulin": _text(INSULIN, insulin),
        **{name: _text(("no", "yes"), used.astype(np.int64)) for name, used in medicines.items()},
        **_laboratory(random, patient),
        "discharge_to": _text(DISCHARGES, np.where(rehabilitation, 3, place)),
    }


def _further_diagnoses(random: np.random.Generator, patient: dict[str, np.ndarray]) -> tuple[pd.Series, pd.Series]:
    """The first two long-standing diseases of the patient, in a random order for each stay; NA where there
    is none."""
    has = np.stack([patient[code] for code, *_ in _DISEASES], axis=1)
    order = np.argsort(np.where(has, random.random(has.shape), 2.0), axis=1)[:, :2]
    found = np.where(np.take_along_axis(has, order, axis=1), order, -1)
    codes = tuple(code for code, *_ in _DISEASES)
    return _text(codes, found[:, 0]), _text(codes, found[:, 1])


def _main_diagnosis(random: np.random.Generator, age: np.ndarray) -> pd.Series:
    codes = tuple(code for chapter, _, _ in _DIAGNOSES for code in chapter)
    chosen = np.empty(len(age), dtype=np.int64)
    for of_chapter, rows in (
        ([young for _, young, _ in _DIAGNOSES], age < OLD_AGE),
        ([old for _, _, old in _DIAGNOSES], age >= OLD_AGE),
    ):
        sizes = [len(chapter) for chapter, _, _ in _DIAGNOSES]
        weights = np.repeat(np.array(of_chapter) / sizes, sizes)
        chosen[rows] = random.choice(len(codes), int(rows.sum()), p=weights / weights.sum())
    return _text(codes, np.where(random.random(len(age)) < 0.005, -1, chosen))


def _laboratory(random: np.random.Generator, patient: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rows, frailty = len(patient["age"]), patient["frailty"]
    kidney, heart = patient["585.9"], patient["428.0"]
    values = {
        "haemoglobin": patient["haemoglobin"] - 0.5 * frailty - 1.2 * kidney + random.normal(0, 0.9, rows),
        "sodium": patient["sodium"] - 0.6 * frailty - 2.0 * heart + random.normal(0, 2.0, rows),
        "creatinine": np.exp(random.normal(-0.1 + 0.06 * frailty + 0.7 * kidney, 0.3)),
    }
    for name, (low, high, digits) in _LIMITS.items():
        values[name] = np.round(np.clip(values[name], low, high), digits)
        values[name][random.random(rows) < _NOT_MEASURED] = np.nan
    return values


def _bernoulli(random: np.random.Generator, logit: np.ndarray) -> np.ndarray:
    return random.random(len(logit)) < 1 / (1 + np.exp(-logit))


def _text(values: tuple[str, ...], codes: np.ndarray) -> pd.Series:
    """Texts by position; NA for -1."""
    return pd.Series(pd.array([*values, None], dtype="str").take(np.asarray(codes)))
