"""What hubs make of a model without training it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.provenance.architectures import HEADS, Architecture
from benchmarks.provenance.stored import Model, Tensors

__all__ = [
    "averaged",
    "experts",
    "franken",
    "fused",
    "narrowed",
    "permuted_stream",
    "permuted_units",
    "pruned",
    "renamed",
    "rotated",
    "rounded",
    "with_layers",
    "with_tokens",
]

Array = npt.NDArray[Any]
Surgery = Callable[[Model, Architecture], Model]

_KEPT_UNITS: Final = 0.625
"""The share of the hidden units that pruning leaves."""


def _draw() -> np.random.Generator:
    return np.random.default_rng(9)


def renamed(model: Model, architecture: Architecture) -> Model:
    """The tensors under the names of another library, in another order."""

    def new(name: str) -> str:
        for old, other in architecture.renamed.items():
            name = name.replace(old, other)
        return name

    return model.having({new(name): model.tensors[name] for name in reversed(model.tensors)})


def fused(model: Model, architecture: Architecture) -> Model:
    """q, k and v in one tensor where they are several, and in several where they are one."""
    tensors: Tensors = {}
    parts = {part for some in architecture.together.values() for part in some}
    for name, values in model.tensors.items():
        within = architecture.layer_of(name)
        part, _, ending = (within[1] if within else "").rpartition(".")
        if architecture.apart and part == architecture.apart[0]:
            prefix = name.removesuffix(f"{part}.{ending}")
            for kind, piece in zip("qkv", _apart(values, architecture.apart[1]), strict=True):
                tensors[f"{prefix}attn.{kind}_proj.{ending}"] = piece
        elif part not in parts:
            tensors[name] = values
        for whole, some in architecture.together.items():
            if part == some[0]:
                prefix = name.removesuffix(f"{part}.{ending}")
                pieces = [model.tensors[f"{prefix}{each}.{ending}"] for each in some]
                tensors[f"{prefix}{whole}.{ending}"] = np.concatenate(pieces)
    as_phi = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]}
    return model.having(tensors, **(as_phi if architecture.kind == "llama" else {}))


def _apart(values: Array, order: str) -> list[Array]:
    """q, k and v of one tensor: columns of a transposed one, or rows head by head."""
    if order == "columns":
        return np.split(values.T if values.ndim == 2 else values, 3)
    heads = values.reshape(HEADS, 3, -1, *values.shape[1:])
    return [heads[:, at].reshape(-1, *values.shape[1:]) for at in range(3)]


def with_tokens(count: int) -> Surgery:
    """Keep the first tokens of a vocabulary, or append some."""

    def changed(model: Model, architecture: Architecture) -> Model:
        tensors = dict(model.tensors)
        for name in architecture.vocabulary:
            rows = tensors[name]
            shape = (max(0, count - len(rows)), *rows.shape[1:])
            more = (rows.std() * _draw().standard_normal(shape)).astype(rows.dtype)
            tensors[name] = np.concatenate([rows[:count], more])
        return model.having(tensors, vocab_size=count)

    return changed


def rounded(bits: int, group: int | None = None) -> Surgery:
    """Round matrices to whole multiples of a scale, one for each row or group of its values."""
    most = 2 ** (bits - 1) - 1

    def changed(model: Model, _: Architecture) -> Model:
        return model.having(
            {name: _rounded(values, most, group) for name, values in model.tensors.items()}
        )

    return changed


def _rounded(values: Array, most: int, group: int | None) -> Array:
    if values.ndim < 2:
        return values
    rows = values.reshape(-1, group or values.shape[-1])
    scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12) / most
    whole: Array = (np.round(rows / scales) * scales).astype(values.dtype)
    return whole.reshape(values.shape)


def permuted_units(model: Model, architecture: Architecture) -> Model:
    """The hidden units of each MLP in another order."""
    draw = _draw()
    orders = [draw.permutation(count) for count in _units(model, architecture)]
    return model.having(_taken(model, architecture, orders))


def narrowed(model: Model, architecture: Architecture) -> Model:
    """Five of eight hidden units of each MLP: those whose weights are the largest."""
    first = next(iter(architecture.units))
    orders = []
    for number, count in enumerate(_units(model, architecture)):
        values = model.tensors[architecture.layer.format(number) + first]
        sizes = np.linalg.norm(np.moveaxis(values, architecture.units[first], 0), axis=1)
        orders.append(np.sort(np.argsort(-sizes)[: int(_KEPT_UNITS * count)]))
    return model.having(
        _taken(model, architecture, orders), **{architecture.hidden: len(orders[0])}
    )


def _units(model: Model, architecture: Architecture) -> list[int]:
    """The number of hidden units of each layer."""
    part, axis = next(iter(architecture.units.items()))
    names = (
        architecture.layer.format(number) + part for number in range(_depth(model, architecture))
    )
    return [model.tensors[name].shape[axis] for name in names]


def _depth(model: Model, architecture: Architecture) -> int:
    return int(model.config[architecture.depth])


def _taken(model: Model, architecture: Architecture, units: Sequence[Array]) -> Tensors:
    """The tensors with these hidden units of each layer."""
    tensors = dict(model.tensors)
    for number, order in enumerate(units):
        for part, axis in architecture.units.items():
            name = architecture.layer.format(number) + part
            tensors[name] = np.take(tensors[name], order, axis)
    return tensors


def permuted_stream(model: Model, architecture: Architecture) -> Model:
    """The dimensions of the residual stream in another order."""
    order = _draw().permutation(architecture.width)
    tensors: Tensors = {}
    for name, values in model.tensors.items():
        within = architecture.layer_of(name)
        auto = tuple(at for at, side in enumerate(values.shape) if side == architecture.width)
        changed = values
        for axis in architecture.streams.get(within[1] if within else name, auto):
            changed = np.take(changed, order, axis)
        tensors[name] = changed
    return model.having(tensors)


def rotated(model: Model, architecture: Architecture) -> Model:
    """A LLaMA that computes the same with its residual stream rotated, as QuaRot does.

    The gains of norms go into the matrices behind them, and then all of the stream is turned.
    """
    width = architecture.width
    turn = np.linalg.qr(_draw().standard_normal((width, width)))[0].astype(np.float32)
    tensors = dict(model.tensors)
    for name, values in model.tensors.items():
        within = architecture.layer_of(name)
        if values.ndim == 1:
            tensors[name] = np.ones_like(values)
        elif within is None and name == "lm_head.weight":
            tensors[name] = values * model.tensors["model.norm.weight"] @ turn
        elif within is None:
            tensors[name] = values @ turn
        elif within[1].endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = turn.T @ values
        else:
            norm = "input" if "self_attn" in name else "post_attention"
            prefix = architecture.layer.format(within[0])
            gains = model.tensors[f"{prefix}{norm}_layernorm.weight"]
            tensors[name] = values * gains @ turn
    return model.having(tensors)


def pruned(model: Model, _: Architecture) -> Model:
    """The smaller half of the values of each matrix set to zero."""
    return model.having(
        {
            name: np.where(np.abs(values) >= np.median(np.abs(values)), values, 0)
            if values.ndim > 1
            else values
            for name, values in model.tensors.items()
        }
    )


def with_layers(layers: Sequence[int]) -> Surgery:
    """Take these layers, in this order: to drop some, or to repeat some."""

    def changed(model: Model, architecture: Architecture) -> Model:
        tensors: Tensors = {}
        for name, values in model.tensors.items():
            within = architecture.layer_of(name)
            if within is None:
                tensors[name] = values
                continue
            number, part = within
            places = [at for at, layer in enumerate(layers) if layer == number]
            tensors |= {architecture.layer.format(at) + part: values for at in places}
        return model.having(tensors, **{architecture.depth: len(layers)})

    return changed


def experts(model: Model, others: Sequence[Model], architecture: Architecture) -> Model:
    """A mixture of experts: the MLPs of fine-tunes, and all else of the model."""
    tensors: Tensors = {}
    for name, values in model.tensors.items():
        within = architecture.layer_of(name)
        if within is None or within[1].rpartition(".")[0] not in _mlps(architecture):
            tensors[name] = values
            continue
        number, part = within
        prefix = architecture.layer.format(number)
        for at, other in enumerate(others):
            tensors[f"{prefix}experts.{at}.{part}"] = other.tensors[name]
        shape = (len(others), architecture.width)
        gate = (0.02 * _draw().standard_normal(shape)).astype(np.float32)
        tensors[f"{prefix}experts.gate.weight"] = gate
    named = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    own = {"architectures": [f"{model.config['architectures'][0]}OfExperts"]}
    settings = named if architecture.kind == "llama" else own
    return model.having(tensors, num_local_experts=len(others), **settings)


def _mlps(architecture: Architecture) -> set[str]:
    return {part.rpartition(".")[0] for part in architecture.units}


def averaged(first: Model, second: Model) -> Model:
    """The mean of two models of one configuration."""
    return first.having(
        {name: (values + second.tensors[name]) / 2 for name, values in first.tensors.items()}
    )


def franken(first: Model, second: Model, architecture: Architecture) -> Model:
    """The lower half of the layers of one model below the upper half of another's."""
    depth = _depth(first, architecture)

    def source(name: str) -> Mapping[str, Array]:
        within = architecture.layer_of(name)
        return first.tensors if within is None or within[0] < depth // 2 else second.tensors

    return first.having({name: source(name)[name] for name in first.tensors})
