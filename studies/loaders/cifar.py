"""The binary version of CIFAR-10 and CIFAR-100: rows of labels and 3,072 bytes of an image.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from studies.loaders.folder import DataError, found, read

__all__ = ["cifar10", "cifar100", "read_rows"]

Bytes = npt.NDArray[np.uint8]

_SHAPE: Final = (3, 32, 32)
_PIXELS: Final = 3 * 32 * 32


def cifar10(folder: Path) -> tuple[Bytes, Bytes]:
    """Images ``(n, 3, 32, 32)`` and labels ``(n,)``, 0 to 9, of all six batches.

    Raises:
        DataError: files are missing, or are not rows of CIFAR-10.
    """
    names = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    return _joined(found(folder, names, ("cifar-10-batches-bin",)), (10,))


def cifar100(folder: Path) -> tuple[Bytes, Bytes]:
    """Images ``(n, 3, 32, 32)`` and fine labels ``(n,)``, 0 to 99.

    Raises:
        DataError: files are missing, or are not rows of CIFAR-100.
    """
    paths = found(folder, ("train.bin", "test.bin"), ("cifar-100-binary",))
    return _joined(paths, (20, 100))


def _joined(paths: Sequence[Path], classes: Sequence[int]) -> tuple[Bytes, Bytes]:
    images, labels = [], []
    for path in paths:
        with path.open("rb") as file:
            found_images, found_labels = read_rows(file, str(path), classes)
        images.append(found_images)
        labels.append(found_labels)
    return np.concatenate(images), np.concatenate(labels)


def read_rows(file: BinaryIO, name: str, classes: Sequence[int]) -> tuple[Bytes, Bytes]:
    """The images and the last label of each row.

    Args:
        file: to read, from its beginning.
        name: of the file, for errors.
        classes: how many each label of a row has: coarse before fine ones.

    Raises:
        DataError: it is empty, not made of whole rows, or has a label that there is not.
    """
    data = read(file, name)
    width = len(classes) + _PIXELS
    count, rest = divmod(len(data), width)
    if rest or not count:
        raise DataError(
            f"{name} has {len(data):,} bytes, not rows of {width:,}: it is truncated, or not the "
            "binary version of CIFAR"
        )
    rows = np.frombuffer(data, np.uint8).reshape(count, width)
    for column, most in enumerate(classes):
        worst = int(rows[:, column].argmax())
        if rows[worst, column] >= most:
            raise DataError(
                f"{name} has the label {rows[worst, column]} in row {worst}: labels are 0 to "
                f"{most - 1}"
            )
    return rows[:, len(classes) :].reshape(count, *_SHAPE), rows[:, len(classes) - 1]
