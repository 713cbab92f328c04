"""The ledger's file outlives the version that wrote it: its tables, its chain and its settings are fixed."""

import hashlib
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from configs.errors import ConfigurationError
from tasks.privacy import ledger_schema as db
from tasks.privacy.ledger import Ledger

# One line a table or index, as SQLite keeps it; a change needs a new SCHEMA_VERSION and a migration.
VERSION_1 = """
CREATE INDEX ix_entry_population ON entry (population)
CREATE INDEX ix_reservation_population ON reservation (population)
CREATE TABLE entry ( seq INTEGER NOT NULL, prev_hash VARCHAR(64) NOT NULL, hash VARCHAR(64) NOT NULL, \
population VARCHAR(100) NOT NULL, kind VARCHAR(40) NOT NULL, payload_json TEXT NOT NULL, \
actor VARCHAR(200) NOT NULL, at VARCHAR(40) NOT NULL, PRIMARY KEY (seq) )
CREATE TABLE ledger_schema ( version INTEGER NOT NULL, PRIMARY KEY (version) )
CREATE TABLE population ( name VARCHAR(100) NOT NULL, unit VARCHAR(10) NOT NULL, epsilon DOUBLE NOT NULL, \
delta DOUBLE NOT NULL, planned_runs INTEGER NOT NULL, PRIMARY KEY (name) )
CREATE TABLE population_order ( population VARCHAR(100) NOT NULL, position INTEGER NOT NULL, \
renyi_order DOUBLE NOT NULL, weight DOUBLE NOT NULL, cap_units BIGINT NOT NULL, committed_units BIGINT NOT NULL, \
reserved_units BIGINT NOT NULL, PRIMARY KEY (population, position), \
FOREIGN KEY(population) REFERENCES population (name) )
CREATE TABLE reservation ( id VARCHAR(32) NOT NULL, population VARCHAR(100) NOT NULL, \
idempotency_key VARCHAR(200) NOT NULL, token INTEGER NOT NULL, state VARCHAR(10) NOT NULL, \
lease_seconds DOUBLE NOT NULL, lease_until DOUBLE NOT NULL, total_claims INTEGER NOT NULL, claimed INTEGER NOT NULL, \
executed INTEGER, units_json TEXT NOT NULL, payload_json TEXT NOT NULL, PRIMARY KEY (id), \
FOREIGN KEY(population) REFERENCES population (name), UNIQUE (idempotency_key) )
"""


def test_the_tables_of_version_1_are_what_older_ledgers_hold(tmp_path: Path) -> None:
    db.open_engine(tmp_path / "ledger.db").dispose()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    found = connection.execute("SELECT sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL")
    assert sorted(" ".join(sql.split()) for (sql,) in found) == sorted(VERSION_1.strip().split("\n"))
    assert connection.execute("SELECT version FROM ledger_schema").fetchall() == [(1,)]
    connection.close()


def test_the_chain_is_sha256_over_canonical_json_from_64_zeros_on(desk: Any) -> None:
    (entry,) = desk.ledger.entries()
    said = db.canonical(entry["payload"])
    assert said.startswith('{"delta":1e-06,"epsilon":6.0,"orders":[')  # sorted, without spaces
    text = f'["{"0" * 64}",1,"patients","population_created",{db.canonical([said])[1:-1]},"officer","{entry["at"]}"]'
    assert entry["prev_hash"] == "0" * 64 == db.GENESIS
    assert entry["hash"] == hashlib.sha256(text.encode()).hexdigest()


def test_every_connection_waits_half_a_minute_syncs_every_commit_and_checks_references(tmp_path: Path) -> None:
    engine = db.open_engine(tmp_path / "ledger.db")
    with engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("busy_timeout", "journal_mode", "synchronous", "foreign_keys")
        }
    engine.dispose()
    assert found == {"busy_timeout": 30_000, "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_the_folders_above_a_new_ledger_are_made(tmp_path: Path) -> None:
    db.open_engine(tmp_path / "a" / "b" / "ledger.db").dispose()
    assert (tmp_path / "a" / "b" / "ledger.db").is_file()


def test_a_ledger_that_is_refused_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    db.open_engine(path).dispose()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE ledger_schema SET version = 2")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigurationError, match="update Discreet") as refusal:
        db.open_engine(path)
    assert not path.with_name("ledger.db-wal").exists()  # SQLite removes it when the last connection closes
    del refusal  # held until here, and with it whatever the refusal's traceback holds


def test_reading_does_not_wait_for_whoever_writes(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "BUSY_SECONDS", 0)
    with desk.open() as reader:
        writer = sqlite3.connect(desk.path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        assert reader.populations() == ["patients"]
        writer.execute("ROLLBACK")
        writer.close()


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a#b", "a&mode=ro", "ä ö"])
def test_a_folder_of_any_name_holds_its_own_ledger(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "ledger.db"
    with Ledger.open(path):
        pass
    assert path.stat().st_size > 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in tmp_path.iterdir()} == {name}
