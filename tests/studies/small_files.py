"""Data sets of a few samples, as the files that their archives have."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["PER_CLASS", "idx", "write"]

PER_CLASS = 25
"""Samples; enough for 20 clients of ten."""

Bytes = npt.NDArray[np.uint8]


def idx(values: Bytes) -> bytes:
    """The values as an IDX file of bytes."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def write(data: str, folder: Path) -> None:
    """The files of a data set, made at random with one seed."""
    rng = np.random.default_rng(0)
    {
        "fashion-mnist": _fashion,
        "cifar10": _cifar10,
        "cifar100": _cifar100,
        "newsgroups": _newsgroups,
    }[data](folder, rng)


def _fashion(folder: Path, rng: np.random.Generator) -> None:
    for part, count in (("train", 10 * PER_CLASS - 50), ("t10k", 50)):
        images = rng.integers(0, 256, (count, 8, 8), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


def _cifar10(folder: Path, rng: np.random.Generator) -> None:
    rows = _rows(np.arange(10 * PER_CLASS)[:, None] % 10, rng)
    names = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    inside = folder / "cifar-10-batches-bin"
    inside.mkdir()
    for name, part in zip(names, np.array_split(rows, 6), strict=True):
        (inside / name).write_bytes(part.tobytes())


def _cifar100(folder: Path, rng: np.random.Generator) -> None:
    fine = np.arange(500) % 100
    rows = _rows(np.stack([fine // 5, fine], axis=1), rng)
    (folder / "train.bin").write_bytes(rows[:400].tobytes())
    (folder / "test.bin").write_bytes(rows[400:].tobytes())


def _rows(labels: npt.NDArray[np.int64], rng: np.random.Generator) -> Bytes:
    pixels = rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    return np.hstack([labels.astype(np.uint8), pixels])


def _newsgroups(folder: Path, rng: np.random.Generator) -> None:
    words = [f"{a}{b}" for a in "bcdfg" for b in ("at", "en", "it", "ox", "um")]
    for part, count in (("train", PER_CLASS - 5), ("test", 5)):
        for group in range(10):
            inside = folder / f"20news-bydate-{part}" / f"group.{group}"
            inside.mkdir(parents=True)
            for number in range(count):
                body = " ".join(rng.choice(words[group : group + 8], 20))
                (inside / str(number)).write_text(f"Newsgroups: group.{group}\n\n{body}\n")
