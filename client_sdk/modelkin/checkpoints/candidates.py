"""The checkpoints of one folder, by the names of its files: single files, indexes, numbered shards.

Names are those that transformers, diffusers and huggingface_hub write, with any number of digits:
``model.safetensors``, ``model.safetensors.index.json``, ``model-00001-of-000163.safetensors``, and
their variants ``model.fp16.safetensors``, ``model.safetensors.index.fp16.json``,
``model.fp16.safetensors.index.json``, ``model.fp16-00001-of-00002.safetensors`` and
``model-00001-of-00002.fp16.safetensors``. Others number shards ``model_1_of_2.safetensors`` and
``model.1-of-2.safetensors``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = [
    "MACOS",
    "SUFFIX",
    "Candidate",
    "Shard",
    "candidates",
    "is_index",
    "is_weights",
    "shard_of",
]

SUFFIX: Final = ".safetensors"
MACOS: Final = "._"
"""The beginning of the names of files that macOS puts beside others when it packs a folder."""

_INDEX: Final = re.compile(r"(.+)\.safetensors\.index((?:\.[\w-]+)?)\.json")
_SHARD: Final = re.compile(r"(.+)([-_.])([0-9]+)([-_])of[-_]([0-9]+)((?:\.[\w-]+)?)\.safetensors")


class Shard(NamedTuple):
    """A file of a numbered set: its place, and what all files of the set have in common."""

    number: int
    total: int
    checkpoint: str
    form: tuple[str, str]


@dataclass(slots=True)
class Candidate:
    """A checkpoint by its name, such as ``model`` or ``model.fp16``, in up to three forms.

    Attributes:
        file: the name of the single file; None without one.
        index: the name of the index of its shards; None without one.
        sets: the names of each of its numbered sets, whole or not.
    """

    file: str | None = None
    index: str | None = None
    sets: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @property
    def whole_sets(self) -> list[list[str]]:
        """The numbered sets that lack no file."""
        return [sorted(names) for names in self.sets.values() if is_whole(names)]

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        single = [name for name in (self.file, self.index) if name is not None]
        return [*single, *(name for names in self.sets.values() for name in sorted(names))]


def is_index(name: str) -> bool:
    """Whether a file's name is that of an index of safetensors shards."""
    return name.endswith(".json") and _INDEX.fullmatch(name) is not None


def is_weights(name: str) -> bool:
    """Whether a file's name is that of weights or of their index."""
    return not name.startswith(MACOS) and (
        (name.endswith(SUFFIX) and name != SUFFIX) or is_index(name)
    )


def shard_of(name: str) -> Shard | None:
    """The place of a file in a numbered set, also of one alone; None for any other file."""
    found = _SHARD.fullmatch(name)
    if found is None:
        return None
    stem, before, number, after, total, tail = found.groups()
    return Shard(int(number), int(total), stem + tail, (before + after + total, tail))


def is_whole(names: Collection[str]) -> bool:
    """Whether files are all those of one numbered set, counted from 0 or from 1."""
    shards = [shard_of(name) for name in names]
    first = shards[0] if shards else None
    if first is None or any(s is None or s[1:] != first[1:] for s in shards):
        return False
    numbers = {shard.number for shard in shards if shard is not None}
    begin = min(numbers)
    return begin in (0, 1) and len(names) == len(numbers) == first.total == max(numbers) + 1 - begin


def candidates(names: Iterable[str]) -> dict[str, Candidate]:
    """The checkpoints of a folder by their names, sorted.

    Args:
        names: of files; those that are no weights are left aside.
    """
    found: dict[str, Candidate] = {}
    for name in sorted(names):
        if not is_weights(name):
            continue
        if is_index(name) and (index := _INDEX.fullmatch(name)):
            found.setdefault(index[1] + index[2], Candidate()).index = name
        elif shard := shard_of(name):
            candidate = found.setdefault(shard.checkpoint, Candidate())
            candidate.sets.setdefault(shard.form, []).append(name)
        else:
            found.setdefault(name.removesuffix(SUFFIX), Candidate()).file = name
    return dict(sorted(found.items()))
