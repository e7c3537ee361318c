"""Measure reading of quantised checkpoints: processor time a value, and memory.

A matrix of 4,096 by 4,096, as of a model of 8 billion parameters, is read in stretches by one core
from the page cache. Beside it lies the same matrix in BF16.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.harness import extra_memory, nanoseconds_a_value, read_through
from benchmarks.report import Findings, Row
from modelkin.checkpoints import StoredTensor, open_checkpoint
from tests.support.models.quantised_checkpoints import SCHEMES, write_quantised

LIBRARIES = ("numpy",)

SIZE, QUICK_SIZE = (4096, 4096), (256, 512)
ROUNDS, QUICK_ROUNDS = 5, 1
MOST_NS = 20.0
MEMORY = 64 << 20


def run(quick: bool) -> Findings:
    """Read a copy by each scheme."""
    shape, rounds = (QUICK_SIZE, QUICK_ROUNDS) if quick else (SIZE, ROUNDS)
    weights = np.random.default_rng(0).normal(0, 0.02, shape).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as name:
        folder = Path(name)
        plain = folder / "plain.safetensors"
        save_file({"m.weight": torch.from_numpy(weights).bfloat16()}, plain)
        beside = f"BF16, {nanoseconds_a_value(_tensor(plain), rounds):.1f} ns"
        rows = [
            _row(
                scheme, write_quantised(folder / "q", {"m.weight": weights}, scheme), rounds, beside
            )
            for scheme in SCHEMES
        ]
        largest = 0
        for scheme in ("GPTQ, 4 bits, in the order of activations", "AWQ", "nf4"):
            tensor = _tensor(write_quantised(folder / "q", {"m.weight": weights}, scheme))
            largest = max(largest, extra_memory(partial(read_through, tensor)) or 0)
    memory = Row(
        "memory of a pass, the largest of GPTQ's, AWQ's and nf4's",
        f"{largest / 2**20:.0f} MiB",
        f"the matrix itself, {4 * weights.size / 2**20:.0f} MiB",
        "",
        "≤ 64 MiB",
        largest <= MEMORY,
    )
    return Findings([*rows, memory])


def _row(scheme: str, path: Path, rounds: int, beside: str) -> Row:
    took = nanoseconds_a_value(_tensor(path), rounds)
    figure = f"processor time a value, {scheme}"
    return Row(figure, f"{took:.1f} ns", beside, "", f"≤ {MOST_NS:.0f} ns", took <= MOST_NS)


def _tensor(path: Path) -> StoredTensor:
    (tensor,) = open_checkpoint(path).tensors
    return tensor
