"""A fault of a configuration in words: line, key, value, bound and mend, from what pydantic found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from configs.section import Faults
from configs.yaml_text import dotted

_Path = tuple[str | int, ...]
_PLAIN = (  # pydantic's words, and those of somebody who writes YAML
    (r", unable to (parse string as an? \w+|interpret input)", ""),
    (r"^input should be a valid dictionary.*", "must hold keys and values"),
    (r"^input should be a valid tuple", "must be a list, such as [a, b]"),
    (r"^input should be a valid integer", "must be a whole number"),
    (r"^input should be a valid boolean", "must be true or false"),
    (r"^input should be a valid string", "must be text"),
    (r"^(tuple|dictionary) should have (at (?:least|most) \d+ items?) after validation, not .*", r"must hold \2"),
    (r"^(input|string) should ", "must "),
)


def faults_of(
    item: ErrorDetails,
    *,
    raw: Any,
    sections: Mapping[int, type[BaseModel]],
    lines: Mapping[_Path, int],
) -> Iterator[str]:
    """One error of pydantic as one sentence or more.

    Args:
        item: the error.
        raw: the file's mapping, as it was given to pydantic.
        sections: which section reads which mapping of it, by id.
        lines: the line of each path.
    """
    place = _Place(item["loc"], raw=raw, sections=sections, lines=lines)
    if item["type"] == "extra_forbidden":
        yield place.unknown_key()
    elif item["type"] == "missing":
        yield f"{place.told} is missing{place.about}"
    elif item["type"] in {"union_tag_not_found", "union_tag_invalid"}:
        kinds = [kind for member in place.members() for kind in get_args(member.model_fields["kind"].annotation)]
        yield f"{place.told}.kind must be one of {', '.join(f'`{kind}`' for kind in kinds)}{place.about}"
        yield from place.strange_keys()
    else:
        error = item.get("ctx", {}).get("error")
        for sentence in error.sentences if isinstance(error, Faults) else [item["msg"].removeprefix("Value error, ")]:
            yield _sentence(place, sentence, item["input"])


class _Place:
    """Where in the file an error lies, and what the schema says of that place."""

    def __init__(
        self, location: _Path, *, raw: Any, sections: Mapping[int, type[BaseModel]], lines: Mapping[_Path, int]
    ) -> None:
        self.location, self.raw, self.sections, self.lines = location, raw, sections, lines
        self.path, self.holders, self.value = _walk(location, raw)
        self.section, self.field, self.present = self._owner()

    @property
    def told(self) -> str:
        """The line and the key."""
        return f"{self.line(self.path)}{dotted(self.path)}"

    @property
    def about(self) -> str:
        """What the schema says of the key, in brackets."""
        known = self.section.model_fields if self.section is not None else {}
        description = known[self.field].description if self.field in known else None
        return f" ({description})" if description else ""

    def line(self, path: _Path) -> str:
        """The line of the innermost part of a path that stands in the file."""
        found = next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), 1)
        return f"line {found}: "

    def inside(self, *keys: str) -> _Place:
        """A place within this one."""
        return _Place((*self.location, *keys), raw=self.raw, sections=self.sections, lines=self.lines)

    def keys_of_sentence(self, sentence: str) -> tuple[str, ...]:
        """The keys within this place with which a sentence of a check between keys begins, such as `epsilon = 3 …`."""
        section, inside = self.sections.get(id(self.value)), _mapping(self.value)
        ends = (".",) if section is None else (".", " ")
        names = [str(name) for name in (inside or {} if section is None else section.model_fields)]
        heads = [name for name in names if any(sentence.startswith(name + end) for end in ends)]
        if not heads:
            return ()
        head = max(heads, key=len)
        return (head, *re.findall(r"^\.(\w+)", sentence[len(head) :]))

    def unknown_key(self) -> str:
        """That the last key of the path is none, and which was meant."""
        known = set(self.section.model_fields) if self.section is not None else set[str]()
        return f"{self.told} is an unknown key; {_meant(str(self.path[-1]), known, self.present)}"

    def members(self) -> list[type[BaseModel]]:
        """The sections of which this place may hold one."""
        return [] if self.section is None else list(_models(self.section.model_fields[self.field].annotation))

    def strange_keys(self) -> Iterator[str]:
        """The keys of a mapping that no section knows which it may hold: its kind is not told, perhaps misspelt."""
        known = {name for member in self.members() for name in member.model_fields}
        inside = cast("dict[str, object]", _mapping(self.value) or {})
        for key in [key for key in inside if key not in known]:
            path = (*self.path, key)
            yield f"{self.line(path)}{dotted(path)} is an unknown key; {_meant(key, known, set(inside))}"

    def _owner(self) -> tuple[type[BaseModel] | None, str, set[str]]:
        """The innermost section on the path, its field that the path goes through, and the keys it was given."""
        for part, holder in zip(reversed(self.path), reversed(self.holders), strict=True):
            if id(holder) in self.sections:
                return self.sections[id(holder)], str(part), set(holder)
        return None, "", set()


def _sentence(place: _Place, sentence: str, value: Any) -> str:
    keys = place.keys_of_sentence(sentence)
    if keys:
        inner = place.inside(*keys)
        return f"{inner.line(inner.path)}{dotted(place.path)}.{sentence}{inner.about}"
    return f"{place.told}{_shown(value, place.path)} {_words(sentence)}{place.about}"


def _words(message: str) -> str:
    message = message[0].lower() + message[1:]
    for pattern, plain in _PLAIN:
        message = re.sub(pattern, plain, message)
    return message


def _meant(key: str, known: set[str], present: set[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.5)
    if not close:
        return f"known keys: {', '.join(sorted(known))}"
    return f"did you mean `{close[0]}`{', which stands there already' if close[0] in present else ''}?"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every section that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _walk(location: _Path, raw: Any) -> tuple[_Path, list[Any], Any]:
    """The path in the file for pydantic's location, which also names kinds; what holds each part; what lies there."""
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
    return tuple(path), holders, current


def _mapping(value: Any) -> dict[object, object] | None:
    return cast("dict[object, object]", value) if isinstance(value, dict) else None


def _shown(value: Any, path: _Path) -> str:
    if isinstance(value, (dict, list, tuple, BaseModel)) or path[-1:] in {("url",), ("query",)}:
        return ""
    text = "null" if value is None else str(value)
    return f" = {text if len(text) <= 60 else text[:57] + '…'}"
