"""YAML 1.2 as text: mappings, lists and the scalars as they are written, with the line of each.

ruamel.yaml composes the nodes; nothing constructs values from them, so no tag can build an object and no code of a
code book turns into a number.
"""

# pyright: basic
# ruamel.yaml has no types

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from configs.errors import ConfigurationError

MAX_NODES = 100_000
MAX_DEPTH = 50
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NULLS = {"", "~", "null", "Null", "NULL"}

Path = tuple[str | int, ...]


def read_text(
    *, source: str, text: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], dict[Path, int], list[str]]:
    """Read a YAML mapping.

    Args:
        source: the file's name, for errors.
        text: its content.
        environment: what `${NAME}` and `${NAME:-default}` refer to.

    Returns:
        The mapping with text or None for scalars; the line of each path; the faults found so far.

    Raises:
        ConfigurationError: the text is no YAML mapping, is too large or too deep.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ConfigurationError.of(source, [f"{where}is not valid YAML: {error.problem or error.context}"]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError.of(source, [f"is not valid YAML ({type(error).__name__})"]) from None
    if not isinstance(node, MappingNode):
        raise ConfigurationError.of(source, ["must hold keys and values, such as `model: readmission`"])
    reader = _Reader(environment)
    try:
        raw = reader.value(node)
    except (ConfigurationError, RecursionError) as error:
        raise ConfigurationError.of(source, [str(error) or "nests too deeply"]) from None
    return raw, reader.lines, reader.faults


def dotted(path: Path) -> str:
    """`("data", "exclude", 0, "column")` as `data.exclude[0].column`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Reader:
    """Turns composed nodes into plain values, remembering the line of each and collecting faults."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.lines: dict[Path, int] = {}
        self.faults: list[str] = []
        self.nodes = 0

    def value(self, node: Node, path: Path = ()) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise ConfigurationError(f"holds more than {MAX_NODES} values or nests deeper than {MAX_DEPTH}")
        line: int = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path, line)
        if isinstance(node, SequenceNode):
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        assert isinstance(node, MappingNode)
        return self._mapping(node, path)

    def _scalar(self, node: ScalarNode, path: Path, line: int) -> str | None:
        text: str = node.value
        if node.style is None and text in _NULLS:
            return None

        def resolve(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            found = self.environment.get(name) or default
            if found is None:
                self.faults.append(
                    f"line {line}: {dotted(path)} refers to ${{{name}}}, an environment variable that is not set; "
                    f"set it (export {name}=…) or write a default as ${{{name}:-…}}"
                )
                return match.group(0)
            return found

        return _REFERENCE.sub(resolve, text)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line: int = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self.faults.append(f"line {line}: a key of {dotted(path) or 'the file'} must be a word")
                continue
            key: str = key_node.value
            if key in result:
                self.faults.append(f"line {line}: {dotted((*path, key))} is written twice; keep one")
                continue
            result[key] = self.value(value_node, (*path, key))
            self.lines[(*path, key)] = line
        return result
