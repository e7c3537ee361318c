"""IDX, the format of MNIST and Fashion-MNIST: big-endian dimensions, then one byte a value.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database; Xiao et al., Fashion-MNIST (2017).
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from studies.loaders.folder import DataError, found, read

__all__ = ["fashion_mnist", "read_idx"]

Bytes = npt.NDArray[np.uint8]

_NAMES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_UNSIGNED_BYTES: Final = 0x08
_CLASSES: Final = 10
_SIDES: Final = range(4, 257)


def fashion_mnist(folder: Path) -> tuple[Bytes, Bytes]:
    """Images ``(n, 1, side, side)`` and labels ``(n,)``, 0 to 9: training's first, then the test's.

    Raises:
        DataError: files are missing, damaged, or do not belong together.
    """
    paths = found(folder, _NAMES, ("FashionMNIST/raw", "fashion-mnist"))
    parts = [_pair(*paths[at : at + 2]) for at in (0, 2)]
    sides = {images.shape[1:] for images, _ in parts}
    if len(sides) > 1:
        raise DataError(f"{paths[0]} and {paths[2]} have images of different sizes")
    return (
        np.concatenate([images for images, _ in parts])[:, None],
        np.concatenate([labels for _, labels in parts]),
    )


def _pair(image_path: Path, label_path: Path) -> tuple[Bytes, Bytes]:
    with image_path.open("rb") as file:
        images = read_idx(file, str(image_path), 3)
    with label_path.open("rb") as file:
        labels = read_idx(file, str(label_path), 1)
    if images.shape[1] != images.shape[2] or images.shape[1] not in _SIDES:
        shape = " x ".join(map(str, images.shape[1:]))
        raise DataError(f"{image_path} has images of {shape}: squares of 4 to 256 are read")
    if len(images) != len(labels):
        raise DataError(
            f"{image_path} has {len(images)} images and {label_path} {len(labels)} labels: take "
            "both from one download"
        )
    if labels.max(initial=0) >= _CLASSES:
        raise DataError(f"{label_path} has the label {labels.max()}: labels are 0 to 9")
    return images, labels


def read_idx(file: BinaryIO, name: str, dimensions: int) -> Bytes:
    """The array of one file, plain or gzip's.

    Args:
        file: to read, from its beginning.
        name: of the file, for errors.
        dimensions: that it must have.

    Raises:
        DataError: it is not an IDX file of bytes, has other dimensions, or another length than
            these say.
    """
    data = read(file, name)
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, _UNSIGNED_BYTES, dimensions)) or len(data) < start:
        raise DataError(
            f"{name} is not an IDX file of bytes in {dimensions} dimensions: download it again"
        )
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if len(data) - start != math.prod(shape):
        raise DataError(
            f"{name} has {len(data) - start:,} values, but its header says {math.prod(shape):,}: "
            "it is truncated or another file"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
