"""Measure LoRA adapters: time and memory of a large difference, and whether tasks find each other.

The difference is of one layer of d = 8,192 with factors of rank 64, 67 million parameters. The
tasks are those of ``benchmarks.lora_tasks``, drawn several times.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from benchmarks.harness import extra_memory
from benchmarks.lora_tasks import PAIRS, SHAPES, same_task_auc, trained
from benchmarks.report import Findings, Row, Table, duration
from modelkin import Layout, Support, select_support
from modelkin.checkpoints import importance_chunks, open_checkpoint, select_from_checkpoint
from modelkin.core.similarity.chance import expected_matrix, tensor_sizes
from modelkin.core.similarity.overlap import similarity

LIBRARIES = ("numpy", "numba", "torch", "scikit-learn")

D, RANK = 8192, 64
MEMORY = 256 << 20
DRAWS = 6
FRACTIONS = (0.05, 0.1, 0.2)
LAYOUT = Layout.of((f"l{n}.weight", shape) for n, shape in enumerate(SHAPES))


def run(quick: bool) -> Findings:
    """Measure one large difference, then the tasks."""
    rows = _large(256 if quick else D, 4 if quick else RANK)
    return Findings(rows, [_tasks(1, epochs=1) if quick else _tasks(DRAWS, epochs=5)])


def _large(d: int, rank: int) -> list[Row]:
    """The memory of a selection and the processor's time of a pass."""
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as folder:
        adapter = open_checkpoint(_adapter(Path(folder), d, rank))
        passes = importance_chunks(adapter)
        begin = time.process_time()
        for _ in passes():
            pass
        seconds = time.process_time() - begin
        memory = extra_memory(lambda: select_from_checkpoint(adapter))
    what = f"d = {d:,}, r = {rank}"
    size = 0 if memory is None else memory
    return [
        Row(
            f"memory of a support, {what}",
            f"{size / 2**20:.0f} MiB",
            f"the difference itself, {4 * d * d / 2**20:.0f} MiB",
            "",
            "≤ 256 MiB",
            size <= MEMORY,
        ),
        Row(f"processor time of a pass, {what}", duration(seconds), "", "", "", None),
    ]


def _adapter(folder: Path, d: int, rank: int) -> Path:
    draw = np.random.default_rng(0).standard_normal
    names = ("base_model.model.layer.lora_A.weight", "base_model.model.layer.lora_B.weight")
    factors = {
        name: draw(shape, np.float32)
        for name, shape in zip(names, ((rank, d), (d, rank)), strict=True)
    }
    save_file(factors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["layer"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _tasks(draws: int, epochs: int) -> Table:
    """Same-task AUC by what is compared and by K, over the draws."""
    found: dict[str, list[float]] = {}
    for draw in range(draws):
        adapters = trained(draw, epochs)
        products = [_flat([b @ a for a, b in each.values()]) for each in adapters]
        factors = [_flat([m for pair in each.values() for m in pair]) for each in adapters]
        for fraction in FRACTIONS:
            plain = [select_support(each, fraction=fraction) for each in factors]
            supports = [select_support(each, fraction=fraction) for each in products]
            for name, scores in (
                ("factors A and B: S", _similarities(plain)),
                ("product BA: S", _similarities(supports)),
                ("product BA: kappa", _kappas(supports)),
            ):
                row = f"{name}, K = {fraction:.0%}"
                found.setdefault(row, []).append(same_task_auc(list(scores)))
    rows = [[name, *_spread(values)] for name, values in found.items()]
    return Table(
        f"Whether two of twelve adapters are of one task: AUC over {draws} draws of base, tasks, "
        f"data and starts",
        ["compared by", "least", "mean", "most"],
        rows,
    )


def _spread(values: list[float]) -> list[str]:
    return [f"{each:.2f}" for each in (min(values), statistics.mean(values), max(values))]


def _flat(matrices: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    flat: npt.NDArray[np.float32] = np.concatenate([matrix.reshape(-1) for matrix in matrices])
    return np.abs(flat)


def _similarities(supports: list[Support]) -> npt.NDArray[np.float64]:
    return np.array([similarity(supports[i], supports[j]) for i, j in PAIRS])


def _kappas(supports: list[Support]) -> npt.NDArray[np.float64]:
    counts = np.stack([LAYOUT.counts(support.indices) for support in supports])
    chance = expected_matrix(counts, tensor_sizes(LAYOUT))[tuple(zip(*PAIRS, strict=True))]
    return np.asarray((_similarities(supports) - chance) / (1 - chance))
