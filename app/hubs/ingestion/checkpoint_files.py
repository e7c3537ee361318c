"""Which files of a repository are its checkpoint, decided from their names alone.

Owns that decision, and that nothing but safetensors is ever chosen: a pickle is a program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from app.hubs.clients.protocol import HubFile
from modelkin.errors import InvalidCheckpoint

__all__ = ["CheckpointFiles", "choose", "shards_of"]

_PLAIN: Final = ".safetensors"
_INDEX: Final = ".safetensors.index.json"
_USUAL: Final = "model"
"""What a checkpoint is called where there are several: variants and adapters lie beside it."""
_SHARD: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")
_LONGEST: Final = 255
"""Bytes of a file's name, on every file system."""
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A checkpoint among files.

    Attributes:
        first: the file to open: the checkpoint itself, or the index of its shards.
        folder: the files beside it, by their names.
    """

    first: HubFile
    folder: dict[str, HubFile]

    @property
    def is_sharded(self) -> bool:
        """Whether ``first`` is an index."""
        return self.first.path.endswith(_INDEX)


def choose(files: Sequence[HubFile], where: str) -> CheckpointFiles:
    """The checkpoint among the files of a revision: the one that is nearest to the top.

    Of several in a folder it is the one named ``model``, as transformers reads them: the file
    before the index of shards.

    Args:
        files: all of them.
        where: what errors call the revision.

    Raises:
        InvalidCheckpoint: there is none, or nobody can say which one is meant.
    """
    folders: dict[PurePosixPath, dict[str, HubFile]] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if not file.path.endswith((_PLAIN, _INDEX)) or path.name in {_PLAIN, _INDEX}:
            continue
        if len(path.name.encode()) > _LONGEST:
            raise InvalidCheckpoint(
                f"{where} holds {path.name[:50]!a}..., whose name has more than {_LONGEST} bytes: "
                f"no file can be called that here"
            )
        folders.setdefault(path.parent, {})[path.name] = file
    if not folders:
        pickles = [file.path for file in files if file.path.endswith(_PICKLES)]
        aside = f", and {pickles[0]!a} is a pickle, which is never read" if pickles else ""
        raise InvalidCheckpoint(
            f"{where} holds no safetensors file{aside}: publish the weights as model.safetensors"
        )
    nearest = min(len(folder.parts) for folder in folders)
    top = sorted(folder for folder in folders if len(folder.parts) == nearest)
    if len(top) > 1:
        raise InvalidCheckpoint(
            f"{where} holds several checkpoints, in {_listed([f'{folder}/' for folder in top])}: "
            f"only one of a model can be compared"
        )
    return _in_folder(folders[top[0]], where)


def shards_of(choice: CheckpointFiles, names: set[str], where: str) -> list[HubFile]:
    """The files that an index names.

    Raises:
        InvalidCheckpoint: one is not there.
    """
    missing = sorted(names - choice.folder.keys())
    if missing:
        raise InvalidCheckpoint(
            f"{where} lacks {len(missing)} of {len(names)} shards that {choice.first.path!a} "
            f"names: {_listed(missing)}"
        )
    return [choice.folder[name] for name in sorted(names)]


def _in_folder(folder: dict[str, HubFile], where: str) -> CheckpointFiles:
    indexes = [name for name in folder if name.endswith(_INDEX)]
    whole = [name for name in folder if name.endswith(_PLAIN) and not _is_shard(name)]
    for usual in (_USUAL + _PLAIN, _USUAL + _INDEX):
        if usual in folder:
            return CheckpointFiles(folder[usual], folder)
    for candidates in (indexes, whole):
        if len(candidates) == 1:
            return CheckpointFiles(folder[candidates[0]], folder)
        if candidates:
            raise InvalidCheckpoint(
                f"{where} holds several checkpoints, {_listed(sorted(candidates))}, and none is "
                f"called {_USUAL}{_PLAIN}: nobody can say which one is meant"
            )
    raise InvalidCheckpoint(
        f"{where} holds shards, {_listed(sorted(folder))}, and no {_USUAL}{_INDEX} to go by"
    )


def _is_shard(name: str) -> bool:
    shard = _SHARD.fullmatch(name)
    return shard is not None and int(shard[2]) > 1


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(ascii(name) for name in names[:3]) + more
