"""A run's own folder for records: private, locked while its owner lives, gone afterwards.

`$DISCREET_HOME/work/<run id>` has mode 0700 whatever the umask. Its owner holds an exclusive `flock` on
`<run id>.lock` beside it; the kernel drops that lock when the process dies, also by kill -9, so `sweep` at
the next start can tell a folder in use from one whose owner is gone. A lock file lies outside the folder it
guards, so that removing the folder never frees it half-way.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from configs.errors import DataError, InternalError

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@contextmanager
def work_folder(home: str | Path, run_id: str) -> Iterator[Path]:
    """Open a run's folder and remove it at the end, however the body ends.

    Args:
        home: `$DISCREET_HOME`.
        run_id: names the folder; letters, digits, `.`, `_` and `-`.

    Yields:
        The empty folder, mode 0700.

    Raises:
        DataError: the folder cannot be made, or is in use by a running process.
    """
    if not _RUN_ID.fullmatch(run_id) or run_id.endswith(".lock"):
        raise InternalError("a run id holds letters, digits, '.', '_' and '-' only, and does not end in .lock")
    work = Path(home) / "work"
    try:
        _private(work)
        lock = _locked(work / f"{run_id}.lock")
        if lock is None:
            raise DataError(f"{work / run_id} is in use by another running process; give the run an id of its own")
        folder = work / run_id
        try:
            _remove(folder)
            _private(folder)
        except OSError:
            _released(work / f"{run_id}.lock", lock)
            raise
    except OSError as error:
        raise DataError(
            f"{work}: the run's folder cannot be made ({type(error).__name__}); check DISCREET_HOME"
        ) from None
    try:
        yield folder
    finally:
        try:
            _remove(folder)
        finally:
            _released(work / f"{run_id}.lock", lock)


def sweep(home: str | Path) -> list[str]:
    """Remove the folders whose owners died, and leave those in use.

    Returns:
        Run ids of the removed folders, sorted.
    """
    work = Path(home) / "work"
    if not work.is_dir():
        return []
    entries = {path.name.removesuffix(".lock") for path in work.iterdir()}
    swept = []
    for run_id in sorted(entries):
        lock = _locked(work / f"{run_id}.lock")
        if lock is None:
            continue
        try:
            if (work / run_id).exists():
                _remove(work / run_id)
                swept.append(run_id)
        finally:
            _released(work / f"{run_id}.lock", lock)
    return swept


def write_frame(frame: pd.DataFrame, path: Path) -> Path:
    """Write a text frame as Parquet with mode 0600; the index is not kept."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, 0o600)
        arrow_parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), stream, compression="zstd")
    return path


def read_frame(path: Path, *, columns: list[str] | None = None) -> pd.DataFrame:
    """Read back what `write_frame` wrote: the same columns, texts and missing cells."""
    return arrow_parquet.read_table(path, columns=columns).to_pandas()


def _private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)  # the umask may have taken bits away, and an older folder may have too many


def _locked(path: Path) -> int | None:
    """An exclusive lock on the file at `path`, or None where a living process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # Between open and flock the former owner may have deleted the file: a lock on it would guard nothing.
        with suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        os.close(descriptor)


def _released(path: Path, descriptor: int) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
