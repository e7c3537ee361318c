"""Models as their folders have them: a configuration, a tokenizer and safetensors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

__all__ = ["Model", "Tensors", "loaded", "save"]

Tensors = dict[str, npt.NDArray[Any]]

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        config: what ``config.json`` holds.
        tensors: its tensors, by name.
        tokenizer: the folder that has its tokenizer.
    """

    config: Mapping[str, Any]
    tensors: Tensors
    tokenizer: Path

    def having(self, tensors: Mapping[str, npt.NDArray[Any]], **settings: Any) -> Model:
        """The model with other tensors, and other settings of its configuration."""
        return replace(self, config={**self.config, **settings}, tensors=dict(tensors))


def loaded(folder: Path) -> Model:
    """The model of a folder; whole numbers that are stored beside the weights are left out."""
    held = load_file(folder / "model.safetensors")
    tensors = {name: values for name, values in held.items() if values.dtype.kind == "f"}
    return Model(json.loads((folder / "config.json").read_text()), tensors, folder)


def save(model: Model, folder: Path) -> Path:
    """Write a model into a folder, with its tokenizer; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER:
        source = model.tokenizer / name
        if source.is_file() and source.parent != folder:
            shutil.copyfile(source, folder / name)
    (folder / "config.json").write_text(json.dumps(dict(model.config), indent=2))
    whole = {name: np.ascontiguousarray(values) for name, values in model.tensors.items()}
    save_file(whole, folder / "model.safetensors", {"format": "pt"})
    return folder
