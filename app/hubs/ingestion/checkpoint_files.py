"""The checkpoint among the files of a revision, chosen from their names alone.

Only safetensors files are ever chosen: a pickle is a program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from app.hubs.clients.protocol import HubFile
from modelkin.core.adapters import CONFIG_NAME
from modelkin.errors import InvalidCheckpoint

__all__ = ["CheckpointFiles", "choose", "shards_of"]

_PLAIN: Final = ".safetensors"
_INDEX: Final = ".safetensors.index.json"
_DEFAULT_STEM: Final = "model"
"""The name of a checkpoint among several: variants and adapters lie beside it."""
_SHARD: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")
_MAX_NAME_BYTES: Final = 255
"""The longest file name of every file system."""
_ADAPTER: Final = "adapter_model.safetensors"
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of a checkpoint.

    Attributes:
        first: the file to open: the checkpoint itself, or the index of its shards.
        folder: all checkpoints and indexes of its folder by name.
        config: the configuration of a LoRA adapter; None for weights.
    """

    first: HubFile
    folder: dict[str, HubFile]
    config: HubFile | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether ``first`` is an index."""
        return self.first.path.endswith(_INDEX)


def choose(files: Sequence[HubFile], where: str) -> CheckpointFiles:
    """Choose the checkpoint that lies nearest to the top of a revision.

    Among several in a folder the checkpoint named ``model`` is chosen, as transformers reads them:
    a single file goes before an index of shards. An adapter, ``adapter_model``, comes with its
    configuration.

    Args:
        files: all files of the revision.
        where: the name of the revision in errors.

    Raises:
        InvalidCheckpoint: there is no checkpoint, the choice is ambiguous, or an adapter lacks its
            configuration.
    """
    folders: dict[PurePosixPath, dict[str, HubFile]] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if not file.path.endswith((_PLAIN, _INDEX)) or path.name in {_PLAIN, _INDEX}:
            continue
        if len(path.name.encode()) > _MAX_NAME_BYTES:
            raise InvalidCheckpoint(
                f"{where} holds {path.name[:50]!a}..., whose name has more than {_MAX_NAME_BYTES} "
                f"bytes: no file can have it here"
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
            f"{where} holds several checkpoints, in {_join([f'{folder}/' for folder in top])}: "
            f"only one of a model can be compared"
        )
    chosen = _in_folder(folders[top[0]], where)
    if PurePosixPath(chosen.first.path).name != _ADAPTER:
        return chosen
    config = str(top[0] / CONFIG_NAME)
    beside = next((file for file in files if file.path == config), None)
    if beside is None:
        raise InvalidCheckpoint(
            f"{where} holds {_ADAPTER}, and no {CONFIG_NAME} beside it: publish what PEFT saved "
            f"with it"
        )
    return replace(chosen, config=beside)


def shards_of(files: CheckpointFiles, names: set[str], where: str) -> list[HubFile]:
    """The files that an index names.

    Raises:
        InvalidCheckpoint: a file is missing.
    """
    missing = sorted(names - files.folder.keys())
    if missing:
        raise InvalidCheckpoint(
            f"{where} lacks {len(missing)} of {len(names)} shards that {files.first.path!a} "
            f"names: {_join(missing)}"
        )
    return [files.folder[name] for name in sorted(names)]


def _in_folder(folder: dict[str, HubFile], where: str) -> CheckpointFiles:
    indexes = [name for name in folder if name.endswith(_INDEX)]
    whole = [name for name in folder if name.endswith(_PLAIN) and not _is_shard(name)]
    for default in (_DEFAULT_STEM + _PLAIN, _DEFAULT_STEM + _INDEX):
        if default in folder:
            return CheckpointFiles(folder[default], folder)
    for candidates in (indexes, whole):
        if len(candidates) == 1:
            return CheckpointFiles(folder[candidates[0]], folder)
        if candidates:
            raise InvalidCheckpoint(
                f"{where} holds several checkpoints, {_join(sorted(candidates))}, and none is "
                f"named {_DEFAULT_STEM}{_PLAIN}: the choice is ambiguous"
            )
    raise InvalidCheckpoint(
        f"{where} holds shards, {_join(sorted(folder))}, and no {_DEFAULT_STEM}{_INDEX} to go by"
    )


def _is_shard(name: str) -> bool:
    shard = _SHARD.fullmatch(name)
    return shard is not None and int(shard[2]) > 1


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(ascii(name) for name in names[:3]) + more
