"""A file that appears whole or not at all, and in nobody's place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.errors import UsageError


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Somewhere to write what shall lie at `path` once the body has ended without an error.

    It is written beside its place and linked there, which fails where something lies already: neither a file that
    was there nor one that somebody made meanwhile is replaced.

    Raises:
        UsageError: something lies there, or the folder cannot be written to.
    """
    if os.path.lexists(path):
        raise UsageError(f"{path} exists; name another file, or remove it first")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        _placed(part, path)
    except FileExistsError:
        raise UsageError(f"{path} exists; name another file, or remove it first") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from None
    finally:
        part.unlink(missing_ok=True)


def _placed(part: Path, path: Path) -> None:
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: take the place first, and then fill it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        part.replace(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
