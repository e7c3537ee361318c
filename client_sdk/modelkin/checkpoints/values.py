"""The values of a checkpoint in stretches, and a checkpoint of an average, written in stretches.

Neither is ever in memory whole. The parameters are in the order of the layout that is asked for.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import decode
from modelkin.checkpoints.files import Checkpoint, StoredTensor
from modelkin.checkpoints.header import bad_checkpoint, shown
from modelkin.core.layout import Layout
from modelkin.errors import InvalidParameter

__all__ = ["CheckpointSink", "CheckpointValues"]

Floats = npt.NDArray[np.float32]

_COPY_BYTES: Final = 1 << 22


class CheckpointValues:
    """A checkpoint's values, or their differences to a base, as float32.

    Args:
        checkpoint: the model.
        layout: the order of the parameters; None for the checkpoint's own.
        base: of the same tensors; None for the values themselves.

    Raises:
        SpaceMismatch: other tensors than the layout's, or the base's.
    """

    def __init__(
        self, checkpoint: Checkpoint, layout: Layout | None = None, base: Checkpoint | None = None
    ) -> None:
        layout = checkpoint.layout if layout is None else layout
        self._model = checkpoint.in_order(layout)
        self._base = None if base is None else base.in_order(layout)
        self._starts = [0, *accumulate(tensor.size for tensor in self._model.tensors)]

    @property
    def num_parameters(self) -> int:
        """M."""
        return self._starts[-1]

    def read(self, start: int, stop: int) -> Floats:
        """The values of some parameters.

        Raises:
            InvalidCheckpoint: the file ends early, or a value is not finite.
            OSError: it cannot be read.
        """
        values = self._read(self._model, start, stop)
        if self._base is not None:
            values = values - self._read(self._base, start, stop)
        if not np.isfinite(values).all():
            at = start + int(np.flatnonzero(~np.isfinite(values))[0])
            tensor = self._model.tensors[bisect_right(self._starts, at) - 1]
            raise bad_checkpoint(
                self._model.name, f"tensor {shown(tensor.name)} has a value that is not finite"
            )
        return values

    def fingerprint(self) -> str:
        """Names, sizes and times of the files."""
        tensors = self._model.tensors + (self._base.tensors if self._base else ())
        found = []
        for path in sorted({tensor.path for tensor in tensors}):
            state = path.stat()
            found.append(f"{path.name} {state.st_size} {state.st_mtime_ns}")
        return "; ".join(found)

    def _read(self, checkpoint: Checkpoint, start: int, stop: int) -> Floats:
        out = np.empty(stop - start, np.float32)
        at = bisect_right(self._starts, start) - 1
        while start < stop:
            tensor, first = checkpoint.tensors[at], self._starts[at]
            end = min(stop, first + tensor.size)
            if end > start:
                part = _read_part(tensor, start - first, end - first)
                out[out.size - (stop - start) : out.size - (stop - end)] = part
            start, at = end, at + 1
        return out


def _read_part(tensor: StoredTensor, begin: int, end: int) -> npt.NDArray[Any]:
    """Elements of a tensor."""
    raw = np.empty((end - begin) * tensor.itemsize, np.uint8)
    with open(tensor.path, "rb", buffering=0) as file:
        file.seek(tensor.begin + begin * tensor.itemsize)
        view = memoryview(raw.data)
        while view:
            count = file.readinto(view)
            if not count:
                raise bad_checkpoint(
                    tensor.path.name, f"it ends within tensor {shown(tensor.name)}: get it again"
                )
            view = view[count:]
    return decode(raw, tensor.dtype)


def _bfloat16(values: Floats) -> npt.NDArray[Any]:
    """The upper half of each float32, rounded to the nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2")


_ENCODERS: Final[dict[str, Any]] = {
    "F64": lambda values: values.astype("<f8"),
    "F32": lambda values: values.astype("<f4"),
    "F16": lambda values: values.astype("<f2"),
    "BF16": _bfloat16,
}


class CheckpointSink:
    """A safetensors file with the tensors and types of a checkpoint, and an average's values.

    Tensors of integers and booleans are copied from the checkpoint. The file is written under
    another name and then renamed, so it is never partial.

    Args:
        path: the file.
        checkpoint: whose tensors and types it has.
        layout: the order of the parameters; None for the checkpoint's own.
        base: what is added to each value: the averages of differences need it.
        beside: tensors that are copied, too, such as those that a space leaves out.

    Raises:
        InvalidCheckpoint: a tensor of 8-bit floats, which an average does not fit into.
        InvalidParameter: ``path`` is the checkpoint itself, or not an ordinary file.
    """

    def __init__(
        self,
        path: str | Path,
        checkpoint: Checkpoint,
        layout: Layout | None = None,
        base: Checkpoint | None = None,
        beside: Iterable[StoredTensor] = (),
    ) -> None:
        self._target = Path(path)
        layout = checkpoint.layout if layout is None else layout
        self._model = checkpoint.in_order(layout)
        self._base = None if base is None else CheckpointValues(base, layout)
        self._starts = [0, *accumulate(tensor.size for tensor in self._model.tensors)]
        _check_target(self._target, checkpoint, base)
        for tensor in self._model.tensors:
            if tensor.dtype not in _ENCODERS:
                raise bad_checkpoint(
                    tensor.path.name,
                    f"tensor {shown(tensor.name)} is {tensor.dtype}, too coarse for an average: "
                    f"give the checkpoint in 16 or 32 bits",
                )
        self._copied = (*self._model.skipped, *beside)
        self._begins, self._header = _header((*self._model.tensors, *self._copied))
        # Always the same name: what a process leaves that dies, the next one replaces.
        self._partial = self._target.with_name(f".{self._target.name}.part")
        self._file: BinaryIO | None = None

    def write(self, start: int, values: Floats) -> None:
        """Write the average of the parameters from ``start`` on."""
        if self._base is not None:
            values = values + self._base.read(start, start + values.size)
        stop, at = start + values.size, bisect_right(self._starts, start) - 1
        file, done = self._opened(), 0
        while start < stop:
            tensor, first = self._model.tensors[at], self._starts[at]
            end = min(stop, first + tensor.size)
            if end > start:
                encoded = _ENCODERS[tensor.dtype](values[done : done + end - start])
                file.seek(self._begins[tensor.name] + (start - first) * tensor.itemsize)
                file.write(encoded.tobytes())
                done += end - start
            start, at = end, at + 1

    def finish(self) -> None:
        """Give the file its name."""
        file = self._opened()
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(self._partial, self._target)

    def discard(self) -> None:
        """Leave no file behind."""
        if self._file is not None:
            self._file.close()
            self._partial.unlink(missing_ok=True)

    def _opened(self) -> BinaryIO:
        """The file under its other name, with all that the average does not change."""
        if self._file is None:
            self._file = open(self._partial, "wb")  # noqa: SIM115  # until finish or discard
            self._file.write(self._header)
            for tensor in self._copied:
                self._copy(tensor, self._file)
        return self._file

    def _copy(self, tensor: StoredTensor, file: BinaryIO) -> None:
        file.seek(self._begins[tensor.name])
        left = tensor.size * tensor.itemsize
        with open(tensor.path, "rb") as source:
            source.seek(tensor.begin)
            while left:
                part = source.read(min(left, _COPY_BYTES))
                if not part:
                    raise bad_checkpoint(tensor.path.name, "it ends early: get it again")
                file.write(part)
                left -= len(part)


def _header(stored: Iterable[StoredTensor]) -> tuple[dict[str, int], bytes]:
    """Where each tensor begins in the file, and the bytes before them."""
    tensors = sorted(stored, key=lambda tensor: tensor.name)
    fields, begins, at = dict[str, Any](), dict[str, int](), 0
    for tensor in tensors:
        end = at + tensor.size * tensor.itemsize
        fields[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        begins[tensor.name], at = at, end
    text = json.dumps({"__metadata__": {"format": "pt"}, **fields}).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    return {name: start + begin for name, begin in begins.items()}, len(text).to_bytes(
        8, "little"
    ) + text


def _check_target(target: Path, checkpoint: Checkpoint, base: Checkpoint | None) -> None:
    """Refuse to replace a device, a folder, or a file that is read."""
    if not target.exists():
        return
    if not target.is_file():
        raise InvalidParameter(f"{target} is not an ordinary file: give another name", field="path")
    tensors = checkpoint.tensors + (base.tensors if base else ())
    if any(target.samefile(source) for source in {tensor.path for tensor in tensors}):
        raise InvalidParameter(
            f"{target} is the checkpoint itself: give another name", field="path"
        )
