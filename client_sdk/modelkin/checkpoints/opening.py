"""``open_checkpoint``: a checkpoint of weights, or an adapter, by what the files hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from io import FileIO
from pathlib import Path

from modelkin.checkpoints.adapters import adapter_of, is_adapter, refuse_embedding, targets_of
from modelkin.checkpoints.dtypes import FLOATS, INTEGERS
from modelkin.checkpoints.files import Checkpoint, checkpoint_of, matching, read_tensors
from modelkin.checkpoints.header import CheckpointLimits
from modelkin.checkpoints.quantised import recognise
from modelkin.checkpoints.tensors import OpenFile

__all__ = ["open_checkpoint"]


def open_checkpoint(
    path: str | Path,
    exclude: Iterable[str] = (),
    limits: CheckpointLimits | None = None,
    *,
    unmatched_ok: bool = False,
    open_file: OpenFile = FileIO,
) -> Checkpoint:
    """A checkpoint's tensors, from its headers alone.

    Args:
        path: a ``.safetensors`` file, an index (``*.safetensors.index.json``) of shards beside it,
            or a folder that holds one checkpoint; or a ``.gguf`` file, the first one of a split
            model. An adapter (LoRA, LoHa, LoKr), as PEFT, diffusers, kohya's trainers or LyCORIS
            save it, is opened as a
            :class:`modelkin.checkpoints.Adapter`.
        exclude: shell patterns of names to leave out, such as ``"lm_head.*"``.
        limits: on what it may declare; None for the limits of the format alone.
        unmatched_ok: whether a pattern may match no name.
        open_file: opens the files when values are read, as ``io.FileIO`` does.

    Raises:
        InvalidCheckpoint: neither safetensors nor GGUF, damaged, incomplete, quantised by a scheme
            that is not read, or without parameters; a pattern without a match; more than
            ``limits`` allow; an adapter of another kind, or one that does not fit its
            configuration; an embedding of textual inversion.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    exclude = tuple(exclude)
    stored = read_tensors(path, limits, open_file)
    source, named = stored.source, stored.named
    excluded = matching(named, exclude, source.name, unmatched_ok=True)
    if is_adapter(source, named, excluded):
        config, targets = targets_of(source, named)
        excluded = matching(targets, exclude, source.name, unmatched_ok)
        adapter = adapter_of(path, source, config, targets, excluded)
        readable = tuple(t for t in named.values() if t.dtype in FLOATS or t.dtype in INTEGERS)
        return replace(adapter, remarks=stored.remarks, stored=readable)  # alphas may be integers
    refuse_embedding(source, named)
    recognition = recognise(named, stored.beside)
    patterns = matching(recognition.names, exclude, source.name, unmatched_ok)
    tensors, excluded = recognition.divide(patterns)
    return checkpoint_of(path, replace(stored, named=tensors), excluded)
