"""The fingerprint of a model in memory, which equals that of the file that it is saved in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin._threads import Counting, Job, check_threads, processors, run_jobs
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker, check_scale
from modelkin.core.fingerprints.matrices import Matrix
from modelkin.core.fingerprints.matrix_keys import MatrixKeys, MatrixReading
from modelkin.core.fingerprints.tensor_lines import TensorLines, Took, lines_of
from modelkin.torch.fingerprints.matrices import DeviceMatrix, matrices_of
from modelkin.torch.fingerprints.tensors import Model, floats_of

__all__ = ["fingerprint"]

Reading = Callable[[Tensor, Took], MatrixReading]

_THREADS_OF_DEVICE: Final = 4
"""Threads that give a device its work: while one looks at the sampled lines, others go on."""


def fingerprint(
    model: Model,
    *,
    exclude: Iterable[str] = (),
    scale: int | None = None,
    threads: int | None = None,
    count: Counting | None = None,
) -> Fingerprint:
    """The fingerprint of a model's weights, made where they lie.

    It is that of ``modelkin.checkpoints.fingerprint`` for a file of the model's state dict, bit for
    bit. Parameters and saved buffers of floats count, frozen or not; those of integers and booleans
    do not. On a CUDA device plain torch operations find the keys, and some sampled lines of each
    matrix are all that is copied to this machine. Tensors of other devices are copied, a stretch at
    a time.

    Args:
        model: any model, or its state dict, or pairs of names and tensors. Names lack the marks of
            what wraps the model, such as ``_orig_mod.`` of ``torch.compile``. Tied parameters are
            one tensor with several names.
        exclude: shell patterns of names to leave out.
        scale: a power of two: one line in so many is kept; by default the least that leaves
            4,096 lines at most, or 32 a tensor where these are more.
        threads: that read tensors side by side; by default as many as there are processors, and 4
            at most where a tensor lies on a CUDA device. There each takes 250 MB at most.
        count: is called ten times a second with the values read so far and all of them, by the
            thread of the caller; what it raises ends the call.

    Raises:
        InvalidParameter: a tensor is sharded, quantised, complex, sparse or without data; a pattern
            matches nothing; no tensor is left; the scale is no power of two, or threads is below 1.
        InvalidImportance: a value is NaN or infinite; names its tensor.
    """
    check_threads(threads)
    if scale is not None:
        check_scale(scale)
    tensors = floats_of(model, exclude)
    if threads is None:
        on_device = any(tensor.is_cuda for tensor in tensors.values())
        threads = min(processors(), _THREADS_OF_DEVICE) if on_device else processors()
    once = {_memory_of(tensor): name for name, tensor in tensors.items()}  # tied ones, too
    jobs = [_job(name, tensors[name]) for name in once.values()]
    found = dict(zip(once, run_jobs(jobs, threads, count), strict=True))
    maker = FingerprintMaker()
    for name, tensor in tensors.items():
        maker.take(name, found[_memory_of(tensor)])
    return maker.finish(scale)


def _memory_of(tensor: Tensor) -> object:
    """What tensors have in common that are the same values in memory."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _job(name: str, tensor: Tensor) -> Job[TensorLines]:
    def read(took: Took) -> TensorLines:
        reading: Callable[[Tensor, Took], MatrixReading] = (
            DeviceMatrix if tensor.is_cuda else _on_host
        )
        readings = (reading(matrix, took) for matrix in matrices_of(tensor))
        return lines_of(name, tuple(tensor.shape), readings)

    return Job(tensor.numel(), read)


def _on_host(matrix: Tensor, took: Took) -> MatrixReading:
    """A matrix that this machine's kernels read, in place where it lies here."""
    rows, columns = matrix.shape

    def read(begin: int, end: int) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = matrix[begin:end].to("cpu", torch.float32).numpy()
        return values

    return MatrixKeys(Matrix(rows, columns, read), took)
