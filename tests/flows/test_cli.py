"""The command line: the right exit code, an error in words, and nothing spent or half-written on bad input."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tasks.data import simulate

ROOT = Path(__file__).parents[2]
Small = Callable[..., Path]


def test_check_prints_the_plan_and_reads_no_record(home: Path, small: Small, discreet: Any) -> None:
    path = small({"{kind: simulated, rows: 6000, seed: 20260101}": "{kind: csv, path: /there/is/no/such/file.csv}"})
    code, out, _ = discreet("check", str(path))
    assert code == 0
    for words in (
        "q = 0.2",
        "20 steps",
        "δ = 1e-05",
        "a person, added or removed",
        "such runs; the last on",
        "20.0000 left",
    ):
        assert words in out, words
    assert not home.exists()
    table = out
    code, out, _ = discreet("check", str(path), "--json")
    found = json.loads(out)
    assert found["epsilon"] <= 8 < found["rdp_epsilon"] + 8
    assert found["runs_that_fit"] >= 3
    assert f"{found['runs_that_fit']} such runs" in table
    assert found["last_run"] > "2026"


def test_check_by_row_states_what_a_person_gets(home: Path, small: Small, discreet: Any) -> None:
    found = json.loads(discreet("check", str(small({"unit: person": "unit: row"})), "--json")[1])
    assert found["person_epsilon"] > found["epsilon"]


def test_check_of_a_run_that_cannot_fit_ends_in_the_code_of_the_budget(home: Path, small: Small, discreet: Any) -> None:
    path = small({"epsilon: 20.0, delta: 1e-5, planned_runs: 3": "epsilon: 8.0, delta: 1e-5, planned_runs: 1000"})
    code, out, err = discreet("check", str(path))
    assert code == 30
    assert "0 such runs" in out
    assert "not one such run fits" in err


def test_faults_of_a_configuration_end_in_10_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("model: x\nprivcy: 1\n")
    code = f"""
import sys
sys.argv = ["discreet", "run", {str(path)!r}]
from flows import cli
try:
    cli.main()
except SystemExit as leave:
    print(leave.code, "torch" in sys.modules, "prefect" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout.split() == ["10", "False", "False"]
    assert "privcy is an unknown key" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [["run"], ["nonsense"], ["run", "a", "b"], ["simulate", "x.csv", "--rows", "0"], ["simulate", "x.txt"], ["ledger"]],
)
def test_a_wrong_command_line_ends_in_2(home: Path, discreet: Any, command: list[str]) -> None:
    code, _, err = discreet(*command)
    assert code == 2
    assert "Traceback" not in err


def test_errors_come_as_json_where_json_is_asked_for(home: Path, tmp_path: Path, discreet: Any) -> None:
    code, out, _ = discreet("run", str(tmp_path / "none.yaml"), "--json")
    assert json.loads(out) == {
        "error": "ConfigurationError",
        "message": f"{tmp_path / 'none.yaml'}: there is no such file",
        "exit_code": 10,
    }
    assert code == 10


def test_init_asks_for_every_bound_and_the_draft_is_refused_until_it_is_answered(
    home: Path, tmp_path: Path, discreet: Any
) -> None:
    records = tmp_path / "records.csv"
    records.write_text("patient,age,sex,back\np1,17,F,yes\np2,93,M,no\n")
    dictionary = tmp_path / "dictionary.csv"
    dictionary.write_text(
        "column,kind,min,max,values,meaning\npatient,person,,,,who\nage,number,0,110,,years\nsex,category,,,F|M,sex\nback,label,,,,readmitted\n"
    )
    draft = tmp_path / "draft.yaml"
    code, _, err = discreet("init", str(records), "--dictionary", str(dictionary), "--output", str(draft))
    assert (code, draft.exists()) == (0, True)
    assert "open questions" in err
    text = draft.read_text()
    assert "110" in text
    assert not re.search(r"\b(17|93|p1|p2)\b", text), "a bound or a value was read off the records"
    code, _, err = discreet("check", str(draft))
    assert code == 10
    assert '"?"' in text
    code, _, err = discreet("init", str(records), "--output", str(draft))
    assert code == 2
    assert "exists" in err
    assert discreet("init", str(records))[1].count("?") > 4


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_simulate_replaces_no_file_and_leaves_no_half_of_one(
    home: Path, tmp_path: Path, discreet: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    path.write_text("mine")
    code, _, err = discreet("simulate", str(path), "--rows", "5")
    assert (code, path.read_text()) == (2, "mine")
    assert "exists; name another file, or remove it first" in err
    path.unlink()

    def half_way(frame: Any, part: Path, **_: object) -> None:
        Path(part).write_text("encounter_id,")
        raise OSError(28, "No space left on device")

    for writer in ("to_csv", "to_parquet"):
        monkeypatch.setattr(pd.DataFrame, writer, half_way)
    code, _, err = discreet("simulate", str(path), "--rows", "5")
    assert code == 2
    assert "cannot be written: No space left on device" in err
    assert list(path.parent.iterdir()) == []


def test_simulate_writes_what_the_simulated_source_reads(home: Path, tmp_path: Path, discreet: Any) -> None:
    for name in ("out.csv", "out.parquet"):
        code, _, err = discreet("simulate", str(tmp_path / name), "--rows", "50", "--seed", "3")
        assert code == 0
        assert "nobody's records" in err
        assert (tmp_path / name).stat().st_size > 1000
    code, _, err = discreet("simulate", str(tmp_path / "no" / "out.csv"), "--rows", "5")
    assert code == 2


def test_ledger_show_without_a_ledger_says_so(home: Path, discreet: Any) -> None:
    code, _, err = discreet("ledger", "show")
    assert code == 10
    assert "there is no ledger yet" in err


def test_what_a_file_names_gives_no_orders_to_the_terminal(home: Path, tmp_path: Path, discreet: Any) -> None:
    code, _, err = discreet("check", str(tmp_path / "a\x1b[2Jb\x9b.yaml"))
    assert code == 10
    assert r"a\x1b[2Jb\x9b.yaml: there is no such file" in err
    assert all(line.isprintable() for line in err.splitlines())


GOOD = simulate.discharges(rows=3000, seed=5)


def _csv(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "records.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _good() -> str:
    return GOOD.to_csv(index=False)


def _edited(column: str, value: str, rows: slice = slice(0, 1)) -> str:
    frame = GOOD.copy()
    frame.loc[frame.index[rows], column] = value
    return frame.to_csv(index=False)


BAD: dict[str, Callable[[], str | bytes]] = {
    "missing columns": lambda: GOOD.drop(columns=["age", "opioid"]).to_csv(index=False),
    "wrong types": lambda: _edited("age", "old", slice(0, 2000)),
    "mixed encodings": lambda: _good().encode() + "E1,P1,44,männlich\n".encode("latin-1"),
    "semicolons": lambda: GOOD.to_csv(index=False, sep=";"),
    "duplicate header": lambda: _good().replace("sex,ethnicity", "age,ethnicity", 1),
    "empty file": lambda: "",
    "header only": lambda: _good().splitlines()[0] + "\n",
    "one row": lambda: "\n".join(_good().splitlines()[:2]) + "\n",
    "ragged": lambda: _good() + "E9,P9,1\n",
    "unbalanced quote": lambda: _good() + '"E9,P9\n',
    "all labels equal": lambda: _edited("readmitted", "no", slice(None)),
    "unknown label": lambda: _edited("readmitted", "perhaps"),
    "a person with 10,000 rows": lambda: _edited("patient_id", "P1", slice(0, 2000)),
    "no person": lambda: _edited("patient_id", ""),
    "mostly NaN": lambda: _edited("age", "NaN", slice(0, 2000)),
    "mostly 1e30": lambda: _edited("age", "1e30", slice(0, 2000)),
    "a category never seen": lambda: _edited("sex", "jane.roe@example.org", slice(0, 2000)),
    "a cell of 100 MB": lambda: _edited("sex", "jane.roe" * 12_500_000),
    "NUL bytes": lambda: _good() + "E9\0\n",
    "binary": lambda: bytes(range(256)) * 40,
}


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize("case", BAD)
def test_bad_records_end_in_20_with_words_and_nothing_spent(
    home: Path, small: Small, tmp_path: Path, discreet: Any, case: str
) -> None:
    records = _csv(tmp_path, BAD[case]())
    path = small({"{kind: simulated, rows: 6000, seed: 20260101}": f"{{kind: csv, path: {records}}}"})
    code, out, err = discreet("run", str(path))
    assert code == 20, err
    assert "DataError" in err
    assert "Traceback" not in out + err
    assert "jane.roe" not in out + err
    assert not (home / "ledger.db").exists()
    assert not (home / "mlflow.db").exists()
    assert not list((home / "work").glob("*/"))


HANDLED: dict[str, Callable[[], str | bytes]] = {
    "byte-order mark": lambda: b"\xef\xbb\xbf" + _good().encode(),
    "quotes and newlines in cells": lambda: _edited("ethnicity", 'wh"i\nte'),
    "Windows line ends": lambda: _good().replace("\n", "\r\n"),
    "a few NaN and 1e30": lambda: _edited("sodium", "1e30", slice(0, 20)).replace(",141,", ",NaN,", 3),
    "a category never seen, once": lambda: _edited("sex", "unheard-of"),
}


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize("case", HANDLED)
def test_odd_records_that_mean_something_are_ingested_and_validated(
    home: Path, small: Small, tmp_path: Path, case: str
) -> None:
    from tasks.ingest import ingest
    from tasks.opening import opened
    from tasks.validate import validate

    records = _csv(tmp_path, HANDLED[case]())
    path = small({"{kind: simulated, rows: 6000, seed: 20260101}": f"{{kind: csv, path: {records}}}"})
    with opened(str(path), runtime="local", reason="test", rehearsal=False) as run:
        found = ingest.fn(run)
        assert validate.fn(run, found).passed
        assert found.about == "about 3,000"


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
def test_the_command_line_tells_the_verdict_by_table_json_and_exit_code(
    home: Path, small: Small, tmp_path: Path, discreet: Any
) -> None:
    archive = tmp_path / "records.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inner/records.csv", simulate.discharges(rows=6000, seed=1).to_csv(index=False))
    source = f"{{kind: csv, path: {archive}, member: inner/records.csv}}"
    changes = {"{kind: simulated, rows: 6000, seed: 20260101}": source}
    code, out, err = discreet("run", str(small(changes)), "--reason", "monthly")
    assert code == 0, err
    for words in (
        "Promoted",
        "ε = ",
        "δ = 1e-05",
        "test AUC",
        "not covered by ε",
        "mlflow ui",
        "min_auc",
        "/artifacts/card.html",
    ):
        assert words in out, words
    assert "training" in err or "20 steps by" in err
    code, out, err = discreet("run", str(small({**changes, "min_auc: 0.50": "min_auc: 0.99"}, "strict.yaml")), "--json")
    found = json.loads(out)
    assert code == 40
    assert {"verdict", "reasons", "run_id", "model_version", "metrics"} <= found.keys()
    assert found["verdict"] == "blocked"
    assert found["metrics"]["privacy/delta"] == 1e-5
    assert found["run_id"] in found["card"]
    assert "Blocked" in Path(found["card"]).read_text()
    assert any("0.99" in reason["words"] for reason in found["reasons"])
    code, out, _ = discreet("ledger", "show", "simulated-discharges")
    assert "monthly" in out
    assert "2 committed" in out
    code, out, _ = discreet("ledger", "show", "--json")
    assert json.loads(out)["simulated-discharges"][0]["runs"]["committed"] == 2
    assert discreet("ledger", "show", "nobody")[0] == 2


@pytest.mark.orchestration
@pytest.mark.usefixtures("prefect_api")
def test_words_in_brackets_break_no_screen(
    home: Path, small: Small, discreet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = discreet("run", str(small(name="[red]x[foo].yaml")), "--reason", "[/foo] monthly")
    assert code == 0, err
    assert "[/foo] monthly" in discreet("ledger", "show")[1]
    monkeypatch.chdir(tmp_path)  # the title of a panel is one line
    assert "[red]x[foo].yaml is valid" in discreet("check", "[red]x[foo].yaml")[1]


ORPHAN = """
import os, signal, sys, threading, time
from pathlib import Path
from flows import environment, server
environment.embedded(Path(sys.argv[1]))
thread = server.boot()
thread.join()
from prefect.server.api.server import SubprocessASGIServer
print(SubprocessASGIServer().server_process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.orchestration
def test_the_embedded_server_does_not_outlive_a_killed_run(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    killed = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    output, _ = killed.communicate()  # returns only when nobody holds the pipe any more
    assert killed.returncode == -signal.SIGKILL
    try:
        server = os.pidfd_open(int(output))
    except ProcessLookupError:
        return
    assert select.select([server], [], [], 60)[0], "the server lives on a minute later"


def test_what_is_installed_is_the_command_discreet() -> None:
    command = Path(sys.executable).parent / "discreet"
    result = subprocess.run(
        [str(command), "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}
    )
    assert result.returncode == 0
    for name in ("check", "init", "simulate", "rehearse", "run", "ledger"):
        assert re.search(rf"\b{name}\b", result.stdout), name
