"""Trained weights, kept in a folder that git ignores, so that each is trained once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

__all__ = ["CACHE", "Tensors", "Zoo", "loaded", "tensors_of"]

Tensors = dict[str, npt.NDArray[np.float32]]

CACHE: Final = Path(__file__).resolve().parents[2] / ".studies" / "lines"
"""Beside the code. Delete what should be trained again."""


class Zoo:
    """Trained weights by name.

    Args:
        folder: for their files.
    """

    def __init__(self, folder: Path = CACHE) -> None:
        self._folder = folder

    def weights(self, name: str, make: Callable[[], Tensors]) -> Tensors:
        """Those of a name, which are made where there is no file of it."""
        path = self._folder / f"{name.lower().replace(' ', '-')}.safetensors"
        if not path.exists():
            made = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}.new")  # other processes may make it, too
            save_file(made, new)
            new.replace(path)
        return load_file(path)


def tensors_of(network: nn.Module) -> Tensors:
    """The floats of a network by name; tied ones have all of their names."""
    return {
        name: np.ascontiguousarray(values.detach().numpy())
        for name, values in network.state_dict().items()
        if values.is_floating_point()
    }


def loaded(network: nn.Module, tensors: Tensors) -> nn.Module:
    """A network with the weights of a file, which has all of its floats."""
    held: dict[str, Any] = network.state_dict()
    floats = {name for name, values in held.items() if values.is_floating_point()}
    if floats != tensors.keys():
        raise ValueError(f"weights of other tensors: {sorted(floats ^ tensors.keys())}")
    network.load_state_dict(held | {name: torch.tensor(each) for name, each in tensors.items()})
    return network
