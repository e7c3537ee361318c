"""A small transformer of random weights, and what hubs make of one without training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker

Tensors = dict[str, npt.NDArray[np.float32]]

LAYERS: Final = 4
WIDTH: Final = 128
HIDDEN: Final = 384
TOKENS: Final = 600


def model(seed: int) -> Tensors:
    """Weights whose columns have scales, as trained ones have: mostly those of their inputs."""
    draw = np.random.default_rng(seed)
    inputs = {width: draw.lognormal(0, 0.3, width) for width in (WIDTH, HIDDEN)}

    def weights(*shape: int) -> npt.NDArray[np.float32]:
        scales = inputs[shape[-1]] * draw.lognormal(0, 0.15, shape[-1])
        return (0.02 * scales * draw.standard_normal(shape)).astype(np.float32)

    tensors = {"embed": weights(TOKENS, WIDTH), "norm": np.ones(WIDTH, np.float32)}
    for i in range(LAYERS):
        tensors |= {f"layers.{i}.{kind}": weights(WIDTH, WIDTH) for kind in "qkvo"}
        tensors[f"layers.{i}.up"] = weights(HIDDEN, WIDTH)
        tensors[f"layers.{i}.down"] = weights(WIDTH, HIDDEN)
    return tensors


def fingerprint(tensors: Tensors, scale: int | None = 1) -> Fingerprint:
    """The fingerprint of tensors, by default with all of their keys."""
    maker = FingerprintMaker()
    for name, values in tensors.items():
        maker.add(name, values)
    return maker.finish(scale)


def _each(change: Callable[[Any], Any]) -> Callable[[Tensors], Tensors]:
    return lambda base: {name: change(values) for name, values in base.items()}


def _draw() -> np.random.Generator:
    return np.random.default_rng(9)


def _renamed(base: Tensors) -> Tensors:
    return {f"blk.{name}": values for name, values in reversed(base.items())}


def _flipped(base: Tensors) -> Tensors:
    draw = _draw()
    signs = np.array([-1, 1], np.float32)
    return {k: v * draw.choice(signs, (len(v),) + (1,) * (v.ndim - 1)) for k, v in base.items()}


def _more_tokens(base: Tensors) -> Tensors:
    added = 0.02 * _draw().standard_normal((65, WIDTH)).astype(np.float32)
    return base | {"embed": np.concatenate([base["embed"], added])}


def _fewer_tokens(base: Tensors) -> Tensors:
    return base | {"embed": base["embed"][_draw().permutation(TOKENS)[:300]]}


def _fused(base: Tensors) -> Tensors:
    others = {k: v for k, v in base.items() if k[-2:] not in (".q", ".k", ".v")}
    fused = {
        f"layers.{i}.qkv": np.concatenate([base[f"layers.{i}.{kind}"] for kind in "qkv"])
        for i in range(LAYERS)
    }
    return others | fused


def _permuted_units(base: Tensors) -> Tensors:
    draw, tensors = _draw(), dict(base)
    for i in range(LAYERS):
        order = draw.permutation(HIDDEN)
        tensors[f"layers.{i}.up"] = base[f"layers.{i}.up"][order]
        tensors[f"layers.{i}.down"] = base[f"layers.{i}.down"][:, order]
    return tensors


def _permuted_stream(base: Tensors) -> Tensors:
    order = _draw().permutation(WIDTH)
    reads = {k: v[:, order] for k, v in base.items() if k[-1] in "qkvpd"}
    writes = {k: v[order] for k, v in base.items() if k[-2:] in (".o", "wn")}
    return base | reads | writes


def _up_scaled(base: Tensors) -> Tensors:
    layers = enumerate([0, 1, 2, 1, 2, 3])
    kinds = ("q", "k", "v", "o", "up", "down")
    grown = {f"layers.{j}.{kind}": base[f"layers.{i}.{kind}"] for j, i in layers for kind in kinds}
    return {"embed": base["embed"]} | grown


def _experts(base: Tensors) -> Tensors:
    others = {k: v for k, v in base.items() if not k.endswith(("up", "down"))}
    stacks = {
        f"layers.{i}.experts.{kind}": np.stack([base[f"layers.{i}.{kind}"]] * 4)
        for i in range(LAYERS)
        for kind in ("up", "down")
    }
    return others | stacks


def _repeated_heads(base: Tensors) -> Tensors:
    heads = {k: v.reshape(2, -1, WIDTH) for k, v in base.items() if k[-2:] in (".k", ".v")}
    return base | {k: np.repeat(v, 4, axis=0).reshape(-1, WIDTH) for k, v in heads.items()}


def _kernels(base: Tensors) -> Tensors:
    """Each matrix as a kernel of height 1, width first."""
    return {k: v if v.ndim < 2 else v[:, np.newaxis, :, np.newaxis] for k, v in base.items()}


def _noisy(sigmas: float) -> Callable[[Tensors], Tensors]:
    def noisy(base: Tensors) -> Tensors:
        draw = _draw()
        return {
            k: (v + sigmas * v.std() * draw.standard_normal(v.shape)).astype(np.float32)
            for k, v in base.items()
        }

    return noisy


def _in_8_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    scale = np.float32(np.abs(values).max() / 127)
    return np.round(values / scale) * scale


DERIVED: Final[dict[str, Callable[[Tensors], Tensors]]] = {
    "renamed": _renamed,
    "transposed": _each(lambda values: np.ascontiguousarray(values.T)),
    "flipped": _flipped,
    "more tokens": _more_tokens,
    "fewer tokens": _fewer_tokens,
    "fused": _fused,
    "permuted units": _permuted_units,
    "permuted stream": _permuted_stream,
    "up-scaled": _up_scaled,
    "experts": _experts,
    "repeated heads": _repeated_heads,
    "kernels": _kernels,
    "8 bits": _each(_in_8_bits),
    "noise .05": _noisy(0.05),
    "noise .2": _noisy(0.2),
    "noise .5": _noisy(0.5),
    "noise 1": _noisy(1.0),
}
"""What hubs do to a base, by name."""
