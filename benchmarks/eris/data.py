"""Data of the federations: scikit-learn's digits, and others where their files are at hand.

``--data-dir`` names a folder with MNIST's four idx files, SVHN's cropped digits
(``train_32x32.mat``), CIFAR-10's or CIFAR-100's binary batches (``cifar-10-batches-bin``,
``cifar-100-binary``) or IMDB's texts (``aclImdb``), as their authors publish them.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.io import loadmat
from sklearn.datasets import load_digits
from torch import Tensor

from demo.data import deal

__all__ = ["FOLDER", "Clients", "Dataset", "digits", "given", "split"]

FOLDER: Final = "MODELKIN_BENCH_DATA"
"""The environment variable that ``--data-dir`` sets."""

TEST = 400
MOST = 4000
"""Samples of a larger data set that are used."""

WORDS = 1024
"""Buckets of a bag of hashed words."""


@dataclass(frozen=True)
class Dataset:
    """Samples with values from 0 to 1.

    Attributes:
        name: in the tables.
        inputs: float32, shape ``(n, channels, height, width)``.
        labels: int64, shape ``(n,)``.
    """

    name: str
    inputs: Tensor
    labels: Tensor

    @property
    def classes(self) -> int:
        """Labels are 0 to one less."""
        return int(self.labels.max()) + 1


@dataclass(frozen=True)
class Clients:
    """A data set dealt to clients, all of one size, and samples that no client has.

    Attributes:
        inputs: shape ``(clients, samples, channels, height, width)``.
        labels: shape ``(clients, samples)``.
        test_inputs: shape ``(test, ...)``.
        test_labels: shape ``(test,)``.
    """

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor

    @property
    def count(self) -> int:
        return len(self.labels)


def digits(side: int = 8) -> Dataset:
    """scikit-learn's 1,797 digits of 8 x 8, or interpolated to a larger side."""
    values, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(values / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    if side != 8:
        inputs = torch.nn.functional.interpolate(
            inputs, size=(side, side), mode="bilinear", align_corners=False
        )
    return Dataset("digits", inputs, torch.tensor(labels))


def split(data: Dataset, clients: int, alpha: float, seed: int) -> Clients:
    """Deal samples by Dirichlet(alpha) label mixes; the same 400 are kept for testing."""
    order = np.random.default_rng(0).permutation(len(data.labels))
    held, train = order[:TEST], order[TEST:]
    labels, rng = data.labels.numpy(), np.random.default_rng(seed)
    stock = [rng.permutation(train[labels[train] == c]) for c in range(data.classes)]
    counts = deal(np.array([len(members) for members in stock]), clients, alpha, rng)
    ends = np.cumsum(counts, axis=0)
    rows = np.stack(
        [
            np.concatenate([stock[c][end[c] - row[c] : end[c]] for c in range(data.classes)])
            for row, end in zip(counts, ends, strict=True)
        ]
    )
    at, test = torch.from_numpy(rows), torch.from_numpy(held)
    return Clients(data.inputs[at], data.labels[at], data.inputs[test], data.labels[test])


def given() -> Iterator[Dataset]:
    """The data sets whose files ``--data-dir`` has."""
    folder = os.environ.get(FOLDER)
    if folder:
        for load in (mnist, svhn, cifar10, cifar100, imdb):
            found = load(Path(folder))
            if found is not None:
                yield found


def mnist(folder: Path) -> Dataset | None:
    """MNIST's training part, from its idx files, packed or not."""
    images = _found(folder, "train-images-idx3-ubyte")
    labels = _found(folder, "train-labels-idx1-ubyte")
    if images is None or labels is None:
        return None
    pixels = np.frombuffer(_read(images), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return _sampled("MNIST", pixels, np.frombuffer(_read(labels), np.uint8, offset=8))


def svhn(folder: Path) -> Dataset | None:
    """SVHN's training part, from its file of cropped digits, whose label 10 is the digit 0."""
    path = _found(folder, "train_32x32.mat")
    if path is None:
        return None
    held = loadmat(path, variable_names=["X", "y"])
    pixels = np.moveaxis(held["X"], (3, 2), (0, 1))
    return _sampled("SVHN", pixels, (held["y"].reshape(-1) % 10).astype(np.uint8))


def cifar10(folder: Path) -> Dataset | None:
    """CIFAR-10's training part, from its binary batches."""
    batches = sorted(folder.rglob("data_batch_*.bin"))
    if not batches:
        return None
    rows = np.concatenate([np.frombuffer(each.read_bytes(), np.uint8) for each in batches])
    rows = rows.reshape(-1, 1 + 3 * 32 * 32)
    return _sampled("CIFAR-10", rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def cifar100(folder: Path) -> Dataset | None:
    """CIFAR-100's training part with its fine labels, from its binary version."""
    paths = [path for path in sorted(folder.rglob("train.bin")) if path.is_file()]
    if not paths:
        return None
    rows = np.frombuffer(paths[0].read_bytes(), np.uint8).reshape(-1, 2 + 3 * 32 * 32)
    return _sampled("CIFAR-100", rows[:, 2:].reshape(-1, 3, 32, 32), rows[:, 1])


def imdb(folder: Path) -> Dataset | None:
    """IMDB's training part as bags of hashed words: the root of their counts, by the largest."""
    texts = [(each, 0) for each in sorted(folder.glob("**/aclImdb/train/neg/*.txt"))]
    texts += [(each, 1) for each in sorted(folder.glob("**/aclImdb/train/pos/*.txt"))]
    if not texts:
        return None
    chosen = np.random.default_rng(0).permutation(len(texts))[:MOST]
    bags = np.zeros((len(chosen), WORDS), np.float32)
    for row, at in enumerate(chosen):
        for word in texts[at][0].read_text(errors="replace").lower().split():
            bags[row, zlib.crc32(word.encode()) % WORDS] += 1
    bags = np.sqrt(bags / np.maximum(bags.max(axis=1, keepdims=True), 1))
    inputs = torch.from_numpy(bags).view(-1, 1, 32, WORDS // 32)
    return Dataset("IMDB", inputs, torch.tensor([texts[at][1] for at in chosen]))


def _sampled(name: str, pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Dataset:
    chosen = np.random.default_rng(0).permutation(len(labels))[:MOST]
    inputs = torch.from_numpy(pixels[chosen].astype(np.float32) / 255)
    return Dataset(name, inputs, torch.from_numpy(labels[chosen].astype(np.int64)))


def _found(folder: Path, name: str) -> Path | None:
    return next((each for each in sorted(folder.rglob(f"{name}*")) if each.is_file()), None)


def _read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
