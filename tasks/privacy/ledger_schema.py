"""The ledger's tables, and the one place that knows which database they lie in.

`entry` is the truth: append-only (triggers refuse UPDATE and DELETE) and hash-chained. The other tables are
counters that make admission one indexed read; `ledger_replay.py` recomputes them from the entries.
Everything SQLite-specific is in this file; another database needs its own `_prepare` and `_append_only`.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from configs.errors import BudgetError, ConfigurationError, DiscreetError

SCHEMA_VERSION: Final = 1
GENESIS: Final = "0" * 64
BUSY_SECONDS: Final = 30

metadata = sa.MetaData()

schema = sa.Table("ledger_schema", metadata, sa.Column("version", sa.Integer, primary_key=True))

population = sa.Table(
    "population",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("unit", sa.String(10), nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("planned_runs", sa.Integer, nullable=False),
)

population_order = sa.Table(
    "population_order",
    metadata,
    sa.Column("population", sa.String(100), sa.ForeignKey("population.name"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("renyi_order", sa.Double, nullable=False),
    sa.Column("weight", sa.Double, nullable=False),
    sa.Column("cap_units", sa.BigInteger, nullable=False),  # 1e-12 of Rényi divergence, like the next two
    sa.Column("committed_units", sa.BigInteger, nullable=False),
    sa.Column("reserved_units", sa.BigInteger, nullable=False),
)

reservation = sa.Table(
    "reservation",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("population", sa.String(100), sa.ForeignKey("population.name"), nullable=False, index=True),
    sa.Column("idempotency_key", sa.String(200), nullable=False, unique=True),
    sa.Column("token", sa.Integer, nullable=False),  # bumped when a lease expires: fences the zombie
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("lease_seconds", sa.Double, nullable=False),
    sa.Column("lease_until", sa.Double, nullable=False),  # seconds since the epoch
    sa.Column("total_claims", sa.Integer, nullable=False),
    sa.Column("claimed", sa.Integer, nullable=False),
    sa.Column("executed", sa.Integer),
    sa.Column("units_json", sa.Text, nullable=False),  # the worst case, one integer an order
    sa.Column("payload_json", sa.Text, nullable=False),  # the mechanisms
)

entry = sa.Table(
    "entry",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("prev_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("population", sa.String(100), nullable=False, index=True),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("payload_json", sa.Text, nullable=False),
    sa.Column("actor", sa.String(200), nullable=False),
    sa.Column("at", sa.String(40), nullable=False),  # ISO 8601, UTC
)

TRIGGERS: Final = ("entry_refuses_update", "entry_refuses_delete")


def canonical(payload: Mapping[str, Any] | list[Any]) -> str:
    """JSON with one spelling for one value; NaN and infinity are refused (ValueError)."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_hash(*, prev_hash: str, seq: int, population: str, kind: str, payload: str, actor: str, at: str) -> str:
    """The chain's link: sha256 over the previous link and everything that the entry says."""
    said = canonical([prev_hash, seq, population, kind, payload, actor, at])
    return hashlib.sha256(said.encode()).hexdigest()


def open_engine(path: Path) -> sa.Engine:
    """Open the ledger's file, or create it readable by its owner only, and check that it is one of ours.

    Raises:
        ConfigurationError: the folder is not writable, the file is damaged, no ledger, or of another version.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the ledger cannot be opened for writing ({error.strerror}); "
            "let DISCREET_HOME name a folder that you may write to"
        ) from error
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    try:
        with writing(engine) as connection:
            _create_or_check(connection, path)
    except DiscreetError as error:
        engine.dispose()
        if isinstance(error, ConfigurationError) or isinstance(error.__cause__, OperationalError):
            raise  # an operational error is a busy or full disk, not a damaged file
        raise ConfigurationError(
            f"{path} is damaged or is no ledger; restore it from its backup. Never start an empty one for "
            "the same people: what was spent stays spent"
        ) from error
    return engine


def anchor_of(path: Path) -> Path:
    """The file beside the ledger that names an entry which the ledger must hold."""
    return path.with_suffix(".head")


def drop_anchor(engine: sa.Engine, head: str) -> None:
    """Name the ledger's last entry outside of it, and bring its write-ahead log into its file.

    An older copy of the ledger, or an empty one, then shows; and a copy of the one file is a whole backup.
    """
    anchor = anchor_of(Path(str(engine.url.database)))
    try:
        handle, temporary = tempfile.mkstemp(dir=anchor.parent, prefix=".head-")  # mode 0600
        with os.fdopen(handle, "w") as file:
            file.write(head)
        Path(temporary).replace(anchor)
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            raw.close()
    except (OSError, SQLAlchemyError, sqlite3.Error) as error:
        raise BudgetError(
            f"{anchor} could not be written ({type(error).__name__}); what the ledger holds is not lost"
        ) from error


def check_anchor(connection: sa.Connection, path: Path) -> None:
    """Refuse a ledger that lacks the entry which was once its last: an older copy forgets what was spent.

    Raises:
        ConfigurationError: it lacks it.
    """
    anchor = anchor_of(path)
    if not anchor.is_file():
        return
    head = anchor.read_text().strip()
    known = connection.execute(sa.select(entry.c.seq).where(entry.c.hash == head)).one_or_none()
    if known is None:
        raise ConfigurationError(
            f"{path} is older than {anchor} says: it was emptied, rewritten, or replaced by an old copy, and would "
            "forget what was spent. Restore the newest backup"
        )


@contextmanager
def writing(engine: sa.Engine) -> Generator[sa.Connection]:
    """One transaction that holds the write lock from its first statement; it commits whole or not at all.

    A deferred transaction would let two processes read the same balance: measured, 20 processes overspent.

    Raises:
        BudgetError: the database did not take the write; nothing may run that is not recorded.
    """
    try:
        with engine.connect().execution_options(discreet_write=True) as connection, connection.begin():
            yield connection
    except SQLAlchemyError as error:
        raise BudgetError(_unwritten(error)) from error


@contextmanager
def reading(engine: sa.Engine) -> Generator[sa.Connection]:
    """One consistent snapshot.

    Raises:
        BudgetError: the database cannot be read, so nothing is known to be left.
    """
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except SQLAlchemyError as error:
        raise BudgetError(_unwritten(error)) from error


def triggers_present(connection: sa.Connection) -> bool:
    """Whether the database still refuses to change or delete an entry."""
    names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars()
    return set(TRIGGERS) <= set(names)


def _unwritten(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or type(error).__name__
    return f"the ledger could not be read or written ({cause}), which counts as over budget; nothing was spent"


def _prepare(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.isolation_level = None  # transactions begin where `_begin` says
    cursor = dbapi_connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # NORMAL can lose a claim when the power fails
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("discreet_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _append_only(connection: sa.Connection) -> None:
    for name, action in zip(TRIGGERS, ("UPDATE", "DELETE"), strict=True):
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE {action} ON entry "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


def _create_or_check(connection: sa.Connection, path: Path) -> None:
    tables = set(sa.inspect(connection).get_table_names())
    if not tables:
        if anchor_of(path).is_file():
            raise ConfigurationError(
                f"{path} is missing or empty, and {anchor_of(path)} says that there was a ledger: restore it from its "
                "backup. Never start an empty one for the same people: what was spent stays spent"
            )
        metadata.create_all(connection)
        _append_only(connection)
        connection.execute(schema.insert().values(version=SCHEMA_VERSION))
        return
    if not set(metadata.tables) <= tables:
        raise ConfigurationError(f"{path} is a database of something else; let DISCREET_HOME name another folder")
    version = connection.execute(sa.select(schema.c.version)).scalar()
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path} has ledger schema {version}, and this Discreet knows {SCHEMA_VERSION}: update Discreet"
        )
    if not triggers_present(connection):
        raise ConfigurationError(
            f"{path}: the triggers that keep the ledger append-only are missing; somebody changed the "
            "database. Restore it from its backup"
        )
    check_anchor(connection, path)
