"""Packs a network with its preprocessing into a folder that stands alone, and names it by its content.

    <into>/code/discreet_model_<8 hex>/   encoding.py and networks.py as they trained it, and our loader
    <into>/model/                         encoding.json, network.json, weights.safetensors

Nothing in it is a pickle, and nothing in it comes from a record but the weights, which epsilon covers.
"""

import hashlib
import importlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from configs.errors import InternalError
from tasks.registry.served import loader as shipped_loader

# What the shipped code imports, and what reads the folder; a served model gets exactly what trained it.
REQUIREMENTS = ("mlflow", "numpy", "pandas", "safetensors", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A model ready to be logged.

    Attributes:
        path: the folder.
        package: name of the code package in it, content-derived.
        weights_sha256: of the canonical weights (`weights_bytes`).
        digest: sha256 of all its files, names included (`folder_digest`).
    """

    path: Path
    package: str
    weights_sha256: str
    digest: str

    @property
    def data(self) -> Path:
        """The three data files."""
        return self.path / "model"

    @property
    def code(self) -> Path:
        """The package that loads them."""
        return self.path / "code" / self.package

    def features(self) -> list[dict[str, Any]]:
        """The columns that it reads, each with its `name` and `kind`."""
        return json.loads((self.data / "encoding.json").read_text(encoding="utf-8"))["features"]


def build_folder(
    *,
    into: Path,
    encoding: Mapping[str, Any],
    network: Mapping[str, Any],
    inputs: int,
    weights: Mapping[str, torch.Tensor],
    threshold: float | None,
    encoding_module: Path,
    networks_module: Path,
) -> ModelFolder:
    """Pack a model and load it once, so that a folder which cannot be loaded is never logged.

    Args:
        into: a folder that does not exist yet.
        encoding: the preprocessing's specification, as its module's `encode(frame, spec)` takes it; its
            `features` list the columns read.
        network: the network's specification, as its module's `build(spec, inputs)` takes it.
        inputs: columns after encoding, d.
        weights: the network's state.
        threshold: deployment threshold on the probability, set by people; None for none.
        encoding_module: source file of the preprocessing, self-contained.
        networks_module: source file of the networks, self-contained.

    Raises:
        InternalError: the folder exists, or the packed model does not load.
    """
    if into.exists():
        raise InternalError(f"model folder {into.name} exists already; a model is packed once")
    data = into / "model"
    data.mkdir(parents=True)
    (data / "weights.safetensors").write_bytes(weights_bytes(weights))
    _write_json(data / "encoding.json", encoding)
    described = {
        "format": shipped_loader.FORMAT,
        "network": dict(network),
        "inputs": inputs,
        "threshold": threshold,
    }
    _write_json(data / "network.json", described)
    _copy_code(into / "code", encoding_module, networks_module)
    folder = open_folder(into)
    load_folder(folder)
    return folder


def open_folder(path: Path) -> ModelFolder:
    """A folder that `build_folder` packed, for a step that was handed its path; digests are computed anew.

    Raises:
        InternalError: it is no such folder.
    """
    packages = list((path / "code").glob("discreet_model_*"))
    weights = path / "model" / "weights.safetensors"
    if len(packages) != 1 or not weights.is_file():
        raise InternalError(f"{path.name} is no packed model")
    return ModelFolder(
        path=path,
        package=packages[0].name,
        weights_sha256=hashlib.sha256(weights.read_bytes()).hexdigest(),
        digest=folder_digest(path),
    )


def load_folder(folder: ModelFolder) -> shipped_loader.Served:
    """Load a packed model in this process, by the code packed with it.

    Raises:
        InternalError: it does not load.
    """
    try:
        with code_on_path(folder.code.parent):
            return importlib.import_module(f"{folder.package}.loader")._load_pyfunc(str(folder.data))
    except Exception as error:
        raise InternalError(f"the packed model does not load: {type(error).__name__}: {error}") from None


@contextmanager
def code_on_path(code: Path | None = None) -> Iterator[None]:
    """Import from `code` first; afterwards `sys.path` is what it was, whatever a loader prepended to it."""
    before = list(sys.path)
    if code is not None:
        sys.path.insert(0, str(code))
        importlib.invalidate_caches()  # the folder may be younger than the finder's memory of it
    try:
        yield
    finally:
        sys.path[:] = before


def weights_bytes(weights: Mapping[str, torch.Tensor]) -> bytes:
    """Canonical safetensors bytes of a state: tensors by name, on the CPU, contiguous, without metadata.

    Equal states give equal bytes, whatever the order, device or memory layout they come in.
    """
    return save({name: weights[name].detach().cpu().contiguous().clone() for name in sorted(weights)})


def weights_digest(weights: Mapping[str, torch.Tensor]) -> str:
    """The sha256 of `weights_bytes`, hex: what evidence is bound to."""
    return hashlib.sha256(weights_bytes(weights)).hexdigest()


def folder_digest(folder: Path) -> str:
    """The sha256 over the sorted relative names and contents of all files, byte code aside, hex."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if file.is_file() and file.parent.name != "__pycache__":
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def stored_digest(copy: Path) -> str:
    """The `folder_digest` of a fresh copy of a registered model, whose files from then on are those alone.

    Byte code is taken out of the copy, for Python would run it in place of the code that the digest covers, and so is
    the note that MLflow leaves in copies.

    Args:
        copy: a folder of the caller's own; it is changed.
    """
    for cache in [*copy.rglob("__pycache__")]:
        shutil.rmtree(cache)
    (copy / "registered_model_meta").unlink(missing_ok=True)
    return folder_digest(copy)


def requirements() -> list[str]:
    """Pinned requirements of the shipped code, as installed here, without local build labels."""
    return [f"{name}=={metadata.version(name).split('+')[0]}" for name in REQUIREMENTS]


def _copy_code(into: Path, encoding_module: Path, networks_module: Path) -> None:
    """Copy the package's files and name it by their digest, so that equal names mean equal code."""
    loader = Path(str(shipped_loader.__file__))
    draft = into / "draft"
    draft.mkdir(parents=True)
    sources = {"encoding.py": encoding_module, "networks.py": networks_module, "loader.py": loader}
    for name, source in sources.items():
        shutil.copyfile(source, draft / name)
    (draft / "__init__.py").touch()
    draft.rename(into / f"discreet_model_{folder_digest(draft)[:8]}")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
