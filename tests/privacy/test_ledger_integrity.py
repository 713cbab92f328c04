"""A ledger that was changed, damaged, or written by another version is noticed, never trusted."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import BudgetError, ConfigurationError
from tasks.privacy import ledger_schema
from tasks.privacy.events import Gaussian, SampledGaussian
from tasks.privacy.ledger import Ledger
from tasks.privacy.ledger_schema import GENESIS

RUN = (
    Gaussian(noise_multiplier=8.0),
    SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=100),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one committed, one running and one released run."""
    file = tmp_path / "ledger.db"
    with Ledger.open(file) as ledger:
        for name in ("patients", "others"):
            ledger.create_population(
                name=name,
                unit="person",
                epsilon=6.0,
                delta=1e-6,
                planned_runs=5,
                planned=RUN,
                actor="officer",
            )
        for key, claimed in (("a", 101), ("b", 50), ("c", 0)):
            held = ledger.reserve(
                population="patients", mechanisms=RUN, idempotency_key=key, actor="engineer", reason="test"
            )
            if claimed:
                ledger.claim(reservation_id=held.id, token=1, upto=claimed)
            if key == "a":
                ledger.commit(reservation_id=held.id, token=1, executed=claimed)
            if key == "c":
                ledger.abandon(reservation_id=held.id, token=1, reason="test")
    return file


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def faults(path: Path) -> tuple[str, ...]:
    with Ledger.open(path) as ledger:
        return ledger.verify().faults


def test_an_honest_ledger_has_no_faults(path: Path) -> None:
    with Ledger.open(path) as ledger:
        found = ledger.verify()
        assert found.faults == ()
        assert found.entries == len(ledger.entries()) == 9
        assert found.head == ledger.head() == ledger.entries()[-1]["hash"]
        assert ledger.entries()[0]["prev_hash"] == GENESIS


def test_an_empty_ledger_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path / "ledger.db") == ()


@pytest.mark.parametrize("statement", ["UPDATE entry SET actor = 'x'", "DELETE FROM entry WHERE seq = 9"])
def test_the_database_itself_refuses_to_change_an_entry(path: Path, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        execute(path, statement)


TRIGGER = "CREATE TRIGGER {0} BEFORE {1} ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"


def tampered(path: Path, *statements: str) -> None:
    """What somebody with the file can do: drop the triggers, change, and put them back."""
    execute(
        path,
        "DROP TRIGGER entry_refuses_update",
        "DROP TRIGGER entry_refuses_delete",
        *statements,
        TRIGGER.format("entry_refuses_update", "UPDATE"),
        TRIGGER.format("entry_refuses_delete", "DELETE"),
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET payload_json = replace(payload_json, '101', '1') WHERE seq = 4",
        "UPDATE entry SET actor = 'nobody' WHERE seq = 2",
        "UPDATE entry SET at = '2020-01-01T00:00:00+00:00' WHERE seq = 9",
        "UPDATE entry SET kind = 'gate_decision' WHERE seq = 4",
        "DELETE FROM entry WHERE seq = 4",
        "UPDATE entry SET seq = 40 WHERE seq = 4",
    ],
)
def test_a_changed_or_removed_entry_breaks_the_chain(path: Path, statement: str) -> None:
    tampered(path, statement)
    (fault,) = faults(path)
    assert "chain is broken" in fault


def test_entries_cut_off_at_the_end_disagree_with_the_anchor_and_with_the_counters(path: Path) -> None:
    tampered(path, "DELETE FROM entry WHERE seq >= 5")
    with pytest.raises(ConfigurationError, match="would forget what was spent"):
        Ledger.open(path)
    ledger_schema.anchor_of(path).unlink()
    assert any("counters differ" in fault or "differs" in fault for fault in faults(path))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE population_order SET committed_units = 0", "population patients: the counters differ"),
        ("UPDATE population_order SET reserved_units = 1 WHERE population = 'others'", "population others"),
        ("UPDATE population_order SET cap_units = cap_units + 1", "the counters differ"),
        ("UPDATE population_order SET weight = weight / 2", "the counters differ"),
        ("UPDATE population SET epsilon = 60 WHERE name = 'patients'", "population patients differs"),
        ("UPDATE population SET unit = 'row' WHERE name = 'others'", "population others differs"),
        ("UPDATE reservation SET claimed = 1 WHERE idempotency_key = 'b'", "differs from its entries"),
        ("UPDATE reservation SET token = 2 WHERE idempotency_key = 'b'", "differs from its entries"),
        ("UPDATE reservation SET state = 'released' WHERE idempotency_key = 'a'", "differs from its entries"),
        (
            "UPDATE reservation SET payload_json = '[]' WHERE idempotency_key = 'a'",
            "differs from its entries",
        ),
        ("DELETE FROM reservation WHERE idempotency_key = 'a'", "is missing"),
        ("UPDATE reservation SET id = 'x' WHERE idempotency_key = 'a'", "reservation x has no entry"),
        ("DELETE FROM population WHERE name = 'others'", "population others is missing"),
        ("UPDATE population SET name = 'x' WHERE name = 'others'", "population x has no entry"),
    ],
)
def test_a_counter_that_its_entries_do_not_add_up_to_is_a_fault(path: Path, statement: str, named: str) -> None:
    execute(path, statement)
    assert any(named in fault for fault in faults(path))


def test_an_entry_that_cannot_be_replayed_is_a_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(path) as ledger:
        ledger.record(population="patients", kind="gate_decision", payload={}, actor="gate")
        # As if the recorded kind were one that the replay must follow, with a payload that it cannot.
        entry_hash = ledger_schema.entry_hash
        head = ledger.entries()[-2]["hash"]
    ledger_schema.anchor_of(path).unlink()
    at = "2026-11-30T00:00:00+00:00"
    digest = entry_hash(
        prev_hash=head, seq=10, population="patients", kind="steps_claimed", payload="{}", actor="x", at=at
    )
    tampered(
        path,
        f"UPDATE entry SET kind = 'steps_claimed', actor = 'x', at = '{at}', hash = '{digest}' WHERE seq = 10",
    )
    assert any("cannot be replayed (KeyError)" in fault for fault in faults(path))


def test_missing_triggers_are_refused_on_opening_and_named_by_a_replay(path: Path) -> None:
    with Ledger.open(path) as ledger:
        execute(path, "DROP TRIGGER entry_refuses_delete")
        assert any("triggers" in fault for fault in ledger.verify().faults)
    with pytest.raises(ConfigurationError, match="triggers"):
        Ledger.open(path)


def test_a_ledger_of_a_newer_version_is_refused(path: Path) -> None:
    execute(path, "UPDATE ledger_schema SET version = 2")
    with pytest.raises(ConfigurationError, match=r"schema 2.*update Discreet"):
        Ledger.open(path)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    execute(tmp_path / "ledger.db", "CREATE TABLE runs (id INTEGER)")
    with pytest.raises(ConfigurationError, match="something else"):
        Ledger.open(tmp_path / "ledger.db")


def overwritten(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 500)


def corrupted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:8192] = b"\xff" * 8092  # the schema's page, behind an intact header
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [overwritten, corrupted])
def test_a_damaged_file_is_refused_and_never_replaced(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="damaged"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file" / "ledger.db", tmp_path):
        with pytest.raises(ConfigurationError, match="DISCREET_HOME"):
            Ledger.open(place)


def test_a_busy_ledger_reads_as_over_budget(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_schema, "BUSY_SECONDS", 0)
    holder = sqlite3.connect(path, isolation_level=None)
    with Ledger.open(path) as ledger:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(BudgetError, match="over budget"):
            ledger.reserve(population="patients", mechanisms=RUN, idempotency_key="d", actor="engineer", reason="test")
        with pytest.raises(BudgetError, match="locked"):
            Ledger.open(path)
        holder.execute("ROLLBACK")
    holder.close()


def test_a_table_that_is_gone_reads_as_over_budget(path: Path) -> None:
    with Ledger.open(path) as ledger:
        execute(path, "DROP TABLE population_order")
        with pytest.raises(BudgetError, match="over budget"):
            ledger.population("patients")


def test_a_ledger_with_counters_somebody_edited_still_admits_nothing_it_cannot_read(path: Path) -> None:
    execute(path, "UPDATE population_order SET committed_units = -1000000000000")
    with Ledger.open(path) as ledger, pytest.raises(BudgetError):
        ledger.reserve(population="patients", mechanisms=RUN, idempotency_key="d", actor="engineer", reason="test")


@pytest.mark.parametrize("how", ["emptied", "deleted", "an old copy"])
def test_a_ledger_that_would_forget_what_was_spent_is_refused(path: Path, tmp_path: Path, how: str) -> None:
    old = path.read_bytes()
    with Ledger.open(path) as ledger:
        ledger.create_population(
            name="third", unit="row", epsilon=6.0, delta=1e-6, planned_runs=5, planned=RUN, actor="officer"
        )
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    if how != "deleted":
        path.write_bytes(old if how == "an old copy" else b"")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"forget what was spent|what was spent stays spent"):
            Ledger.open(path)


def test_the_one_file_is_a_whole_backup_after_every_run(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "ledger.db"
    copy.parent.mkdir()
    with Ledger.open(path) as ledger:
        ledger.create_population(
            name="third", unit="row", epsilon=6.0, delta=1e-6, planned_runs=5, planned=RUN, actor="officer"
        )
        copy.write_bytes(path.read_bytes())  # without the write-ahead log, and while the ledger is open
        entries = ledger.entries()
    with Ledger.open(copy) as restored:
        assert restored.entries() == entries
        assert restored.verify().faults == ()


def test_nothing_is_spent_on_the_word_of_counters_that_were_changed(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.ensure_sound()
    tampered(path, "UPDATE population_order SET committed_units = 0")
    with Ledger.open(path) as ledger, pytest.raises(BudgetError, match=r"(?s)does not hold .* the counters differ"):
        ledger.ensure_sound()


def test_a_refusal_of_a_changed_ledger_names_the_first_five_faults(path: Path) -> None:
    execute(path, "UPDATE reservation SET id = upper(id) || 'X'")  # three that are missing, three without an entry
    with Ledger.open(path) as ledger:
        faults = ledger.verify().faults
        assert len(faults) > 5
        with pytest.raises(BudgetError) as refusal:
            ledger.ensure_sound()
    assert str(refusal.value).splitlines()[1:] == [f"  - {fault}" for fault in faults[:5]]


def test_a_closed_ledger_has_let_go_of_its_file(path: Path) -> None:
    log = path.with_name("ledger.db-wal")
    with Ledger.open(path) as ledger:
        ledger.head()
        assert log.exists()
    assert not log.exists()  # SQLite removes it when the last connection closes


def test_an_anchor_that_cannot_be_written_is_told_and_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> tuple[int, str]:
        raise OSError("no space")

    with Ledger.open(path) as ledger:
        monkeypatch.setattr(ledger_schema.tempfile, "mkstemp", full)
        with pytest.raises(BudgetError, match="is not lost"):
            ledger.record(population="patients", kind="alias_moved", payload={"to": "1"}, actor="officer")
        assert ledger.entries("patients")[-1]["kind"] == "alias_moved"
