"""``TensorFile``: a safetensors file that is written in stretches, and is never partial.

It is written under another name and renamed when it is whole. No tensor is ever in memory whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
import numpy.typing as npt

from modelkin._whole_files import WholeFile, require_ordinary
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote
from modelkin.core.safetensors_header import BITS, header_of
from modelkin.errors import InvalidParameter

__all__ = ["TensorFile", "check_target", "check_writable"]

_COPY_BYTES: Final = 1 << 22


def _bfloat16(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The upper half of each float32, rounded to the nearest, ties to even."""
    bits = _float32_bits(values)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2")


def _float32_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The bits of float32; of float64 rounded to odd, so that a second rounding is the first.

    Source: Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    if values.dtype == np.float32:
        return values.view(np.uint32)
    narrow = values.astype(np.float32)
    bits = narrow.view(np.uint32) - (np.abs(narrow) > np.abs(values)).astype(np.uint32)
    exact = bits.view(np.float32) == values
    return np.asarray(bits | ~exact, np.uint32)


_ENCODERS: Final[dict[str, Any]] = {
    "F64": lambda values: values.astype("<f8"),
    "F32": lambda values: values.astype("<f4"),
    "F16": lambda values: values.astype("<f2"),
    "BF16": _bfloat16,
}


class TensorFile:
    """A new safetensors file.

    Args:
        path: the file that was asked for, once it is whole.
        tensors: names, dtypes and shapes of all its tensors; where they are stored does not count.

    Use it in a ``with`` block, which ends in :meth:`finish`, or after an error in :meth:`discard`.
    """

    def __init__(self, path: Path, tensors: Iterable[StoredTensor]) -> None:
        self._target = path
        entries, self._header = header_of(tensors)
        self._entries = {entry.name: entry for entry in entries}
        self._whole: WholeFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    @property
    def is_open(self) -> bool:
        """Whether something was written."""
        return self._whole is not None

    def write(self, name: str, first: int, values: npt.NDArray[Any]) -> None:
        """Write elements of a tensor.

        Args:
            name: the name of the tensor.
            first: the first of the elements.
            values: float32 or float64; they are rounded once.
        """
        entry, file = self._entries[name], self._open()
        file.seek(entry.begin + first * BITS[entry.dtype] // 8)
        file.write(_ENCODERS[entry.dtype](values).tobytes())

    def copy(self, tensor: StoredTensor) -> None:
        """Copy the bytes of a stored tensor of the same name, dtype and shape."""
        file = self._open()
        file.seek(self._entries[tensor.name].begin)
        left = tensor.size * tensor.itemsize
        with open(tensor.path, "rb") as source:
            source.seek(tensor.begin)
            while left:
                part = source.read(min(left, _COPY_BYTES))
                if not part:
                    raise bad_checkpoint(tensor.path.name, "it ends early: get it again")
                file.write(part)
                left -= len(part)

    def finish(self) -> None:
        """Give the file its name."""
        self._open()
        assert self._whole is not None
        self._whole.finish()

    def discard(self) -> None:
        """Leave no file behind."""
        if self._whole is not None:
            self._whole.discard()

    def _open(self) -> BinaryIO:
        if self._whole is None:
            self._whole = WholeFile(self._target)
            self._whole.file.write(self._header)
        return self._whole.file


def check_writable(
    target: Path, averaged: Iterable[StoredTensor], sources: Iterable[StoredTensor]
) -> None:
    """Check the file to which an average goes.

    Args:
        target: the file.
        averaged: the tensors of the average, in their dtypes.
        sources: what is read meanwhile.

    Raises:
        InvalidParameter: a link, a device, a folder, or a file that is read.
        InvalidCheckpoint: a tensor of 8-bit floats, which an average does not fit into.
    """
    for tensor in averaged:
        if tensor.dtype not in _ENCODERS:
            raise bad_checkpoint(
                tensor.path.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}, too coarse for an average: "
                f"give the checkpoint in 16 or 32 bits",
            )
    check_target(target, sources)


def check_target(target: Path, sources: Iterable[StoredTensor]) -> None:
    """Check that a file may be written, and replaced if there is one.

    Raises:
        InvalidParameter: a link, a device, a folder, or a file that is read.
    """
    require_ordinary(target)
    if not target.exists():
        return
    if any(target.samefile(source) for source in {tensor.path for tensor in sources}):
        raise InvalidParameter(
            f"{target} is the checkpoint itself: give another name", field="path"
        )
