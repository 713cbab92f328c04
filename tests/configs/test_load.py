"""A configuration file is either right, or refused with every fault it has."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from configs.errors import ConfigurationError
from configs.faults import _shown, faults_of
from configs.load import MAX_BYTES, load, load_runtime
from configs.yaml_text import dotted

SHIPPED = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SHIPPED = [path for path in SHIPPED if path.name != "prefect.yaml"]
GOOD = """
model: readmission
data:
  source: {kind: csv, path: "${FOLDER}/records.csv"}
  person: patient
  label: {column: readmitted, positive: [Yes], negative: [No]}
  features:
    age: {kind: number, min: 0, max: 110}
    sex: {kind: category, values: [F, M]}
    ward: {kind: category, values: [01, 02, 1e3]}
    diagnosis: {kind: icd9}
privacy:
  population: ward
  unit: person
  guarantee: {epsilon: 8, delta: 1e-6, planned_runs: 5}
  run: {epsilon: 3, delta: 1e-6}
  units: 50000
  expected_batch: 5000
  epochs: 10
network: {kind: mlp, hidden: [8], prior_rate: 0.1, threshold: 0.2}
training: {learning_rate: 1}
gates: {min_auc: 0.6}
schedule: {cron: "0 3 1 * *", timezone: Europe/Zurich}
"""
ENVIRONMENT = {"FOLDER": "/records"}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def told_of(path: Path) -> str:
    """What the loader says of a file: nothing if it is right; anything but a ConfigurationError gets through."""
    try:
        load(path, ENVIRONMENT)
    except ConfigurationError as error:
        return str(error)
    return ""


def refusal(tmp_path: Path, text: str, environment: dict[str, str] = ENVIRONMENT) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, text), environment)
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_configuration_is_right(path: Path) -> None:
    loaded = load(path, {"DISCREET_DATA": "/a/secret/place"})
    assert loaded.config.gates.policy()
    assert "/a/secret/place" not in loaded.text


def test_code_books_keep_the_text_that_is_written_and_numbers_are_numbers(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, GOOD), ENVIRONMENT)
    features = loaded.config.data.features
    assert features["ward"].model_dump()["values"] == ("01", "02", "1e3")
    assert loaded.config.data.label.negative == ("No",)
    assert loaded.config.privacy.guarantee.delta == 1e-6
    assert loaded.config.data.source.model_dump()["path"] == "/records/records.csv"
    assert features["age"].model_dump()["fill"] == 0
    assert features["sex"].model_dump()["reference"] == "F"


def test_a_configuration_cannot_be_changed_after_it_was_read(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD), ENVIRONMENT).config
    with pytest.raises(ValidationError, match="frozen"):
        config.privacy.epochs = 1000  # type: ignore[misc]


def test_every_column_is_read_once_and_no_other(tmp_path: Path) -> None:
    text = GOOD.replace(
        "  person: patient",
        "  person: patient\n  exclude: [{column: age, values: [0]}]\n  checks: {unique: [stay]}",
    )
    columns = load(write(tmp_path, text), ENVIRONMENT).config.data.columns()
    assert columns == ["patient", "readmitted", "age", "sex", "ward", "diagnosis", "stay"]


def test_all_faults_of_a_file_are_reported_at_once_with_line_key_value_and_mend(tmp_path: Path) -> None:
    text = refusal(
        tmp_path,
        """
model: read mission
data:
  source: {kind: csv, path: "${NOPE}/x.csv", membr: a}
  person: patient
  label: {column: y, positive: [1, No], negative: [0, No]}
  features:
    age: {kind: number, min: 5, max: 1}
    weight: {kind: number, min: 5, max: 10, fill: 11}
    sex: {kind: category, values: [F, M, F]}
    ward: {kind: category, values: [A], reference: B}
    x: {kind: nmber}
    z: {min: 1}
  checks: {label_rate: {min: 0.5, max: 0.1}}
privcy: 1
privacy:
  population: p
  unit: person
  guarantee: {epsilon: 1, delta: 1e-3, planned_runs: 5}
  run: {epsilon: 3, delta: 1e-2}
  units: 5200
  expected_batch: 9000
  epochs: abc
network: {kind: linear, prior_rate: 0.1, threshold: .nan}
gates: {min_auc: null, min_acu: 3}
schedule: {cron: sometimes, timezone: Mars}
""",
        {},
    )
    for sentence in [
        "line 4: data.source.path refers to ${NOPE}, an environment variable that is not set; set it (export NOPE=…)",
        "line 4: data.source.membr is an unknown key; did you mean `member`?",
        "line 2: model = read mission must be letters",
        "line 6: data.label.negative must share no value with label.positive (No is in both)",
        "line 8: data.features.age.max = 1 must be greater than min = 5",
        "line 9: data.features.weight.fill = 11 must lie between min = 5 and max = 10",
        "line 10: data.features.sex.values must not repeat a value (F appears more than once)",
        "line 11: data.features.ward.reference = B must be one of values (A)",
        "line 12: data.features.x.kind must be one of `number`, `category`, `icd9`",
        "line 13: data.features.z.kind must be",
        "line 14: data.checks.label_rate.max = 0.1 must be at least min = 0.5",
        "line 21: privacy.units = 5200 needs guarantee.delta below 1/units",
        "line 20: privacy.run.epsilon = 3 must be at most guarantee.epsilon = 1 (epsilon of one run, under PLD)",
        "line 20: privacy.run.delta = 0.01 must be at most guarantee.delta = 0.001 (delta of one run",
        "line 23: privacy.epochs = abc must be a valid number (expected passes",
        "line 24: network.threshold = .nan must be a valid number",
        "line 25: gates.min_auc = null must be a number: a limit of null would gate nothing",
        "line 25: gates.min_acu is an unknown key; did you mean `min_auc`, which stands there already?",
        "line 26: schedule.cron = sometimes must be a five-field cron expression",
        "line 26: schedule.timezone = Mars must be an IANA time zone",
        "line 15: privcy is an unknown key; did you mean `privacy`, which stands there already?",
        "training is missing (the optimiser)",
    ]:
        assert sentence in text, sentence
    assert re.match(r".*model\.yaml: 22 faults\n", text)


def test_a_fault_that_no_section_of_the_schema_owns_still_has_words() -> None:
    whole: ErrorDetails = {"type": "value_error", "loc": (), "msg": "Value error, Must be otherwise", "input": {}}
    assert list(faults_of(whole, raw={}, sections={}, lines={})) == ["line 1:  must be otherwise"]
    key: ErrorDetails = {"type": "extra_forbidden", "loc": ("x",), "msg": "", "input": "1"}
    found = list(faults_of(key, raw={"x": "1"}, sections={}, lines={("x",): 7}))
    assert found == ["line 7: x is an unknown key; known keys: "]
    tag: ErrorDetails = {"type": "union_tag_not_found", "loc": ("x",), "msg": "", "input": {}}
    assert list(faults_of(tag, raw={"x": {}}, sections={}, lines={})) == ["line 1: x.kind must be one of "]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epochs: 10", "epochs: 0.01", "epochs = 0.01 gives 0 steps"),
        (
            "expected_batch: 5000",
            "expected_batch: 50001",
            "expected_batch = 50001 must be at most units = 50000",
        ),
        (
            "run: {epsilon: 3, delta: 1e-6}",
            "run: {epsilon: 3, delta: 1e-5}",
            "privacy.run.delta = 1e-05 must be at most guarantee.delta",
        ),
        ("  person: patient\n", "", "privacy.unit = person needs data.person"),
        ("gates: {min_auc: 0.6}", "gates: {}", "must set at least one limit"),
        (
            "gates: {min_auc: 0.6}",
            "gates: {min_auc: 1.6}",
            "min_auc = 1.6 must be less than or equal to 0.999",
        ),
        (
            "    diagnosis: {kind: icd9}",
            "    patient: {kind: icd9}",
            "must not hold `patient`: it is data.person",
        ),
        (
            "    diagnosis: {kind: icd9}",
            "    readmitted: {kind: icd9}",
            "must not hold `readmitted`: it is data.label.column",
        ),
        ("  features:", "  checks: {max_missing: {aeg: 0.1}}\n  features:", "data.checks.max_missing names `aeg`"),
        (
            "  features:",
            "  checks: {groups: {columns: [age], min_rows: 5}}\n  features:",
            "data.checks.groups.columns names `age`, which is no category",
        ),
        ("network: {kind: mlp, hidden: [8]", "network: {kind: mlp, hidden: []", "network.hidden"),
        (
            "network: {kind: mlp, hidden: [8]",
            "network: {kind: mlp, hidden: [0]",
            "network.hidden[0] = 0 must be greater than or equal to 1",
        ),
        ("units: 50000", "units: 50000\n  units: 60000", "privacy.units is written twice"),
        ("model: readmission", "model: readmission\n? [a, b]\n: 1", "a key of the file must be a word"),
        ('  source: {kind: csv, path: "${FOLDER}/records.csv"}', "  source: [1]", "data.source"),
        ('schedule: {cron: "0 3 1 * *"', 'schedule: {cron: "0 0 31 2 *"', "cron expression that fires"),
    ],
)
def test_a_fault_between_keys_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in refusal(tmp_path, GOOD.replace(old, new))


def test_a_fault_of_a_column_whose_name_begins_with_another_s_is_told_at_its_own_line(tmp_path: Path) -> None:
    text = GOOD.replace(
        "    age: {",
        "    lab: {kind: icd9}\n    lab.a1c: {kind: icd9, crossed_with: [nobody]}\n    age: {",
    )
    line = next(place for place, row in enumerate(text.splitlines(), 1) if "lab.a1c" in row)
    assert f"line {line}: data.features.lab.a1c.crossed_with names `nobody`" in refusal(tmp_path, text)


def test_an_open_question_is_no_name_of_a_column(tmp_path: Path) -> None:
    text = refusal(
        tmp_path, GOOD.replace("person: patient", 'person: "?"').replace("column: readmitted", 'column: "?"')
    )
    assert text.count("is an open question: name the column") == 2


def test_a_network_that_no_machine_holds_is_refused(tmp_path: Path) -> None:
    text = refusal(tmp_path, GOOD.replace("hidden: [8]", "hidden: [65536, 65536]"))
    assert "4,294,967,296 weights between hidden layers; at most 100,000,000" in text


def test_a_device_is_no_configuration() -> None:
    with pytest.raises(ConfigurationError, match="is a device or a pipe, not a file"):
        load("/dev/zero")


def test_rows_of_a_person_need_a_person_column(tmp_path: Path) -> None:
    text = GOOD.replace("  person: patient\n", "").replace("unit: person", "unit: row\n  max_rows_per_person: 3")
    assert "max_rows_per_person needs data.person" in refusal(tmp_path, text)
    text = text.replace("\n  max_rows_per_person: 3", "")
    assert load(write(tmp_path, text), ENVIRONMENT).config.privacy.unit == "row"


def test_checks_between_columns_wait_for_columns_that_are_right(tmp_path: Path) -> None:
    text = GOOD.replace("  features:", "  checks: {unique: [stay]}\n  features:").replace("max: 110", "max: -1")
    assert "1 fault\n" in refusal(tmp_path, text)


def test_a_reference_with_a_default_needs_no_variable(tmp_path: Path) -> None:
    text = GOOD.replace("${FOLDER}", "${FOLDER:-/elsewhere}")
    assert load(write(tmp_path, text), {}).config.data.source.model_dump()["path"] == "/elsewhere/records.csv"


def test_without_an_environment_given_the_process_s_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", "/here")
    assert load(write(tmp_path, GOOD)).config.data.source.model_dump()["path"] == "/here/records.csv"


def test_the_secret_of_a_reference_is_neither_stored_nor_shown(tmp_path: Path) -> None:
    text = GOOD.replace('{kind: csv, path: "${FOLDER}/records.csv"}', '{kind: sql, url: "${URL}", query: select 1}')
    loaded = load(write(tmp_path, text), {"URL": "postgresql://me:hunter2@host/db"})
    assert "hunter2" not in loaded.text + repr(loaded)
    broken = text.replace("query: select 1", "qery: select 1").replace("kind: sql", "kind: sql, path: x")
    assert "hunter2" not in refusal(tmp_path, broken, {"URL": "postgresql://me:hunter2@host/db"})
    assert "hunter2" not in refusal(tmp_path, text.replace('"${URL}"', '["${URL}"]'), {"URL": "hunter2"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"", "must hold keys and values"),
        (b"- 1\n- 2\n", "must hold keys and values"),
        (b"a: [1, 2", "line 1: is not valid YAML"),
        (b"a: \x00", "is not valid YAML"),
        (b"a: &x [*x]", "holds more than"),
        (b"x" * (MAX_BYTES + 1), "is larger than"),
        (b"a: " + b"[" * 200 + b"]" * 200, "nests deeper than"),
        (b"a: " + b"[" * 100_000, "not valid YAML"),
    ],
)
def test_what_is_no_configuration_is_refused_in_words(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        load(path, {})


def test_a_file_of_a_million_bytes_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    text = GOOD + "#" + "x" * (1_000_000 - len(GOOD) - 1)
    assert load(write(tmp_path, text), ENVIRONMENT).text == text
    assert "is larger than 1000000 bytes" in refusal(tmp_path, text + "x")


def test_a_missing_key_is_told_with_the_line_of_the_section_that_lacks_it(tmp_path: Path) -> None:
    assert "line 2: training is missing" in refusal(tmp_path, GOOD.replace("training: {learning_rate: 1}", ""))
    line = GOOD.splitlines().index("privacy:") + 1
    assert f"line {line}: privacy.units is missing" in refusal(tmp_path, GOOD.replace("  units: 50000\n", ""))


def test_a_reference_that_is_not_set_is_shown_as_it_is_written(tmp_path: Path) -> None:
    text = refusal(tmp_path, GOOD.replace("model: readmission", "model: ${NOPE}"))
    assert "model = ${NOPE} must be letters" in text


def test_of_a_key_that_is_written_twice_the_first_is_judged(tmp_path: Path) -> None:
    text = refusal(tmp_path, GOOD.replace("units: 50000", "units: 50000\n  units: many"))
    assert "1 fault\n" in text
    assert "privacy.units is written twice" in text


def test_too_few_epochs_are_told_even_where_all_else_is_wrong(tmp_path: Path) -> None:
    text = GOOD.replace("epochs: 10", "epochs: 0.01\n  max_rows_per_person: 0").replace("unit: person", "unit: ward")
    text = text.replace("population: ward", "population: '?'").replace("epsilon: 8", "epsilon: 0")
    assert "epochs = 0.01 gives 0 steps" in refusal(tmp_path, text.replace("{epsilon: 3,", "{epsilon: 0,"))


def test_what_may_hold_a_password_is_never_shown() -> None:
    assert _shown("hunter2", ("data", "source", "url")) == _shown("hunter2", ("data", "source", "query")) == ""
    assert _shown("hunter2", ("data", "url", "path")) == " = hunter2"


def test_aliases_that_multiply_are_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)
    ]
    assert "holds more than" in refusal(tmp_path, "\n".join(lines))


def test_a_missing_file_a_folder_and_an_unreadable_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(tmp_path / ("x" * 300))


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert load(path, ENVIRONMENT).config.model == "readmission"


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    assert "…" in refusal(tmp_path, GOOD.replace("model: readmission", "model: " + "x" * 500))


def test_paths_are_written_with_dots_and_indices() -> None:
    assert dotted(("data", "exclude", 0, "column")) == "data.exclude[0].column"
    assert dotted(()) == ""


def test_the_local_runtime_lives_where_the_environment_says(tmp_path: Path) -> None:
    assert load_runtime("local", {"DISCREET_HOME": "/srv/discreet"}).home == "/srv/discreet"
    assert load_runtime("local", {}).home == "~/.discreet"
    own = tmp_path / "own.yaml"
    own.write_text("home: here\nthreads: 2\n")
    assert load_runtime(str(own), {}).threads == 2


def test_an_unknown_runtime_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="known: compose, local"):
        load_runtime("lokal")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_runtime("nowhere/lokal.yaml", os.environ)


def test_a_runtime_cannot_hold_a_key_that_changes_epsilon(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    for key in (
        "epsilon",
        "delta",
        "units",
        "expected_batch",
        "epochs",
        "clipping",
        "noise_multiplier",
        "privacy",
    ):
        own.write_text(f"home: here\n{key}: 1\n")
        with pytest.raises(ConfigurationError, match=f"{key} is an unknown key"):
            load_runtime(str(own), {})


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12))
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(text=st.text(max_size=200))
def test_no_text_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "model.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    with pytest.raises(ConfigurationError):
        load(path, {})


PLACES = re.findall(r"[\w-]+(?=:)", GOOD)
VALUES = [
    "null",
    "-1",
    "0",
    "1e400",
    ".nan",
    ".inf",
    "[]",
    "{}",
    "[[1]]",
    "{a: {b: c}}",
    "''",
    "yes",
    "${X}",
    "!!python/object:os.system x",
    "2026-01-01",
    "0x1F",
    "🙂",
    '"\\0"',
    "*a",
    "&a b",
    "|",
    "- 1",
]


@given(data=st.data())
def test_no_change_of_a_right_file_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = GOOD.strip().splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "double", "value", "key", "inner"]))
        value = data.draw(st.sampled_from(VALUES) | st.text(max_size=10))
        if change == "drop":
            lines[place] = ""
        elif change == "double":
            lines.insert(place, lines[place])
        elif change == "value" and ":" in lines[place]:
            lines[place] = f"{lines[place].split(':')[0]}: {value}"
        elif change == "inner":
            lines[place] = re.sub(r"(?<=: )[\w.]+", value.replace("\\", ""), lines[place])
        else:
            lines[place] = re.sub(r"[\w]+", value.replace("\\", ""), lines[place], count=1)
    path = tmp_path_factory.mktemp("fuzz") / "model.yaml"
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    told = told_of(path)
    assert told == "" or told.startswith(f"{path}: ")


LINES_OF = {key: number for number, line in enumerate(GOOD.splitlines(), 1) for key in re.findall(r"^ *(\w+):", line)}


@pytest.mark.parametrize(
    ("section", "faults"),
    [
        (
            "    sex: {knd: category, values: [F, M], refrence: F}",
            [
                "data.features.sex.kind must be one of `number`, `category`, `icd9`",
                "data.features.sex.knd is an unknown key; did you mean `kind`?",
                "data.features.sex.refrence is an unknown key; did you mean `reference`?",
            ],
        ),
        (
            "    sex: {kind: categry, valus: [F, M]}",
            [
                "data.features.sex.kind must be one of `number`, `category`, `icd9`",
                "data.features.sex.valus is an unknown key; did you mean `values`?",
            ],
        ),
        ("    sex: [F, M]", ["data.features.sex must hold keys and values (inputs, each with"]),
    ],
)
def test_where_the_kind_is_misspelt_the_unknown_key_is_told_too(
    tmp_path: Path, section: str, faults: list[str]
) -> None:
    text = refusal(tmp_path, GOOD.replace("    sex: {kind: category, values: [F, M]}", section))
    assert f"{len(faults)} fault" in text
    for fault in faults:
        assert f"line {LINES_OF['sex']}: {fault}" in text


@pytest.mark.parametrize(
    ("old", "new", "told", "key"),
    [
        ("run: {epsilon: 3", "run: {epsilon: 9", "privacy.run.epsilon = 9 must be at most guarantee.epsilon", "run"),
        ("  person: patient\n", "", "privacy.unit = person needs data.person", "unit"),
        (
            "  person: patient\n",
            "  person: patient\n  checks:\n    max_missing: {aeg: 0.1}\n",
            "data.checks.max_missing names `aeg`",
            "max_missing",
        ),
        (
            "age: {kind: number, min: 0, max: 110}",
            "age: {kind: number, min: 0, max: 110, crossed_with: [nowhere]}",
            "data.features.age.crossed_with names `nowhere`",
            "age",
        ),
        (
            "age: {kind: number, min: 0, max: 110}",
            '"Age of Entry": {kind: number, min: 0, max: 110, crossed_with: [nowhere]}',
            "data.features.Age of Entry.crossed_with names `nowhere`",
            None,
        ),
    ],
)
def test_a_fault_between_keys_is_told_with_dots_throughout_and_the_line_of_its_key(
    tmp_path: Path, old: str, new: str, told: str, key: str | None
) -> None:
    assert old in GOOD
    changed = GOOD.replace(old, new)
    line = next(
        number
        for number, line in enumerate(changed.splitlines(), 1)
        if line.strip().startswith(key or '"Age of Entry"')
    )
    assert f"line {line}: {told}" in refusal(tmp_path, changed)


def test_every_fault_between_the_same_two_sections_is_told(tmp_path: Path) -> None:
    checks = "  checks: {max_missing: {aeg: 0.1, sexx: 0.1}, groups: {columns: [age, diagnosis], min_rows: 5}}\n"
    text = refusal(tmp_path, GOOD.replace("  person: patient\n", f"  person: patient\n{checks}"))
    assert "4 faults" in text
    assert text.count("data.checks.max_missing names") == text.count("data.checks.groups.columns names") == 2
    text = refusal(
        tmp_path,
        GOOD.replace("diagnosis: {kind: icd9}", "diagnosis: {kind: icd9, crossed_with: [nowhere, age]}").replace(
            "max: 110}", "max: 110, crossed_with: [diagnosis]}"
        ),
    )
    assert "2 faults" in text
    assert "data.features.diagnosis.crossed_with names `age`, which is crossed with it already" in text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("positive: [Yes]", 'positive: "?"', "data.label.positive = ? must be a list, such as [a, b]"),
        ("positive: [Yes]", "positive: []", "data.label.positive must hold at least 1 item (values that count"),
        ("units: 50000", 'units: "?"', "privacy.units = ? must be a whole number (public"),
        ("model: readmission", "model: [a]", "model must be text (name"),
        ("  unit: person", "  unit: ward", "privacy.unit = ward must be 'person' or 'row'"),
        ("training: {learning_rate: 1}", "training: 1", "training = 1 must hold keys and values (the optimiser)"),
        (
            "training: {learning_rate: 1}",
            "training: {learning_rate: 1, zero_last_layer: maybe}",
            "must be true or false",
        ),
        ("  person: patient", "  person: " + "p" * 201, "must have at most 200 characters"),
        ("  person: patient", "  source: 1\n  person: patient", "is written twice"),
    ],
)
def test_a_fault_is_told_in_the_words_of_yaml_and_not_of_python(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    text = refusal(tmp_path, GOOD.replace(old, new))
    assert told in text
    for word in ("tuple", "dictionary", "valid integer", "valid string", "boolean", "parse", "input"):
        assert word not in text, word


def test_control_characters_of_a_file_reach_no_terminal(tmp_path: Path) -> None:
    text = refusal(tmp_path, GOOD.replace("model: readmission", 'model: "a\\e[2J\\r\\nb"\n"\\e]0;x\\a": 1'))
    assert r"model = a\x1b[2J\r\nb must be letters" in text
    assert r"\x1b]0;x\x07 is an unknown key" in text
    assert all(line.isprintable() for line in text.splitlines())
