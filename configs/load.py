"""From a YAML file to a frozen configuration, or to one error that lists every fault of the file.

Scalars stay the text they are written as (`configs.yaml_text`) and pydantic reads them by the type that the schema
asks for, so `No`, `01` and `[70-80)` in a code book stay text and `1e-6` is a number.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from configs.errors import ConfigurationError
from configs.faults import faults_of
from configs.runtime_schema import Runtime
from configs.schema import Config
from configs.yaml_text import read_text

MAX_BYTES = 1_000_000
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration, and the file it came from.

    Attributes:
        config: the validated configuration.
        path: the file.
        text: the file as written, with environment references unresolved, so that it holds no secret of theirs.
        digest: sha256 of `text`, hex.
    """

    config: Config
    path: Path
    text: str
    digest: str


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read one model's configuration.

    Args:
        path: the YAML file.
        environment: what `${NAME}` refers to; the process's environment when None.

    Raises:
        ConfigurationError: the file cannot be read or is wrong; the message lists every fault with its line.
    """
    text = _read_text(Path(path))
    config = _parse(str(path), text, Config, os.environ if environment is None else environment)
    return Loaded(config=config, path=Path(path), text=text, digest=hashlib.sha256(text.encode()).hexdigest())


def load_runtime(name: str, environment: Mapping[str, str] | None = None) -> Runtime:
    """Read where things run: a name in `configs/runtime/`, or a path that ends in `.yaml`.

    Raises:
        ConfigurationError: there is no such runtime, or its file is wrong.
    """
    folder = Path(__file__).parent / "runtime"
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file() and path.parent == folder:
        known = ", ".join(sorted(found.stem for found in folder.glob("*.yaml")))
        raise ConfigurationError(f"runtime = {name!r} does not exist; known: {known}, or the path of a .yaml file")
    return _parse(str(path), _read_text(path), Runtime, os.environ if environment is None else environment)


def _read_text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ConfigurationError(f"{path}: is a device or a pipe, not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a folder, not a file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) > MAX_BYTES:
        raise ConfigurationError(f"{path}: is larger than {MAX_BYTES} bytes, which no configuration is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def _parse(source: str, text: str, model: type[_Model], environment: Mapping[str, str]) -> _Model:
    raw, lines, faults = read_text(source=source, text=text, environment=environment)
    sections: dict[int, type[BaseModel]] = {}
    try:
        parsed = model.model_validate(raw, context=sections)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            faults += faults_of(item, raw=raw, sections=sections, lines=lines)
        raise ConfigurationError.of(source, faults) from None
    if faults:
        raise ConfigurationError.of(source, faults)
    return parsed
