"""What hubs make of a base, with layers, heads, experts and averages, and what is said of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tests.sdk.core.fingerprints.planted import (
    DERIVED,
    HIDDEN,
    LAYERS,
    TOKENS,
    WIDTH,
    Tensors,
    model,
)

Matrix = npt.NDArray[np.float32]


def with_head(seed: int) -> Tensors:
    """A model whose head is not its embedding."""
    return model(seed) | {"lm_head": model(seed + 100)["embed"]}


def changed(base: Tensors, seed: int, sigmas: float = 0.05, where: str = ".") -> Tensors:
    """Independent changes of every weight of tensors whose names match."""
    draw = np.random.default_rng(seed)
    return {
        name: (values + sigmas * values.std() * draw.standard_normal(values.shape)).astype("f4")
        if values.ndim > 1 and re.search(where, name)
        else values
        for name, values in base.items()
    }


def layers(*origins: tuple[Tensors, int]) -> Tensors:
    """Layers of models one after the other; the first model has the rest."""
    rest = {name: values for name, values in origins[0][0].items() if "layers" not in name}
    return rest | {
        name.replace(f"layers.{i}.", f"layers.{at}."): values
        for at, (of, i) in enumerate(origins)
        for name, values in of.items()
        if name.startswith(f"layers.{i}.")
    }


def of(base: Tensors, *order: int) -> Tensors:
    """Layers of one model in another order."""
    return layers(*((base, i) for i in order))


def average(first: Tensors, second: Tensors, share: float) -> Tensors:
    weight = np.float32(share)
    return {name: weight * first[name] + (1 - weight) * second[name] for name in first}


def low_rank(base: Tensors, where: str) -> Tensors:
    """Adapters of rank 8, merged."""
    draw, merged = np.random.default_rng(5), dict(base)
    for name, values in base.items():
        if re.search(where, name):
            rows, columns = values.shape
            update = draw.standard_normal((rows, 8)) @ draw.standard_normal((8, columns))
            merged[name] = (values + 0.1 * values.std() * update).astype(np.float32)
    return merged


def rounded(base: Tensors, bits: int) -> Tensors:
    """Blocks of 32 values, each with a scale."""

    def each(values: Matrix) -> Matrix:
        blocks = values.reshape(-1, 32)
        scale = np.abs(blocks).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
        return np.asarray((np.round(blocks / scale) * scale).reshape(values.shape), np.float32)

    return {name: each(values) if values.ndim > 1 else values for name, values in base.items()}


def vocabulary(base: Tensors, added: int) -> Tensors:
    """Random rows behind those of both tables; or fewer, from all places."""
    draw, kept = np.random.default_rng(5), np.random.default_rng(6).permutation(TOKENS)

    def each(values: Matrix) -> Matrix:
        rows = values.std() * draw.standard_normal((max(0, added), WIDTH)).astype(np.float32)
        return np.concatenate([values[np.sort(kept[: TOKENS + min(0, added)])], rows])

    return base | {name: each(base[name]) for name in ("embed", "lm_head")}


def head(base: Tensors, name: str, rows: int) -> Tensors:
    """Another head."""
    rest = {key: values for key, values in base.items() if key != "lm_head"}
    made = 0.02 * np.random.default_rng(8).standard_normal((rows, WIDTH)).astype(np.float32)
    return rest | {name: made}


def experts(base: Tensors, count: int) -> Tensors:
    """Each unit as several, and a router."""
    rest = {name: values for name, values in base.items() if not name.endswith(("up", "down"))}
    router = np.random.default_rng(3).standard_normal((count, WIDTH)).astype(np.float32)
    for i in range(LAYERS):
        rest[f"layers.{i}.router"] = router
        for at in range(count):
            for kind in ("up", "down"):
                rest[f"layers.{i}.experts.{at}.{kind}"] = base[f"layers.{i}.{kind}"]
    return rest


def narrower(base: Tensors, kept: int) -> Tensors:
    """Some of the hidden units."""
    units = np.sort(np.random.default_rng(0).permutation(HIDDEN)[:kept])
    cut = {f"layers.{i}.up": base[f"layers.{i}.up"][units] for i in range(LAYERS)}
    cut |= {f"layers.{i}.down": base[f"layers.{i}.down"][:, units] for i in range(LAYERS)}
    return base | cut


def shard(base: Tensors) -> Tensors:
    """The first of two that compute in parallel."""
    rows = ("embed", "lm_head", "q", "k", "v", "up")
    return {
        name: values[: len(values) // 2]
        if name.endswith(rows)
        else np.ascontiguousarray(values[:, : values.shape[-1] // 2])
        for name, values in base.items()
        if values.ndim > 1
    }


def in_gguf(name: str) -> str:
    """The name that llama.cpp has for a tensor."""
    names = {"embed": "token_embd", "lm_head": "output", "up": "ffn_up", "down": "ffn_down"}
    names |= {kind: f"attn_{kind}" for kind in "qkvo"}
    rest, _, kind = name.replace("layers", "blk").rpartition(".")
    return f"{rest}.{names.get(kind, kind)}.weight".removeprefix(".")


def conv1d(base: Tensors) -> Tensors:
    """Matrices of layers as GPT-2 stores them."""
    return {k: np.ascontiguousarray(v.T) if "layers" in k else v for k, v in base.items()}


def nameless(base: Tensors) -> Tensors:
    return {f"val_{at}_q": values for at, values in enumerate(base.values())}


BASE, STRANGER = with_head(0), with_head(1)
FIRST, SECOND, THIRD = (changed(BASE, seed, 0.1) for seed in (11, 12, 13))

CHANGED: Final = "changed, as by fine-tuning or rounding: N% of lines unchanged, {} in base"
IN_PLACE: Final = CHANGED.format("all 26 tensors at their place")
OTHERS: Final = CHANGED.replace("of lines", "of the other lines")
UP_SCALED: Final = "depth up-scaled: layers 0-2 and 1-3 of base, in this order"
GREW: Final = "experts 0-3 of every layer grew from up, down of base"
ALL_ELSE: Final = ", all else of base"
LAYOUT: Final = "another layout than base's: "
ALONE: Final = "changed in {} alone, as by fine-tuning or rounding: N% of lines unchanged"

Made = Callable[[], Tensors]

SAID: Final[Mapping[str, tuple[Made, Sequence[str]]]] = {
    "copy": (lambda: BASE, ["copy of base: all lines of both are equal"]),
    "wrapped": (
        lambda: {f"module.{name}": values for name, values in BASE.items()},
        ["copy of base: all lines of both are equal"],
    ),
    "gguf": (
        lambda: {in_gguf(name): values for name, values in BASE.items()},
        [f"{LAYOUT}renamed, all of base"],
    ),
    "nameless": (lambda: nameless(BASE), [f"{LAYOUT}renamed, all of base"]),
    "nameless, changed": (lambda: changed(nameless(BASE), 3), [f"{LAYOUT}renamed", IN_PLACE]),
    "transposed": (
        lambda: DERIVED["transposed"](BASE),
        [f"{LAYOUT}transposed embed, q, k, v, o, up and 2 more, all of base"],
    ),
    "conv1d": (lambda: conv1d(BASE), [f"{LAYOUT}transposed q, k, v, o, up, down{ALL_ELSE}"]),
    "conv1d, changed": (
        lambda: changed(conv1d(BASE), 3),
        [f"{LAYOUT}transposed q, k, v, o, up, down", IN_PLACE],
    ),
    "fused": (lambda: DERIVED["fused"](BASE), [f"{LAYOUT}fused qkv{ALL_ELSE}"]),
    "permuted units": (
        lambda: DERIVED["permuted units"](BASE),
        [f"{LAYOUT}another order in up, down{ALL_ELSE}"],
    ),
    "permuted units, conv1d": (
        lambda: conv1d(DERIVED["permuted units"](BASE)),
        [f"{LAYOUT}transposed q, k, v, o, up, down; another order in up, down{ALL_ELSE}"],
    ),
    "repeated heads": (
        lambda: DERIVED["repeated heads"](BASE),
        [f"{LAYOUT}rows repeated in k, v{ALL_ELSE}"],
    ),
    "fine-tune": (lambda: changed(BASE, 3), [IN_PLACE]),
    "heavy": (lambda: changed(BASE, 3, 0.3), [IN_PLACE]),
    "frozen bottom": (
        lambda: changed(BASE, 3, 0.1, "layers.[23]|head"),
        [ALONE.format("layers 2-3, lm_head")],
    ),
    "adapter": (lambda: low_rank(BASE, "[qv]$"), [ALONE.format("q, v of every layer")]),
    "8 bits": (lambda: rounded(BASE, 8), [IN_PLACE]),
    "4 bits": (lambda: rounded(BASE, 4), [IN_PLACE]),
    "more tokens": (
        lambda: vocabulary(BASE, 64),
        [f"vocabulary grown by 64 rows{ALL_ELSE}"],
    ),
    "more tokens, changed": (
        lambda: changed(vocabulary(BASE, 64), 3),
        [
            "vocabulary grown by 64 rows",
            OTHERS.format("all 26 tensors at their place"),
        ],
    ),
    "fewer tokens": (
        lambda: vocabulary(BASE, -350),
        [f"vocabulary cut to 250 rows{ALL_ELSE}"],
    ),
    "new head": (
        lambda: head(BASE, "lm_head", TOKENS),
        [f"head changed: lm_head is not base's{ALL_ELSE}"],
    ),
    "classifier": (
        lambda: head(BASE, "score.weight", 5),
        [f"head changed: score.weight is not base's{ALL_ELSE}"],
    ),
    "no head": (
        lambda: {name: values for name, values in BASE.items() if name != "lm_head"},
        ["part of base: layers 0-3, embed"],
    ),
    "one layer": (
        lambda: {name: values for name, values in BASE.items() if "layers.1" in name},
        ["part of base: layer 1"],
    ),
    "dropped": (lambda: of(BASE, 0, 2), [f"layers 1, 3 of base dropped{ALL_ELSE}"]),
    "dropped, changed": (
        lambda: changed(of(BASE, 0, 2), 3),
        ["layers 1, 3 of base dropped", CHANGED.format("all 14 tensors found")],
    ),
    "moved": (
        lambda: of(BASE, 0, 2, 1, 3),
        [f"layers of base in another order: 0, 2, 1 and 3{ALL_ELSE}"],
    ),
    "up-scaled": (lambda: of(BASE, 0, 1, 2, 1, 2, 3), [f"{UP_SCALED}{ALL_ELSE}"]),
    "up-scaled, changed": (
        lambda: changed(of(BASE, 0, 1, 2, 1, 2, 3), 3),
        [UP_SCALED, CHANGED.format("all 38 tensors found")],
    ),
    "experts": (lambda: experts(BASE, 4), [f"{GREW}{ALL_ELSE}"]),
    "experts, changed": (
        lambda: changed(experts(BASE, 4), 3),
        [GREW, CHANGED.format("all 50 tensors found")],
    ),
    "stacked experts": (
        lambda: DERIVED["experts"](BASE),
        [f"all 4 experts of every layer grew from up, down of base{ALL_ELSE}"],
    ),
    "narrower": (
        lambda: narrower(BASE, 256),
        [f"narrower than base: up, down from 384 to 256{ALL_ELSE}"],
    ),
    "shard": (
        lambda: shard(BASE),
        [
            "vocabulary cut to 300 rows",
            "narrower than base: q, k, v, o from 128 to 64; up, down from 384 to 192, N% of "
            "comparable lines unchanged",
        ],
    ),
    "assembled": (
        lambda: layers((BASE, 0), (BASE, 1), (STRANGER, 2), (STRANGER, 3)),
        ["assembled: layers 0-1, embed, lm_head from base; layers 2-3 from stranger"],
    ),
    "assembled, changed": (
        lambda: changed(layers((BASE, 0), (BASE, 1), (STRANGER, 2), (STRANGER, 3)), 3),
        [
            "assembled: layers 0-1, embed, lm_head from base; layers 2-3 from stranger",
            "changed, as by fine-tuning or rounding: N% of lines unchanged",
        ],
    ),
    "assembled in order": (
        lambda: layers((BASE, 0), (BASE, 1), (BASE, 2), (STRANGER, 1), (STRANGER, 2)),
        ["assembled: layers 0-2 of base, 1-2 of stranger, in this order; embed, lm_head from base"],
    ),
    "embedding of another": (
        lambda: BASE | {"embed": STRANGER["embed"]},
        ["assembled: layers 0-3, lm_head from base; embed from stranger"],
    ),
    "of a model not given": (
        lambda: layers((BASE, 0), (BASE, 1), (with_head(5), 2)),
        ["layers 0-1 of base; its layer 2 is not found in base, all else of base"],
    ),
    "beside another network": (
        lambda: BASE | {f"vision.{name}": values for name, values in with_head(6).items()},
        [
            "its layers 0-3 of vision.layers are not found in base",
            f"not found in base: vision.embed, vision.lm_head{ALL_ELSE}",
        ],
    ),
    "rounded, some changed": (
        lambda: changed(rounded(BASE, 8), 3, 0.03, "up|down"),
        [IN_PLACE],
    ),
    "narrower, changed, gguf": (
        lambda: {
            in_gguf(name): values
            for name, values in changed(narrower(BASE, 128), 3, 0.03, "up|down").items()
        },
        [
            "narrower than base: ffn_up, ffn_down from 384 to 128",
            f"{LAYOUT}renamed{ALL_ELSE}",
        ],
    ),
    "a mixed layer": (
        lambda: (
            BASE | {f"layers.1.{kind}": BASE[f"layers.2.{kind}"] for kind in ("q", "k", "o", "up")}
        ),
        ["part of base: layers 0, 2-3, v, down of layer 1, embed, lm_head"],
    ),
    "embedding reused": (
        lambda: with_head(7) | {"embed": BASE["embed"]},
        ["lines in common with base, in embed"],
    ),
    "stranger": (
        lambda: with_head(9),
        ["no model given is an ancestor, as far as lines show; absence proves nothing"],
    ),
}
"""How each is made, and the sentences about it, with N for numbers."""
