"""The fingerprint of a checkpoint on disk, which is read in stretches by some threads.

``PassLines`` reads it in the order of the bytes, as one of the questions of a pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin._threads import Counting, Job, check_threads, processors, run_jobs
from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.checkpoints.tensors import ComputedTensor, StoredTensor
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker, check_scale
from modelkin.core.fingerprints.matrices import count_of_readings, matrices
from modelkin.core.fingerprints.matrix_keys import MatrixKeys
from modelkin.core.fingerprints.tensor_lines import LinesMaker, TensorLines, Took, read_lines
from modelkin.core.fingerprints.tensors import NotComparable
from modelkin.errors import InvalidImportance

__all__ = ["LinesPart", "PassLines", "fingerprint"]

State = dict[str, npt.NDArray[Any]]


def fingerprint(
    source: str | Path | Checkpoint,
    *,
    exclude: Iterable[str] = (),
    scale: int | None = None,
    limits: CheckpointLimits | None = None,
    threads: int | None = None,
    count: Counting | None = None,
) -> Fingerprint:
    """The fingerprint of a checkpoint's weights, as its files hold them.

    Each tensor is read twice, a stretch at a time. A thread takes 70 MB at most, whatever the
    tensor.

    Args:
        source: a path as for :func:`modelkin.checkpoints.open_checkpoint`, or what that has opened.
        exclude: shell patterns of names to leave out, where the source is a path.
        scale: a power of two: one line in so many is kept; by default the least that leaves
            4,096 lines at most, or 32 a tensor where these are more.
        limits: on what a path may declare.
        threads: that read tensors side by side; by default as many as there are processors.
        count: is called ten times a second with the values read so far and all of them, by the
            thread of the caller; what it raises ends the call.

    Raises:
        InvalidCheckpoint: as for :func:`modelkin.checkpoints.open_checkpoint`; or it is an adapter.
        InvalidImportance: a value of a matrix is NaN or infinite; names its tensor. Tensors that
            have no lines, such as vectors, are not read.
        InvalidParameter: the scale is no power of two, or threads is below 1.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    check_threads(threads)
    if scale is not None:
        check_scale(scale)
    checkpoint = (
        source if isinstance(source, Checkpoint) else open_checkpoint(source, exclude, limits)
    )
    if isinstance(checkpoint, Adapter):
        raise bad_checkpoint(
            checkpoint.name,
            "it is an adapter, whose factors are no lines of a model: merge it into its base, and "
            "give the result",
        )
    maker = FingerprintMaker()
    jobs = [_job(tensor) for tensor in checkpoint.tensors]
    lines = run_jobs(jobs, threads or processors(), count)
    for tensor, found in zip(checkpoint.tensors, lines, strict=True):
        maker.take(tensor.name, found)
    return maker.finish(scale)


def _job(tensor: StoredTensor) -> Job[TensorLines]:
    def read(took: Took) -> TensorLines:
        return read_lines(tensor.name, tensor.shape, tensor.part, took, tensor.step)

    return Job(tensor.size, read)


@dataclass(frozen=True, slots=True)
class LinesPart:
    """A part of a tensor whose lines are read together: a matrix, or all of a kernel.

    Attributes:
        tensor: the tensor.
        first: the number of its first value.
        size: how many values it has.
        run: reads it, and calls a function with the values that it has taken.
    """

    tensor: StoredTensor
    first: int
    size: int
    run: Callable[[Took], None]

    @property
    def begin(self) -> int:
        """The first byte that is read twice; of computed values, whose bytes are fewer, all are."""
        if isinstance(self.tensor, ComputedTensor):
            return self.tensor.begin
        return self.tensor.begin + self.first * self.tensor.itemsize

    @property
    def num_bytes(self) -> int:
        """The most bytes that are read twice."""
        of_tensor = self.tensor.size if isinstance(self.tensor, ComputedTensor) else self.size
        return of_tensor * self.tensor.itemsize


class PassLines:
    """The lines of a checkpoint, of which each part is read while its bytes are at hand.

    Args:
        tensors: those of the checkpoint, in the order of the fingerprint.

    Attributes:
        error: why it has no fingerprint, where a value is NaN or infinite; nothing more is read
            then.
    """

    def __init__(self, tensors: Sequence[StoredTensor]) -> None:
        self._tensors = tensors
        self._found: dict[int, TensorLines] = {}
        self.error: InvalidImportance | None = None

    def parts(self) -> Iterator[LinesPart]:
        """Yield what is to be read; the parts of a tensor in their order, each once."""
        for at, tensor in enumerate(self._tensors):
            if count := count_of_readings(tensor.shape):
                reading = _TensorReading(tensor)
                for number in range(count):
                    size = tensor.size // count
                    run = self._run(at, reading, size, number + 1 == count)
                    yield LinesPart(tensor, number * size, size, run)

    def _run(
        self, at: int, reading: _TensorReading, size: int, is_last: bool
    ) -> Callable[[Took], None]:
        def run(took: Took) -> None:
            taken = 0

            def counted(values: int) -> None:
                nonlocal taken
                taken += values
                took(values)

            if self.error is None:
                try:
                    reading.read(counted)
                except InvalidImportance as error:
                    self.error = error
                else:
                    if is_last:
                        self._found[at] = reading.finish()
            took(size - taken)

        return run

    def fingerprint(self, scale: int | None = None) -> Fingerprint:
        """The fingerprint, once all parts are read; it equals that of :func:`fingerprint`.

        Raises:
            InvalidImportance: a value of a matrix is NaN or infinite.
        """
        if self.error is not None:
            raise self.error
        maker = FingerprintMaker()
        for at, tensor in enumerate(self._tensors):
            lines = self._found.get(at)
            if lines is None:
                lines = LinesMaker(tensor.name, tensor.shape).finish()
            maker.take(tensor.name, lines)
        return maker.finish(scale)

    def state(self) -> State:
        """What :meth:`restore` needs, once all parts of each begun tensor are read."""
        facts = [
            {
                "at": at,
                "lengths": {length: keys.size for length, keys in lines.keys.items()},
                "reason": None if lines.reason is None else lines.reason.value,
                "signature": None if lines.signature is None else lines.signature.hex(),
            }
            for at, lines in self._found.items()
        ]
        error = None if self.error is None else [str(self.error), self.error.field]
        keys = [keys for lines in self._found.values() for keys in lines.keys.values()]
        return {
            "facts": np.frombuffer(json.dumps([error, facts]).encode(), np.uint8),
            "keys": np.concatenate([np.zeros(0, np.uint64), *keys]),
        }

    def restore(self, state: State) -> None:
        """Go on from the state of a pass over the same tensors."""
        error, facts = json.loads(state["facts"].tobytes())
        self.error = None if error is None else InvalidImportance(error[0], field=error[1])
        begin = 0
        for fact in facts:
            keys = dict[int, npt.NDArray[np.uint64]]()
            for length, size in fact["lengths"].items():
                keys[int(length)] = state["keys"][begin : begin + size]
                begin += size
            reason = None if fact["reason"] is None else NotComparable(fact["reason"])
            signature = None if fact["signature"] is None else bytes.fromhex(fact["signature"])
            shape = self._tensors[fact["at"]].shape
            self._found[fact["at"]] = TensorLines(shape, keys, reason, signature)


class _TensorReading:
    """A tensor whose matrices are read one after the other, when it is asked for."""

    def __init__(self, tensor: StoredTensor) -> None:
        self._tensor, self._maker = tensor, LinesMaker(tensor.name, tensor.shape)
        self._matrices = matrices(tensor.shape, tensor.part, tensor.step)
        self._is_stack = count_of_readings(tensor.shape) > 1

    def read(self, took: Took) -> None:
        """Read the next matrix of a stack; all matrices of any other tensor."""
        for matrix in self._matrices:
            self._maker.read(MatrixKeys(matrix, took))
            if self._is_stack:
                break

    def finish(self) -> TensorLines:
        return self._maker.finish()
