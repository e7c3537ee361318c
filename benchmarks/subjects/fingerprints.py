"""Measure fingerprints: processor time a value over two reads of it, memory, and equal keys.

Matrices of the shapes of real models, whose columns have scales of their own, are in memory. A file
of BF16 matrices is read by one thread from the page cache, and a model of 7 billion parameters
takes as long a value.
"""

from __future__ import annotations

import math
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

from benchmarks.harness import (
    Contender,
    extra_memory,
    fastest_read,
    race,
    use_kernels,
)
from benchmarks.report import Findings, Row, range_of
from modelkin.checkpoints import (
    Checkpoint,
    Reading,
    default_rule,
    fingerprint,
    open_checkpoint,
    select_from_checkpoint,
    weights_of,
)
from modelkin.core.fingerprints.matrices import part_of
from modelkin.core.fingerprints.tensor_lines import TensorLines, lines_of, read_lines
from modelkin.torch.fingerprints.matrices import DeviceMatrix, matrices_of
from tests.support.models.counted_files import CountedFiles

LIBRARIES = ("numpy", "numba")

SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008), (32000, 2048), (384, 1536), (384, 384))
QUICK_SHAPES = ((128, 128),)
FILE_TENSORS, QUICK_FILE_TENSORS = 30, 2
MOST_NS = 16.0
MEMORY = 100 << 20
SEVEN_BILLION, MOST_MINUTES = 6.7e9, 3.0

OURS = "modelkin"
Floats = npt.NDArray[np.float32]


def run(quick: bool) -> Findings:
    """Measure each shape, then the file."""
    use_kernels("fast")
    rows = [
        row for shape in (QUICK_SHAPES if quick else SHAPES) for row in _of_matrix(shape, quick)
    ]
    in_torch = _in_torch_operations(QUICK_SHAPES[0] if quick else SHAPES[0], quick)
    return Findings([*rows, in_torch, *_of_file(quick)])


def _of_matrix(shape: tuple[int, int], quick: bool) -> list[Row]:
    matrix = _matrix(shape)
    run = partial(_lines, matrix)
    reads = fastest_read(matrix.reshape(-1))
    result = race([*reads, Contender(OURS, run)], 1 if quick else 5, time.thread_time)
    read = result.fastest([each.name for each in reads])
    ratio = result.ratio(OURS, read).times(0.5)
    nanoseconds = result.seconds(OURS).times(1e9 / matrix.size)
    limit = result.seconds(read).times(2e9 / matrix.size)
    figure = f"{shape[0]:,} x {shape[1]:,}"
    return [
        Row(
            f"{figure}: processor time a value",
            f"{nanoseconds.median:.1f} ns",
            f"two reads, {read.removeprefix('one read, ')}: {limit.median:.2f} ns",
            range_of(ratio),
            f"≤ {MOST_NS:g} ns",
            nanoseconds.median <= MOST_NS,
        ),
        _identical(figure, matrix),
    ]


def _in_torch_operations(shape: tuple[int, int], quick: bool) -> Row:
    """The operations that a CUDA device carries out, here of a tensor in this machine's memory."""
    matrix = _matrix(shape)
    tensor, threads = torch.from_numpy(matrix), torch.get_num_threads()

    def in_torch() -> TensorLines:
        return lines_of("matrix", matrix.shape, map(DeviceMatrix, matrices_of(tensor)))

    torch.set_num_threads(1)
    try:
        ways = [Contender(OURS, partial(_lines, matrix)), Contender("torch", in_torch)]
        result = race(ways, 1 if quick else 5, time.thread_time)
    finally:
        torch.set_num_threads(threads)
    own, other = _lines(matrix), in_torch()
    same = own.identity == other.identity and own.signature == other.signature
    figure = f"{shape[0]:,} x {shape[1]:,}: in torch operations"
    nanoseconds = 1e9 / matrix.size
    return Row(
        f"{figure}, on a CPU tensor",
        f"{result.seconds('torch').median * nanoseconds:.1f} ns",
        f"numba: {result.seconds(OURS).median * nanoseconds:.1f} ns",
        range_of(result.ratio("torch", OURS)),
        "bit-identical",
        same,
    )


def _of_file(quick: bool) -> list[Row]:
    shape = QUICK_SHAPES[0] if quick else (4096, 4096)
    count = QUICK_FILE_TENSORS if quick else FILE_TENSORS
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as folder:
        path = Path(folder) / "model.safetensors"
        one = _matrix(shape)
        halves = {
            f"layer.{at}": torch.from_numpy(np.roll(one, at, 1)).bfloat16() for at in range(count)
        }
        save_file(halves, path)
        del halves
        checkpoint = open_checkpoint(path)
        values = sum(tensor.size for tensor in checkpoint.tensors)
        ways = [
            Contender(OURS, partial(fingerprint, checkpoint, threads=1)),
            Contender("two reads", partial(_two_reads, checkpoint)),
        ]
        result = race(ways, 1 if quick else 3, time.process_time)
        grown = extra_memory(partial(fingerprint, checkpoint, threads=1))
        pushed = _of_push(path, quick)
    nanoseconds = result.seconds(OURS).times(1e9 / values)
    minutes = nanoseconds.median * SEVEN_BILLION / 60e9
    what = f"a file of BF16, {values * 2 / 1e9:.1f} GB"
    beside = f"two reads, as float32: {result.seconds('two reads').median / values * 1e9:.1f} ns"
    return [
        Row(
            f"{what}: processor time a value",
            f"{nanoseconds.median:.1f} ns",
            beside,
            range_of(result.ratio(OURS, "two reads")),
            f"≤ {MOST_NS:g} ns",
            nanoseconds.median <= MOST_NS,
        ),
        Row(
            "7 billion parameters, at that rate",
            f"{minutes:.1f} min of a processor",
            "",
            "",
            f"≤ {MOST_MINUTES:g} min",
            minutes <= MOST_MINUTES,
        ),
        _memory(what, grown, values),
        *pushed,
    ]


def _of_push(path: Path, quick: bool) -> list[Row]:
    """All that a push sends of a file: from one reading, and from one for each."""
    checkpoint = open_checkpoint(path)
    ways = [
        Contender(OURS, partial(_in_one_reading, checkpoint)),
        Contender("apart", partial(_apart, checkpoint)),
    ]
    busy = race(ways, 1 if quick else 3, time.process_time)
    size = path.stat().st_size
    bytes_read = []
    for run in (_in_one_reading, _apart):
        files = CountedFiles(size // 4)
        run(open_checkpoint(path, open_file=files.open))
        bytes_read.append(files.came / size)
    memory = [extra_memory(partial(run, checkpoint)) or 0 for run in (_in_one_reading, _apart)]
    what = "support, digests and fingerprint of that file"
    return [
        Row(
            f"{what}: bytes from a disk, where a quarter stays in memory",
            f"{bytes_read[0]:.2f} times the file",
            f"apart: {bytes_read[1]:.2f} times",
            f"{bytes_read[0] / bytes_read[1]:.3f}×",
            "≤ 1.01 times",
            bytes_read[0] <= 1.01,
        ),
        Row(
            f"{what}: processor time, all of it in memory",
            f"{busy.seconds(OURS).median:.1f} s",
            f"apart: {busy.seconds('apart').median:.1f} s",
            range_of(busy.ratio(OURS, "apart")),
        ),
        Row(
            f"{what}: memory",
            f"{memory[0] / 2**20:.0f} MiB",
            f"apart: {memory[1] / 2**20:.0f} MiB",
            f"{memory[0] / memory[1]:.2f}×" if all(memory) else "",
        ),
    ]


def _in_one_reading(checkpoint: Checkpoint) -> None:
    reading = Reading(checkpoint)
    reading.ask_weights(lambda _: default_rule(checkpoint).k)
    reading.ask_lines()
    reading.read()
    reading.weights_support()
    reading.fingerprint()


def _apart(checkpoint: Checkpoint) -> None:
    select_from_checkpoint(checkpoint)
    weights_of(checkpoint)
    fingerprint(checkpoint)


def _memory(what: str, grown: int | None, values: int) -> Row:
    if grown is None:
        return Row(f"{what}: memory", "not measured on this system", "", "", "≤ 100 MiB")
    beside = f"the file, {values * 2 / 2**20:,.0f} MiB"
    ours = f"{grown / 2**20:.0f} MiB"
    return Row(f"{what}: memory of a thread", ours, beside, "", "≤ 100 MiB", grown <= MEMORY)


def _two_reads(checkpoint: Checkpoint) -> None:
    for tensor in checkpoint.tensors:
        for _ in range(2):
            for values in tensor.stretches():
                values.max()


def _lines(matrix: Floats) -> TensorLines:
    return read_lines("matrix", matrix.shape, part_of(matrix))


def _identical(figure: str, matrix: Floats) -> Row:
    found: list[Any] = []
    few = matrix[: (1 << 21) // matrix.shape[1]]
    for which in ("reference", "fast"):
        use_kernels(which)
        lines = _lines(np.ascontiguousarray(few))
        found.append(
            ({length: keys.tolist() for length, keys in lines.keys.items()}, lines.signature)
        )
    same = found[0] == found[1]
    count = sum(map(len, found[1][0].values()))
    ours = f"{count:,} keys, {'the same' if same else 'not the same'}"
    return Row(f"{figure}: numba against numpy", ours, "", "", "bit-identical", same)


def _matrix(shape: tuple[int, int]) -> Floats:
    draw = np.random.default_rng(math.prod(shape))
    scales = draw.lognormal(0, 0.5, shape[1]).astype(np.float32)
    return 0.02 * scales * draw.standard_t(6, shape).astype(np.float32)
