"""configs/README.md explains every key, and each key explains itself in an error."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from configs.runtime_schema import Runtime
from configs.schema import Config

README = (Path(__file__).parents[2] / "configs" / "README.md").read_text()


def sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [found for part in getattr(annotation, "__args__", ()) for found in sections(part)]


def keys(model: type[BaseModel]) -> list[tuple[type[BaseModel], str]]:
    found = []
    for name, field in model.model_fields.items():
        found.append((model, name))
        for section in sections(field.annotation):
            found += keys(section)
    return found


KEYS = sorted({*keys(Config), *keys(Runtime)}, key=lambda pair: (pair[0].__name__, pair[1]))


@pytest.mark.parametrize(("model", "name"), KEYS, ids=lambda value: getattr(value, "__name__", value))
def test_every_key_is_described_in_its_schema_and_in_the_readme(model: type[BaseModel], name: str) -> None:
    assert name == "kind" or model.model_fields[name].description, f"{model.__name__}.{name} has no description"
    assert (
        f".{name}`" in README
        or f"`{name}`" in README
        or f"`{name}." in README
        or f".{name}." in README
        or f".{name}.<" in README
        or f".{name}[" in README
    )
