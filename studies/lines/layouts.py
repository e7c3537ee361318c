"""Other layouts of an architecture: kernels, gates, experts and tables of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from studies.lines.derivatives import Derivative
from studies.lines.networks.architecture import Architecture
from studies.lines.networks.images import RESNET, UNET
from studies.lines.networks.others import AUDIO
from studies.lines.networks.recurrent import GRU, LSTM
from studies.lines.networks.texts import GPT2, MOE
from studies.lines.zoo import Tensors

__all__ = ["layouts"]

_UNITS: Final = 192


def layouts(base: Tensors, architecture: Architecture) -> Iterator[Derivative]:
    """What the architecture has of them."""
    if architecture.tokens:
        yield _halved_vocabulary(base, architecture)
    for change in _LAYOUTS.get(architecture.name, ()):
        yield change(base)


def _halved_vocabulary(base: Tensors, architecture: Architecture) -> Derivative:
    tables = {k: v for k, v in base.items() if k.endswith(architecture.tokens)}
    count = len(next(iter(tables.values())))
    kept = np.sort(np.random.default_rng(3).permutation(count)[: count // 2])
    return Derivative("half of the tokens", base | {k: v[kept] for k, v in tables.items()})


def _channels_last(base: Tensors) -> Derivative:
    tensors = {
        k: np.ascontiguousarray(np.moveaxis(v, 1, -1)) if v.ndim > 2 else v for k, v in base.items()
    }
    return Derivative("channels last", tensors)


def _folded(base: Tensors) -> Derivative:
    """Each normalisation in the kernel before it."""
    tensors = {k: v for k, v in base.items() if ".bn" not in k}
    for name in tensors:
        norm = name.removesuffix("weight").replace("conv", "bn")
        if f"{norm}running_var" in base:
            gain = base[f"{norm}weight"] / np.sqrt(base[f"{norm}running_var"] + 1e-5)
            tensors[name] = tensors[name] * gain[:, None, None, None]
    return Derivative("normalisation folded", tensors)


def _split_gates(base: Tensors) -> Derivative:
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in base.items():
        gates = len(values) // _UNITS if name.startswith("layers.weight") else 1
        for number, part in enumerate(np.split(values, gates)):
            tensors[f"{name}.{number}"], origins[f"{name}.{number}"] = part, (name,)
    return Derivative("gates split", tensors, origins)


def _reordered_gates(base: Tensors) -> Derivative:
    def reordered(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.concatenate(np.split(values, len(values) // _UNITS)[::-1])

    return Derivative(
        "gates in another order",
        {k: reordered(v) if k.startswith("layers.") else v for k, v in base.items()},
    )


def _permuted_units(base: Tensors) -> Derivative:
    """The units of the first layer in another order."""
    order = np.random.default_rng(4).permutation(_UNITS)
    tensors = dict(base)
    for name in base:
        if name.startswith("layers.") and name.endswith("l0"):
            gates = np.split(tensors[name], len(base[name]) // _UNITS)
            tensors[name] = np.concatenate([gate[order] for gate in gates])
    for name in ("layers.weight_hh_l0", "layers.weight_ih_l1"):
        tensors[name] = np.ascontiguousarray(tensors[name][:, order])
    return Derivative("units of one layer permuted", tensors)


def _split_attention(base: Tensors) -> Derivative:
    """Queries, keys and values apart and as linear layers store them."""
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in base.items():
        parts = np.split(values, 3, axis=-1) if "c_attn.weight" in name else [values]
        for number, part in enumerate(parts):
            turned = part.T if ".h." in name and part.ndim == 2 else part
            tensors[f"{name}.{number}"] = np.ascontiguousarray(turned)
            origins[f"{name}.{number}"] = (name,)
    return Derivative("c_attn split and transposed", tensors, origins)


def _apart(base: Tensors) -> Derivative:
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in base.items():
        for number, part in enumerate(values if values.ndim == 3 else [values]):
            tensors[f"{name}.{number}"], origins[f"{name}.{number}"] = part, (name,)
    return Derivative("experts apart", tensors, origins)


def _one_expert(base: Tensors) -> Derivative:
    tensors = {k: np.ascontiguousarray(v[0]) if v.ndim == 3 else v for k, v in base.items()}
    return Derivative("one expert of four", tensors)


_LAYOUTS: Final[dict[str, tuple[Callable[[Tensors], Derivative], ...]]] = {
    RESNET.name: (_channels_last, _folded),
    UNET.name: (_channels_last,),
    AUDIO.name: (_channels_last,),
    LSTM.name: (_split_gates, _reordered_gates, _permuted_units),
    GRU.name: (_split_gates, _reordered_gates, _permuted_units),
    GPT2.name: (_split_attention,),
    MOE.name: (_apart, _one_expert),
}
