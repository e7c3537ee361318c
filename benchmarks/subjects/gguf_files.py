"""Measure reading of GGUF files: processor time a value by type, and memory.

A matrix of 4,096 by 4,096, as of a model of 8 billion parameters, is read in stretches by one core
from the page cache; so is one whose rows of q are in llama.cpp's order.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import gguf
import numpy as np

from benchmarks.harness import extra_memory, nanoseconds_a_value, read_through
from benchmarks.report import Findings, Row
from modelkin.checkpoints import StoredTensor, open_checkpoint
from tests.support.models.gguf_files import write_blocks

LIBRARIES = ("numpy", "gguf")

SIZE, QUICK_SIZE = (4096, 4096), (64, 512)
ROUNDS, QUICK_ROUNDS = 5, 1
MOST_NS = 20.0
MEMORY = 64 << 20
COMMON = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
OTHERS = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "IQ4_NL", "IQ4_XS")
SLOW = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
"""Types of few bits, whose values the package finds in tables."""


def run(quick: bool) -> Findings:
    """Read a matrix of each type."""
    shape, rounds = (QUICK_SIZE, QUICK_ROUNDS) if quick else (SIZE, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as name:
        folder = Path(name)
        beside = f"F16, {nanoseconds_a_value(_tensor(folder, 'F16', shape), rounds):.1f} ns"
        rows = []
        for kind in (*COMMON, *OTHERS, *SLOW):
            took = nanoseconds_a_value(_tensor(folder, kind, shape), rounds)
            rows.append(_row(f"processor time a value, {kind}", took, beside, kind in COMMON))
        turned = _tensor(folder, "Q4_K", shape, "blk.0.attn_q.weight", "llama")
        took = nanoseconds_a_value(turned, rounds)
        rows.append(_row("processor time a value, q of Q4_K, put in order", took, beside, True))
        largest = max(
            extra_memory(partial(read_through, _tensor(folder, kind, shape))) or 0
            for kind in ("Q4_K", "IQ3_S")
        )
    memory = Row(
        "memory of a pass, the largest of Q4_K's and IQ3_S's",
        f"{largest / 2**20:.0f} MiB",
        f"the matrix itself, {4 * shape[0] * shape[1] / 2**20:.0f} MiB",
        "",
        "≤ 64 MiB",
        largest <= MEMORY,
    )
    return Findings([*rows, memory])


def _row(figure: str, took: float, beside: str, gated: bool) -> Row:
    if not gated:
        return Row(figure, f"{took:.1f} ns", beside, "")
    return Row(figure, f"{took:.1f} ns", beside, "", f"≤ {MOST_NS:.0f} ns", took <= MOST_NS)


def _tensor(
    folder: Path,
    kind: str,
    shape: tuple[int, int],
    name: str = "w.weight",
    architecture: str = "other",
) -> StoredTensor:
    """A matrix of any blocks: the time does not depend on their values."""
    size, length = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rows, columns = shape
    blocks = np.random.default_rng(0).integers(1, 60, (rows, columns // size * length), np.uint8)
    path = write_blocks(folder / f"{kind}-{name}.gguf", blocks, kind, name, architecture)
    (tensor,) = open_checkpoint(path).tensors
    return tensor
