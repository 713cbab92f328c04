"""A string planted in a record, or in a secret, is found nowhere afterwards: on a good run, a failed one, a killed one.

Searched is everything that a run can write: its home (Prefect's database, storage and logs, MLflow's database and
artifacts, the model, reports, work folders, the ledger), the user's home, the folder for temporary files, the working
directory, and what it prints.
"""

import gzip
import io
import os
import signal
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tasks.data import simulate

pytestmark = pytest.mark.orchestration
ROOT = Path(__file__).parents[2]
MARKS = (b"zebra", b"139.77131")

RUN = """
import os, sys
from pathlib import Path
from flows import environment
environment.embedded(Path(os.environ["DISCREET_HOME"]))
import pandas as pd
from configs.errors import DiscreetError
from flows import retraining, server
server.boot().join()  # bound to this process: an embedded server that outlives a kill would hold its output open
from tasks import fitting
from tasks.privacy.ledger import Ledger
fit, claim, seen = fitting.fit, Ledger.claim, []

def fails(run, plan, rows, *_):
    error = ValueError("could not convert zebra@example.org")
    error.frame = pd.read_parquet(run.work / "records.parquet")
    raise error

def killed(self, **arguments):
    claim(self, **arguments)
    seen.append(arguments)
    if len(seen) == 6:
        os.kill(os.getpid(), 9)

for argument in sys.argv[1:]:
    how, path = argument.split(":", 1)
    fitting.fit = fails if how == "fault" else fit
    Ledger.claim = killed if how == "kill" else claim
    try:
        print(how, retraining.retrain(config_path=path, reason="planted").verdict)
    except DiscreetError as error:
        print(how, type(error).__name__, error)
"""


def places_of(marks: tuple[bytes, ...], folders: list[Path]) -> list[str]:
    """Every file under the folders that holds a mark, also within archives, text in UTF-16, or a database's rows."""
    found = []
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file() and any(_holds(marks, content) for content in _contents(file)):
                found.append(str(file))
    return sorted(found)


def _holds(marks: tuple[bytes, ...], content: bytes) -> bool:
    low = content.lower()
    return any(mark in low or mark.decode().encode("utf-16-le") in low for mark in marks)


def _contents(file: Path) -> list[bytes]:
    content = file.read_bytes()
    found = [file.name.encode(), content]
    if content.startswith(b"\x1f\x8b"):
        found.append(gzip.decompress(content))
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found += [archive.read(name) for name in archive.namelist()]
    if content.startswith(b"SQLite format 3"):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            found += ["\n".join(database.iterdump()).encode()]
    if content.startswith(b"PAR1"):
        found.append(pd.read_parquet(file).to_csv().encode())
    return found


@pytest.mark.parametrize("way", ["text", "name", "utf-16", "gzip", "zip", "sqlite", "parquet"])
def test_the_search_itself_finds_what_is_there(tmp_path: Path, way: str) -> None:
    assert places_of(MARKS, [tmp_path]) == []
    file = tmp_path / ("Zebra.txt" if way == "name" else "file")
    if way in {"text", "name", "utf-16"}:
        text = "" if way == "name" else "a ZEBRA here"
        file.write_bytes(text.encode("utf-16-le" if way == "utf-16" else "utf-8"))
    elif way == "gzip":
        file.write_bytes(gzip.compress(b"a zebra here" * 50))
    elif way == "zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner", "a zebra here" * 50)
    elif way == "sqlite":
        with sqlite3.connect(file) as database:
            database.execute("create table t (x)")
            database.execute("insert into t values ('a zebra')")
    else:
        pd.DataFrame({"x": ["a zebra"] * 1000}).to_parquet(file)
    assert places_of(MARKS, [tmp_path]) == [str(file)]


class Hospital:
    """Records with planted rows, outside of everything that is searched, and the folders a run may write to."""

    def __init__(self, folder: Path, small: Callable[..., Path]) -> None:
        self.records, self.secret = folder / "source", folder / "zebra-database"
        self.records.mkdir()
        self.secret.mkdir()
        self.places = [folder / name for name in ("home", "user", "temporary", "cwd")]
        for place in self.places:
            place.mkdir()
        frame = simulate.discharges(rows=6000, seed=1).astype("str")
        rows = frame.index[frame["patient_id"] == frame["patient_id"].iloc[0]]
        frame.loc[rows, "patient_id"] = "zebra-person"
        frame.loc[rows, "encounter_id"] = [f"zebra-encounter-{row}" for row in rows]
        frame.loc[rows, ["sex", "diagnosis_1", "discharge_to", "creatinine"]] = "zebra@example.org"
        frame.loc[rows, "sodium"] = "139.77131"
        frame.to_csv(self.records / "records.csv", index=False)
        with sqlite3.connect(self.secret / "records.db") as database:
            frame.to_sql("discharges", database, index=False)
        source = "{kind: simulated, rows: 6000, seed: 20260101}"
        by_file = {source: '{kind: csv, path: "${RECORDS}"}'}
        self.csv = small(by_file, name="csv.yaml")
        self.strict = small(by_file | {"label_rate: {": "max_outside: 0\n    label_rate: {"}, name="strict.yaml")
        query = '{kind: sql, url: "${DATABASE}", query: select * from discharges}'
        self.sql = small({source: query}, name="sql.yaml")
        self.unreachable = small({source: query.replace("DATABASE", "UNREACHABLE")}, name="unreachable.yaml")

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run flows in a process of its own: exit code, and all that it printed."""
        home, user, temporary, cwd = self.places
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DISCREET_HOME": str(home),
            "HOME": str(user),
            "TMPDIR": str(temporary),
            "PREFECT_LOGGING_LEVEL": "DEBUG",  # the most talkative
            "RECORDS": str(self.records / "records.csv"),
            "DATABASE": f"sqlite:///{self.secret}/records.db",
            "UNREACHABLE": "postgresql+psycopg://zebra:zebra-password@127.0.0.1:9/none",
        }
        output = self.records / "output"  # no pipe, which whatever outlives the process would hold open
        with output.open("wb") as file:
            command = [sys.executable, "-c", RUN, *arguments]
            done = subprocess.run(command, cwd=cwd, env=environment, stdout=file, stderr=subprocess.STDOUT)
        return done.returncode, output.read_text()


def test_what_is_planted_in_records_and_secrets_is_found_nowhere_afterwards(
    tmp_path: Path, small: Callable[..., Path]
) -> None:
    hospital = Hospital(tmp_path, small)
    code, killed = hospital.run(f"kill:{hospital.csv}")
    assert code == -signal.SIGKILL, killed[-2000:]
    left = places_of(MARKS, hospital.places)
    assert left, "a killed run leaves its records in the work folder until the next start"
    assert all("/home/work/" in place for place in left)
    code, printed = hospital.run(
        f"validation:{hospital.strict}",
        f"secret:{hospital.unreachable}",
        f"fault:{hospital.csv}",
        f"good:{hospital.sql}",
    )
    assert code == 0, printed[-2000:]
    assert "validation DataError" in printed
    assert "secret DataError" in printed
    assert "fault InternalError" in printed
    assert "good promoted" in printed
    told = [line for line in (killed + printed).splitlines() if any(mark.decode() in line.lower() for mark in MARKS)]
    assert told == []
    assert places_of(MARKS, hospital.places) == []
    stored = {file.name for place in hospital.places for file in place.rglob("*") if file.is_file()}
    assert {"ledger.db", "mlflow.db", "prefect.db", "card.html", "weights.safetensors"} <= stored
