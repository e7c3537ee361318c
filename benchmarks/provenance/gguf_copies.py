"""Models as llama.cpp's converters write them, in GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from benchmarks.provenance.architectures import HEADS, Architecture
from benchmarks.provenance.stored import Model, Tensors
from tests.support.models.gguf_files import interleaved, write_gguf

__all__ = ["save_gguf"]

_NAMES: Final = {"llama": "llama", "bert": "bert", "gpt2": "gpt2", "gpt_neox": "gptneox"}


def save_gguf(model: Model, architecture: Architecture, kind: str, folder: Path) -> Path:
    """Write a model as one GGUF file, alone in a folder as it is published; returns the folder.

    Args:
        model: the model.
        architecture: its architecture.
        kind: the type of its matrices, such as ``Q8_0``.
        folder: for the file.
    """
    name = _NAMES[architecture.kind]
    depth = int(model.config[architecture.depth])
    heads = int(model.config.get("num_attention_heads", HEADS))
    metadata = {
        f"{name}.block_count": depth,
        f"{name}.attention.head_count": heads,
        f"{name}.attention.head_count_kv": heads,
    }
    tensors = _written(model, architecture, name, heads)
    folder.mkdir(parents=True)
    write_gguf(folder / f"model-{kind}.gguf", tensors, kind, name, metadata)
    return folder


def _written(model: Model, architecture: Architecture, name: str, heads: int) -> Tensors:
    """The tensors under GGUF's names; those that llama.cpp does not keep are left out."""
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(number, int(model.config[architecture.depth]))
    tensors: Tensors = {}
    for held, values in model.tensors.items():
        found = names.get_name(held.removeprefix("bert."), try_suffixes=(".weight", ".bias"))
        if found is not None and not held.startswith(("pooler.", "cls.")):
            tensors[found] = _ordered(values, held, heads)
    return tensors


def _ordered(values: npt.NDArray[Any], name: str, heads: int) -> npt.NDArray[Any]:
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        return interleaved(values, heads)
    if ".c_" in name and values.ndim == 2:
        return np.ascontiguousarray(values.T)
    if "query_key_value" in name:
        parts = values.reshape(heads, 3, -1, *values.shape[1:])
        return np.ascontiguousarray(parts.swapaxes(0, 1).reshape(values.shape))
    return values
