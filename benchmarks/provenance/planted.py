"""A small LLaMA of random weights in a folder, for pairs that need no training."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.provenance.architectures import MADE, WIDTH
from benchmarks.provenance.pairs import Pair, strangers_of
from benchmarks.provenance.stored import Model, loaded, save
from benchmarks.provenance.surgery import fused, permuted_units, renamed, rounded, with_layers

__all__ = ["planted", "planted_pairs"]

TOKENS: Final = 320
LLAMA: Final = MADE[0]


def planted(seed: int, folder: Path, layers: int = 2) -> Path:
    """Write a model of random weights; returns its folder."""
    draw = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(LLAMA.vocabulary, (TOKENS, WIDTH))
    for number in range(layers):
        prefix = LLAMA.layer.format(number)
        shapes |= {prefix + part: (WIDTH, WIDTH) for part in LLAMA.streams}
        for part, axis in LLAMA.units.items():
            shapes[prefix + part] = (2 * WIDTH, WIDTH) if axis == 0 else (WIDTH, 2 * WIDTH)
    tensors = {
        name: (0.02 * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    tensors["model.norm.weight"] = np.ones(WIDTH, np.float32)
    config = {"model_type": LLAMA.kind, "architectures": ["LlamaForCausalLM"], LLAMA.depth: layers}
    return save(Model(config, tensors, folder), folder)


def planted_pairs(folder: Path) -> list[Pair]:
    """Derivatives of one model, and strangers: a few of each kind."""
    base, *others = (planted(seed, folder / f"{seed}") for seed in range(3))
    model = loaded(base)
    surgeries = {
        "renamed": renamed,
        "fused or split": fused,
        "hidden units permuted": permuted_units,
        "8 bits, dequantised": rounded(8),
        "layers dropped": with_layers((1,)),
    }
    kin = [
        Pair(kind, save(change(model, LLAMA), folder / kind), base, are_kin=True)
        for kind, change in surgeries.items()
    ]
    return kin + strangers_of([[base, *others]], [(pair.first, others[0]) for pair in kin])
