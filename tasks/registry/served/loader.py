"""Loads a registered model: raw records in, probabilities out. Shipped inside the model.

This file is copied into the model beside the `encoding.py` and `networks.py` that trained it, as one package
whose name holds the digest of its content. So a model needs nothing of the project to be loaded, two models
of different code can live in one process, and a model keeps the code it was trained with.

The model's data are three files, none of them a pickle:

    encoding.json        the preprocessing's specification: public bounds and code books
    network.json         {"format", "network": the network's specification, "inputs": d, "threshold"}
    weights.safetensors  the network's state
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file

FORMAT = 1


class Served:
    """A network with its preprocessing inside.

    Attributes:
        columns: names of the columns it reads; others are ignored.
        threshold: probability from which a record counts as positive; None if its owner set none.
    """

    def __init__(
        self, *, network: torch.nn.Module, encode: Any, encoding: dict[str, Any], threshold: float | None
    ) -> None:
        self._network = network
        self._encode = encode
        self._encoding = encoding
        self.columns = [feature["name"] for feature in encoding["features"]]
        self.threshold = threshold

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Score raw records.

        Args:
            model_input: one record a row, with at least the columns of `columns`, each cell text or a number
                as it stands in the source; a missing cell is None, NaN or one of the source's own tokens.
            params: none are known.

        Returns:
            One column `probability`, float64 in [0, 1], with the index of the input.
        """
        del params
        encoded = torch.from_numpy(self._encode(model_input, self._encoding))
        with torch.inference_mode():
            probability = torch.sigmoid(self._network(encoded).double())
        return pd.DataFrame({"probability": probability.numpy()}, index=model_input.index)


def _load_pyfunc(data_path: str) -> Served:
    """Load a model's data; MLflow calls it by this name."""
    folder = Path(data_path)
    encoding = json.loads((folder / "encoding.json").read_text(encoding="utf-8"))
    network = json.loads((folder / "network.json").read_text(encoding="utf-8"))
    if network["format"] != FORMAT:
        raise ValueError(f"this code reads model format {FORMAT}, not {network['format']}")
    # Siblings by the package's own name, which is known only once the model is built.
    networks = importlib.import_module(f"{__package__}.networks")
    module = networks.build(network["network"], network["inputs"])
    module.load_state_dict(load_file(folder / "weights.safetensors"), strict=True)
    module.eval()
    encode = importlib.import_module(f"{__package__}.encoding").encode
    return Served(network=module, encode=encode, encoding=encoding, threshold=network["threshold"])
