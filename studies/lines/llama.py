"""What hubs make of a LLaMA-like checkpoint: other layouts, names, units and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from studies.lines.derivatives import Derivative
from studies.lines.guises import noisy, rounded, sharded
from studies.lines.networks.texts import LLAMA
from studies.lines.rounding import ROUNDED
from studies.lines.trained import relayered
from studies.lines.zoo import Tensors

__all__ = ["WRITERS", "guises", "permuted_units", "rounded_as_published"]

_HEADS: Final = 8
_KEY_HEADS: Final = 4
WRITERS: Final = ("o_proj.weight", "down_proj.weight")
"""Ends of the names of matrices that write into the stream."""
_GGUF: Final = {
    "model.layers.": "blk.",
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
}


def guises(base: Tensors, seed: int) -> Iterator[Derivative]:
    """All that is made of it without training.

    Args:
        base: its weights.
        seed: of permutations, signs, scales and noise.
    """
    draw = np.random.default_rng(seed)
    for name in ROUNDED:
        yield rounded(base, name)
    for name in ("Q8_0", "Q4_0"):
        yield _as_gguf(rounded(base, name))
    yield _fused(base)
    turned = {k: np.ascontiguousarray(v.T) for k, v in base.items()}
    yield Derivative("transposed", turned)
    for parts in (2, 4):
        yield sharded(base, 0, parts)
    yield permuted_units(base, draw)
    yield _permuted_stream(base, draw)
    yield _scaled(base, draw)
    yield _flipped(base, draw)
    for sigmas in (0.05, 0.2, 0.5):
        yield noisy(base, sigmas, draw)
    yield _experts(base)
    yield Derivative("up-scaled", *relayered(base, LLAMA.layers, [0, 1, 2, 1, 2, 3]))


def rounded_as_published(base: Tensors) -> Iterator[Derivative]:
    """Types of GGUF under its names, and types that leave the tables of tokens as they are."""
    for name in ROUNDED:
        if name.startswith("Q"):
            yield _as_gguf(rounded(base, name))
    tables = {k: v for k, v in base.items() if k.endswith(LLAMA.tokens)}
    for name in ("int4, groups of 128", "nf4"):
        yield Derivative(f"{name}, not of tokens", rounded(base, name).tensors | tables)


def _as_gguf(of: Derivative) -> Derivative:
    """Names of GGUF, and the rows of queries and keys in its order."""
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in of.tensors.items():
        new, moved = name, values
        for old, short in _GGUF.items():
            new = new.replace(old, short)
        for kind, heads in (("q_proj", _HEADS), ("k_proj", _KEY_HEADS)):
            if kind in name:
                split = values.reshape(heads, 2, len(values) // heads // 2, -1)
                moved = np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))
        tensors[new], origins[new] = moved, (name,)
    return Derivative(f"{of.name} with the names and order of GGUF", tensors, origins)


def _fused(base: Tensors) -> Derivative:
    tensors, origins = dict(base), dict[str, tuple[str, ...]]()
    for name in base:
        for first, kinds, whole in (
            ("q_proj", ("q_proj", "k_proj", "v_proj"), "qkv_proj"),
            ("gate_proj", ("gate_proj", "up_proj"), "gate_up_proj"),
        ):
            if first in name:
                parts = tuple(name.replace(first, kind) for kind in kinds)
                origins[name.replace(first, whole)] = parts
                tensors[name.replace(first, whole)] = np.concatenate(
                    [tensors.pop(part) for part in parts]
                )
    renamed = {f"base_model.model.{name}": values for name, values in tensors.items()}
    sources = {f"base_model.model.{name}": origins.get(name, (name,)) for name in tensors}
    return Derivative("fused and renamed", renamed, sources)


def permuted_units(base: Tensors, draw: np.random.Generator) -> Derivative:
    """Hidden units, and the value dimensions of each key-value head."""
    tensors = dict(base)
    for name in base:
        if "gate_proj" in name:
            up, down = name.replace("gate", "up"), name.replace("gate", "down")
            order = draw.permutation(len(base[name]))
            tensors |= {name: base[name][order], up: base[up][order]}
            tensors[down] = np.ascontiguousarray(base[down][:, order])
        if "v_proj" in name:
            out = name.replace("v_proj", "o_proj")
            size = len(base[name]) // _KEY_HEADS
            orders = [draw.permutation(size) for _ in range(_KEY_HEADS)]
            of_values = np.concatenate([h * size + order for h, order in enumerate(orders)])
            repeated = [orders[h * _KEY_HEADS // _HEADS] for h in range(_HEADS)]
            of_out = np.concatenate([h * size + order for h, order in enumerate(repeated)])
            tensors[name] = base[name][of_values]
            tensors[out] = np.ascontiguousarray(base[out][:, of_out])
    return Derivative("permuted units", tensors)


def _permuted_stream(base: Tensors, draw: np.random.Generator) -> Derivative:
    order = draw.permutation(256)
    tensors = {
        name: np.ascontiguousarray(
            values[order] if values.ndim == 1 or name.endswith(WRITERS) else values[:, order]
        )
        for name, values in base.items()
    }
    return Derivative("permuted stream", tensors)


def _flipped(base: Tensors, draw: np.random.Generator) -> Derivative:
    signs = draw.choice(np.array([-1, 1], np.float32), 256)
    tensors = {
        name: values
        if values.ndim == 1
        else values * (signs[:, np.newaxis] if name.endswith(WRITERS) else signs)
        for name, values in base.items()
    }
    return Derivative("flipped signs", tensors)


def _scaled(base: Tensors, draw: np.random.Generator) -> Derivative:
    """Scales that cancel: gains of norms in what reads them, and units of up against down."""

    def scales(count: int) -> npt.NDArray[np.float32]:
        return draw.lognormal(0, 1, count).astype(np.float32)

    tensors = dict(base)
    readers: dict[str, tuple[str, ...]] = {
        "input": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    }
    readers["post_attention"] = ("mlp.gate_proj", "mlp.up_proj")
    for name in base:
        if name.endswith("up_proj.weight"):
            units, down = scales(len(base[name])), name.replace("up_proj", "down_proj")
            tensors[name] = tensors[name] * units[:, np.newaxis]
            tensors[down] = tensors[down] / units
        for kind, read in readers.items():
            if name.endswith(f"{kind}_layernorm.weight"):
                gains = scales(256)
                tensors[name] = tensors[name] / gains
                layer = name.removesuffix(f"{kind}_layernorm.weight")
                for reader in read:
                    tensors[f"{layer}{reader}.weight"] = tensors[f"{layer}{reader}.weight"] * gains
    return Derivative("folded gains and scaled units", tensors)


def _experts(base: Tensors) -> Derivative:
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in base.items():
        copies = [name]
        if ".mlp." in name:
            copies = [name.replace(".mlp.", f".mlp.experts.{i}.") for i in range(4)]
        for copy in copies:
            tensors[copy], origins[copy] = values, (name,)
    return Derivative("four equal experts", tensors, origins)
