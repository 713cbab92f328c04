"""The population's secret key: it drives the split and the keyed digests, and confirms no guessed record.

The key comes from `DISCREET_POPULATION_KEY` or from a file that is created once, readable by its owner only.
Its owner backs it up; without it, a later comparison on "the same rows" is not possible.
"""

import base64
import binascii
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from configs.errors import ConfigurationError

VARIABLE: Final = "DISCREET_POPULATION_KEY"
KEY_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def checked_population(name: object) -> str:
    """Pass on a population's name that is safe as a file's name and in a log.

    Raises:
        ConfigurationError: it is not 1 to 100 letters, digits, dots, hyphens and underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"privacy.population = {name!r} must be 1 to 100 letters, digits, '.', '-' or '_', "
            "and begin with a letter or digit"
        )
    return name


def population_key(*, home: Path, population: str, environment: Mapping[str, str], create: bool = True) -> bytes:
    """The key of a population, from the environment or from `home`/keys, where it is created when missing.

    Args:
        home: `$DISCREET_HOME`.
        population: its name.
        environment: the process's environment variables.
        create: whether a missing key may be made: not for a population that has already been trained on.

    Returns:
        At least 32 bytes. Two processes that ask at once get the same.

    Raises:
        ConfigurationError: the variable or the file holds no such key, or the file cannot be written or is
            readable by others.
    """
    name = checked_population(population)
    text = environment.get(VARIABLE)
    if text is not None:
        return _decoded(text)
    path = Path(home) / "keys" / name
    try:
        if not path.exists():
            if not create:
                raise ConfigurationError(
                    f"{path}: the key of a population that the ledger knows is missing: restore it from its "
                    f"backup, or set {VARIABLE}; a new key would split the same people anew"
                )
            _create(path)
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path} is readable by others: chmod 600 it")
        key = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the population's key cannot be read or created ({error.strerror}); "
            f"make the folder writable or set {VARIABLE}"
        ) from error
    if len(key) < KEY_BYTES:
        raise ConfigurationError(
            f"{path} holds {len(key)} bytes and a key has at least {KEY_BYTES}: restore it from its backup; "
            "a new key would split the same people anew"
        )
    return key


def fingerprint(key: bytes) -> str:
    """Twelve hexadecimal digits that name a key in a log; one-way, and no use for guessing it."""
    return hashlib.blake2b(key, digest_size=6, person=b"discreet-key").hexdigest()


def _create(path: Path) -> None:
    """Write a new key beside the path and link it there: whoever links first wins, complete or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first, and its key is the population's
            path.hardlink_to(temporary)
    finally:
        Path(temporary).unlink()


def _decoded(text: str) -> bytes:
    """Read hexadecimal or base64; the text itself never reaches a message."""
    stripped = text.strip()
    for decode in (bytes.fromhex, _base64):
        try:
            key = decode(stripped)
        except (ValueError, binascii.Error):
            continue
        if len(key) >= KEY_BYTES:
            return key
    raise ConfigurationError(
        f"{VARIABLE} must be at least {KEY_BYTES} bytes in hexadecimal or base64: "
        f"python -c 'import secrets; print(secrets.token_hex({KEY_BYTES}))' makes one"
    )


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
