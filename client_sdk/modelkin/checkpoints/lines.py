"""The fingerprint of a checkpoint on disk, which is read in stretches by some threads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from modelkin._threads import Counting, Job, check_threads, processors, run_jobs
from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker, check_scale
from modelkin.core.fingerprints.tensor_lines import TensorLines, Took, read_lines

__all__ = ["fingerprint"]


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
