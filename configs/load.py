"""From a YAML file to a frozen configuration, or to one error that lists every fault of the file.

Scalars stay the text they are written as (`configs.yaml_text`) and pydantic reads them by the type that the schema
asks for, so `No`, `01` and `[70-80)` in a code book stay text and `1e-6` is a number.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from configs.errors import ConfigurationError
from configs.runtime_schema import Runtime
from configs.schema import Config
from configs.yaml_text import dotted, read_text

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
        faults += [_fault(item, raw, sections, lines) for item in error.errors(include_url=False)]
        raise ConfigurationError.of(source, faults) from None
    if faults:
        raise ConfigurationError.of(source, faults)
    return parsed


def _fault(
    item: ErrorDetails,
    raw: Any,
    sections: Mapping[int, type[BaseModel]],
    lines: Mapping[tuple[str | int, ...], int],
) -> str:
    path, holders = _walk(item["loc"], raw)
    key, kind = dotted(path), item["type"]
    line = next((lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in lines), 1)
    section, field, present = _owner(path, holders, sections)
    if kind == "extra_forbidden":
        known = set(section.model_fields) if section is not None else set[str]()
        close = difflib.get_close_matches(str(path[-1]), sorted(known - present), n=1, cutoff=0.5)
        mend = f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(sorted(known))}"
        return f"line {line}: {key} is an unknown key; {mend}"
    description = (
        section.model_fields[field].description if section is not None and field in section.model_fields else None
    )
    about = f" ({description})" if description else ""
    if kind == "missing":
        return f"line {line}: {key} is missing{about}"
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        expected = str(item.get("ctx", {}).get("expected_tags", ""))
        return f"line {line}: {key}.kind must be {'one of ' + expected if expected else 'given'}{about}".replace(
            "'", "`"
        )
    return f"line {line}: {key}{_shown(item['input'], path)} {_words(item['msg'])}{about}"


def _words(message: str) -> str:
    message = message.removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    message = re.sub(r", unable to parse string as (an? )?\w+", "", message)
    return message.replace("input should be", "must be").replace(
        "must be a valid dictionary", "must hold keys and values"
    )


def _owner(
    path: tuple[str | int, ...], holders: list[Any], sections: Mapping[int, type[BaseModel]]
) -> tuple[type[BaseModel] | None, str, set[str]]:
    """The innermost section on the path, its field that the path goes through, and the keys that it was given."""
    for part, holder in zip(reversed(path), reversed(holders), strict=True):
        if id(holder) in sections:
            return sections[id(holder)], str(part), set(holder)
    return None, "", set()


def _walk(location: tuple[str | int, ...], raw: Any) -> tuple[tuple[str | int, ...], list[Any]]:
    """The path in the file for pydantic's location, which also names kinds; and what holds each part of it."""
    path: list[str | int] = []
    holders: list[Any] = []
    current: Any = raw
    for part in location:
        inside = _mapping(current)
        if part == "[key]" or (inside is not None and part not in inside and inside.get("kind") == part):
            continue
        path.append(part)
        holders.append(current)
        try:
            current = current[part]
        except (KeyError, IndexError, TypeError):
            current = None
    return tuple(path), holders


def _mapping(value: Any) -> dict[object, object] | None:
    return cast("dict[object, object]", value) if isinstance(value, dict) else None


def _shown(value: Any, path: tuple[str | int, ...]) -> str:
    if isinstance(value, (dict, list, tuple, BaseModel)) or path[-1:] in {("url",), ("query",)}:
        return ""
    text = "null" if value is None else str(value)
    return f" = {text if len(text) <= 60 else text[:57] + '…'}"
