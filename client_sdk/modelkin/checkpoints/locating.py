"""The files of a checkpoint on disk, found by the rule of :mod:`.repository`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from modelkin.checkpoints.candidates import is_weights
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.indexes import read_index, read_pipeline
from modelkin.checkpoints.repository import PIPELINE, Choice, choose, choose_file, components

__all__ = ["Located", "locate"]

_MAX_DEPTH: Final = 64
"""Levels of folders that are searched, of which repositories use two or three: a hub's listing has
them all.
"""
_MAX_FILES: Final = 100_000
"""The most files of a folder, as of a repository on a hub."""


@dataclass(frozen=True, slots=True)
class Located:
    """The files of a checkpoint.

    Attributes:
        source: the file or index; of shards without an index, the first.
        files: the files with tensors.
        weight_map: what an index says of its shards; empty without one.
        whole: whether the model is all that the files hold.
        beside: small files that say how the weights are to be read.
        notes: remarks for people, a sentence each.
    """

    source: Path
    files: tuple[Path, ...]
    weight_map: Mapping[str, str] = field(default_factory=dict, repr=False)
    whole: bool = True
    beside: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def locate(path: Path, limits: CheckpointLimits | None = None) -> Located:
    """The files of a checkpoint by its file, its index or its folder.

    Raises:
        InvalidCheckpoint: there is none, or more than one; it is not complete, or a pipeline.
        OSError: a file cannot be read.
    """
    if path.name == PIPELINE:
        path = path.parent
    if path.is_dir():
        files = _files_below(path)
        return _located(path, choose(files, str(path)), files, limits)
    files = [path.name]
    with suppress(OSError):  # a folder may be closed, and its file open
        files = [entry.name for entry in os.scandir(path.parent)]
    return _located(path.parent, choose_file(path.name, files), files, limits)


def _located(
    folder: Path, choice: Choice, files: list[str], limits: CheckpointLimits | None
) -> Located:
    first = folder / choice.first
    beside = tuple(folder / path for path in choice.beside)
    if choice.kind == "pipeline":
        _refuse_pipeline(folder, choice, files)
    if choice.kind == "file":
        return Located(first, (first,), beside=beside, notes=choice.notes)
    if choice.kind == "shards":
        shards = tuple(folder / path for path in choice.shards)
        return Located(first, shards, beside=beside, notes=choice.notes)
    weight_map = read_index(first, limits)
    found = choice.follow(set(weight_map.values()), first.name)
    return Located(
        first,
        tuple(folder / path for path in found.paths),
        weight_map={} if found.replaced else weight_map,
        whole=found.whole,
        beside=beside,
        notes=(*choice.notes, *found.notes),
    )


def _refuse_pipeline(folder: Path, choice: Choice, files: list[str]) -> None:
    listed = read_pipeline(folder / choice.first)
    found = components(choice, listed, files, str(folder))
    parent = (folder / choice.first).parent
    names = ", ".join(str(parent / name) for name in found)
    raise bad_checkpoint(
        str(folder), f"it is a pipeline, each of whose components is a model: give one of {names}"
    )


def _files_below(folder: Path) -> list[str]:
    """The paths of files in a folder, level by level, down to the first level with weights.

    Of a pipeline the level of its components comes with it.
    """
    found: list[str] = []
    level, weights = [folder], False
    for _ in range(_MAX_DEPTH):
        below: list[Path] = []
        pipeline = False
        for parent in level:
            for entry in _entries(parent, optional=parent != folder):
                if entry.is_dir(follow_symlinks=False):
                    below.append(Path(entry.path))
                    continue
                found.append(Path(entry.path).relative_to(folder).as_posix())
                weights = weights or is_weights(entry.name)
                pipeline = pipeline or entry.name == PIPELINE
        if len(found) > _MAX_FILES:
            raise bad_checkpoint(str(folder), f"it holds more than {_MAX_FILES:,} files")
        if (weights and not pipeline) or not below:
            break
        level = below
    return found


def _entries(folder: Path, optional: bool) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError:
        if not optional:
            raise
