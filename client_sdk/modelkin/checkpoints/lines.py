"""The fingerprint of a checkpoint on disk, which is read in stretches by some threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker, check_scale
from modelkin.core.fingerprints.tensor_lines import TensorLines, read_lines
from modelkin.errors import InvalidParameter

__all__ = ["fingerprint"]

Counting = Callable[[int, int], None]
"""A function of the values read so far, and of all."""

_COUNTED_EVERY: Final = 0.1
"""Seconds between two calls of the caller's function."""


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
        InvalidImportance: a value is NaN or infinite; names its tensor.
        InvalidParameter: the scale is no power of two, or threads is below 1.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    if threads is not None and threads < 1:
        raise InvalidParameter(f"threads must be 1 or more, not {threads}", field="threads")
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
    lines = _Reading(checkpoint.tensors, count).run(threads or _processors())
    for tensor, found in zip(checkpoint.tensors, lines, strict=True):
        maker.take(tensor.name, found)
    return maker.finish(scale)


class _Stopped(Exception):
    """Another thread, or the caller, has ended the reading."""


class _Reading:
    """Tensors that are read by threads, each whole by one of them.

    Args:
        tensors: in the order of the results.
        count: as for :func:`fingerprint`.
    """

    def __init__(self, tensors: tuple[StoredTensor, ...], count: Counting | None) -> None:
        self._tensors, self._count = tensors, count
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._done, self._all = 0, sum(tensor.size for tensor in tensors)

    def run(self, threads: int) -> list[TensorLines]:
        """The lines of each tensor."""
        with ThreadPoolExecutor(threads, "fingerprint") as pool:
            # The largest first: none is left to one thread at the end.
            order = sorted(range(len(self._tensors)), key=lambda at: -self._tensors[at].size)
            futures = {at: pool.submit(self._read, self._tensors[at]) for at in order}
            try:
                left = set(futures.values())
                while left:
                    done, left = wait(left, _COUNTED_EVERY, FIRST_EXCEPTION)
                    for future in done:
                        future.result()
                    if self._count is not None:
                        self._count(self._done, self._all)
            except BaseException:
                self._ended.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [futures[at].result() for at in range(len(futures))]

    def _read(self, tensor: StoredTensor) -> TensorLines:
        return read_lines(tensor.name, tensor.shape, tensor.part, self._took, tensor.step)

    def _took(self, values: int) -> None:
        if self._ended.is_set():
            raise _Stopped
        with self._lock:
            self._done += values


def _processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
