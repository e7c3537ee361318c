"""The values of a checkpoint in stretches, and a checkpoint of an average, written in stretches.

Neither is ever in memory whole. The parameters are in the order of the layout that is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.checkpoints.writing import TensorFile, check_writable
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.quoting import quote
from modelkin.errors import SpaceMismatch

__all__ = ["CheckpointSink", "CheckpointValues"]

Floats = npt.NDArray[np.float32]


class CheckpointValues:
    """A checkpoint's values, or their differences to a base, as float32.

    Differences include rounding: an average of them is added to the base again.

    Args:
        checkpoint: the model.
        layout: the order of the parameters; None for the checkpoint's own.
        base: a checkpoint of the same tensors; None for the values themselves.

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

    @property
    def has_base(self) -> bool:
        """Whether the values are differences."""
        return self._base is not None

    def read(self, start: int, stop: int) -> Floats:
        """The values of some parameters.

        Raises:
            InvalidCheckpoint: the file ends early, or a value is not finite.
            OSError: a file cannot be read.
        """
        values = self._read(self._model, start, stop)
        if self._base is not None:
            values = values - self._read(self._base, start, stop)
        if not np.isfinite(values).all():
            at = start + int(np.flatnonzero(~np.isfinite(values))[0])
            tensor = self._model.tensors[bisect_right(self._starts, at) - 1]
            raise bad_checkpoint(
                self._model.name, f"tensor {quote(tensor.name)} has a value that is not finite"
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
                part = tensor.part(start - first, end - first)
                out[out.size - (stop - start) : out.size - (stop - end)] = part
            start, at = end, at + 1
        return out


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
        SpaceMismatch: the layout has not each tensor of the checkpoint.
    """

    def __init__(
        self,
        path: str | Path,
        checkpoint: Checkpoint,
        layout: Layout | None = None,
        base: Checkpoint | None = None,
        beside: Iterable[StoredTensor] = (),
    ) -> None:
        layout = checkpoint.layout if layout is None else layout
        self._model = checkpoint.in_order(layout)
        if {*self._model.tensors} != {*checkpoint.tensors}:
            raise SpaceMismatch(
                f"{checkpoint.name} has other tensors than the layout: "
                f"{correspond(checkpoint.layout, layout).difference()}"
            )
        self._base = None if base is None else CheckpointValues(base, layout)
        self._starts = [0, *accumulate(tensor.size for tensor in self._model.tensors)]
        averaged = self._model.tensors
        check_writable(Path(path), averaged, averaged + (base.tensors if base else ()))
        self._copied = (*self._model.skipped, *beside)
        self._file = TensorFile(Path(path), (*averaged, *self._copied))

    @property
    def has_base(self) -> bool:
        """Whether the average is one of differences, which are added to a base."""
        return self._base is not None

    def write(self, start: int, values: Floats) -> None:
        """Write the average of the parameters from ``start`` on."""
        if self._base is not None:
            values = values + self._base.read(start, start + values.size)
        stop, at = start + values.size, bisect_right(self._starts, start) - 1
        done = 0
        self._copy_once()
        while start < stop:
            tensor, first = self._model.tensors[at], self._starts[at]
            end = min(stop, first + tensor.size)
            if end > start:
                self._file.write(tensor.name, start - first, values[done : done + end - start])
                done += end - start
            start, at = end, at + 1

    def finish(self) -> None:
        """Give the file its name."""
        self._copy_once()
        self._file.finish()

    def discard(self) -> None:
        """Leave no file behind."""
        self._file.discard()

    def _copy_once(self) -> None:
        """Copy what the average does not change, before anything else is written."""
        if not self._file.is_open:
            for tensor in self._copied:
                self._file.copy(tensor)
