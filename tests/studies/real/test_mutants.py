"""Mutants of each format end in tensors or in an error, in little memory: 10,000 with SOAK=1."""

from __future__ import annotations

import io
import resource
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from studies.real.errors import InvalidFile
from studies.real.readers.keras import read_keras
from studies.real.readers.ncnn import read_ncnn
from studies.real.readers.onnx import read_onnx
from studies.real.readers.pickles import read_pickle, run_pickle
from studies.real.readers.raw import read_layer
from studies.real.readers.tfjs import read_tfjs
from tests.studies.real import small_files as small
from tests.support.repetitions import repetitions

COUNT = repetitions(10_000)
TRACED = 500
MAX_BYTES = 256 << 10
"""Of memory that one of the traced needs, for files of less than 2 KiB."""
MAX_GROWTH_KIB = 32 << 10
"""Of the process, over all mutants."""
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)
BIASES = np.array([0.5, -1, 2], np.float32)
_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 2**63 - 1, 2**64 - 1)


def mutants(data: bytes, count: int = COUNT) -> Iterator[bytes]:
    """Copies with changed bytes, numbers at the edge, cuts, repetitions, and insertions."""
    random = np.random.default_rng(len(data))
    for kind, at, size, value, *bytes_ in random.integers(0, 1 << 30, (count, 8)).tolist():
        at, size = at % len(data), size % 16 + 1
        if kind % 5 == 0:
            yield data[:at]
        elif kind % 5 == 1:
            yield data[:at] + data[at + size :]
        elif kind % 5 == 2:
            yield data[:at] + data[at : at + size] * 3 + data[at + size :]
        elif kind % 5 == 3:
            width = 2 ** (size % 4)
            number = _NUMBERS[value % len(_NUMBERS)] & (1 << 8 * width) - 1
            yield data[:at] + number.to_bytes(width, "little") + data[at + width :]
        else:
            changed = bytearray(data)
            for byte in bytes_[: size % 4 + 1]:
                changed[byte % len(data)] = byte >> 16 & 0xFF
            yield bytes(changed)


def survive(read: Callable[[bytes], object], data: bytes) -> tuple[int, int]:
    """How many mutants are read, and how many are refused; the memory of some is traced.

    Raises:
        AssertionError: they need more memory than they may.
    """
    found = [0, 0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for mutant in mutants(data):
        found[_refused(read, mutant)] += 1
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < MAX_GROWTH_KIB
    traced = list(mutants(data, TRACED))
    tracemalloc.start()
    try:
        for mutant in traced:
            _refused(read, mutant)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    return found[0], found[1]


def _refused(read: Callable[[bytes], object], data: bytes) -> bool:
    try:
        read(data)
    except InvalidFile:
        return True
    return False


def _onnx() -> bytes:
    inner = small.message((5, small.tensor("w", VALUES)))
    lstm = small.tensor("W", np.zeros((1, 4, 1), np.float32))
    return small.model(
        (1, small.node("If", (), ("then_branch", 6, inner))),
        (1, small.node("LSTM", ("x", "W"))),
        (5, lstm),
        (5, small.tensor("b", BIASES)),
    )


def test_mutants_of_onnx() -> None:
    """A message that lies about its lengths, types or shapes is refused."""
    read, refused = survive(read_onnx, _onnx())
    assert read > COUNT / 100
    assert refused > COUNT / 2


def test_mutants_of_keras() -> None:
    """An HDF5 file whose addresses and sizes lie is refused."""
    read, refused = survive(read_keras, small.keras({"kernel": VALUES, "bias": BIASES}))
    assert read > COUNT / 100
    assert refused > COUNT / 4


def test_mutants_of_ncnn() -> None:
    """A network whose text and weights do not fit is refused."""
    param, weights = small.ncnn(VALUES, BIASES)
    size = len(param)
    read, refused = survive(lambda data: read_ncnn(data[:size], data[size:]), param + weights)
    assert read > COUNT / 100
    assert refused > COUNT / 4


def test_mutants_of_tfjs() -> None:
    """A model whose list and files do not fit is refused."""
    model, files = small.tfjs(VALUES)
    size = len(model)
    tail = b"".join(files.values())
    read, refused = survive(
        lambda data: read_tfjs(
            data[:size], {"a.bin": data[size : size + 5], "b.bin": data[size + 5 :]}
        ),
        model + tail,
    )
    assert read > COUNT / 100
    assert refused > COUNT / 4


def test_mutants_of_raw_values() -> None:
    """Values that are not whole rows are refused."""
    size = VALUES.nbytes
    read, refused = survive(
        lambda data: read_layer(data[:size], data[size:]), VALUES.tobytes() + BIASES.tobytes()
    )
    assert read > COUNT / 10
    assert refused > COUNT / 10


def test_mutants_of_a_pickle() -> None:
    """A program that was changed gives containers and tensors, or is refused."""
    with zipfile.ZipFile(io.BytesIO(small.pth())) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    storages = {name[5:]: data for name, data in members.items() if name.startswith("data/")}
    read, refused = survive(lambda program: run_pickle(program, storages), members["data.pkl"])
    assert read > COUNT / 100
    assert refused > COUNT / 2


@pytest.mark.slow
def test_mutants_of_an_archive_of_pytorch() -> None:
    """An archive that was changed anywhere is read or refused."""
    read, refused = survive(read_pickle, small.pth())
    assert read > COUNT / 100
    assert refused > COUNT / 4
