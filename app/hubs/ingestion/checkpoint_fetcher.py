"""From a revision on a hub to a checkpoint that can be read: chosen, downloaded, opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from app.hubs.clients.download import writing
from app.hubs.clients.protocol import Hub, HubFile, HubRevision
from app.hubs.ingestion.checkpoint_files import CheckpointFiles, choose, shards_of
from app.hubs.ingestion.downloads import DownloadDir
from app.spaces.service import MAX_DIMENSIONS, MAX_TENSOR_NAME, MAX_TENSORS
from modelkin.checkpoints import Bounds, Checkpoint, open_checkpoint
from modelkin.checkpoints.files import read_index
from modelkin.errors import InvalidCheckpoint, PayloadTooLarge

__all__ = ["Counter", "CheckpointFetcher", "fingerprint", "named"]

Counter = Callable[[int, int], None]
"""Is told how many bytes have come of how many, 0 where nobody knows."""

_Get = Callable[[HubRevision, Sequence[HubFile], Path, str], None]
"""Brings files of a revision into a folder."""

BOUNDS: Final = Bounds(
    header=8_000_000, tensors=MAX_TENSORS, name=MAX_TENSOR_NAME, dimensions=MAX_DIMENSIONS
)
"""Of what a checkpoint declares, that much is read; a header of a million tensors is no model's."""

_HEAD: Final = 64 << 10
"""Bytes of a file that are asked for to learn how long its header is, and mostly hold all of it."""
_LENGTH: Final = 8
_WATCHED: Final = 8 << 20
"""Bytes between two looks at the disk."""
_EIGHT_BITS = "F8"
_SCALES = ("_scale", "_scale_inv")


def named(revision: HubRevision) -> str:
    """What messages call a revision."""
    return f"{revision.name}@{revision.revision}"


def fingerprint(revision: HubRevision) -> str:
    """Changes with the weights of a revision, and with nothing else where the hub tells digests.

    Without digests it changes with every revision.

    Raises:
        InvalidCheckpoint: no checkpoint is in it, or more than one.
    """
    choice = choose(revision.files, named(revision))
    told = choice.folder.values() if choice.is_sharded else [choice.first]
    facts = [
        [PurePosixPath(file.path).name, file.sha256 or f"{revision.revision} {file.size}"]
        for file in sorted(told, key=lambda file: file.path)
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass
class CheckpointFetcher:
    """Downloads the checkpoints of one job.

    Attributes:
        hub: where from.
        room: on the disk.
        most: bytes of one checkpoint.
        count: is told how far it is.
    """

    hub: Hub
    room: DownloadDir
    most: int
    count: Counter
    _done: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)
    _watched: int = field(default=0, init=False)

    def fetch(self, revision: HubRevision, name: str) -> Checkpoint:
        """The checkpoint of a revision, in a folder of this name.

        Raises:
            InvalidCheckpoint: none is there, or none that can be compared.
            PayloadTooLarge: it is too large.
            StorageFull: the disk cannot hold it.
            HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub does not give it.
        """
        return self._opened(revision, name, self._download)

    def outline(self, revision: HubRevision, name: str) -> Checkpoint:
        """The same with holes for its weights: what tensors there are, from the headers alone.

        Raises: as :meth:`fetch`.
        """
        return self._opened(revision, name, self._outline)

    def _opened(self, revision: HubRevision, name: str, get: _Get) -> Checkpoint:
        where = named(revision)
        choice = choose(revision.files, where)
        folder = self.room.folder(name)
        first = folder / PurePosixPath(choice.first.path).name
        try:
            self._done, self._total, self._watched = 0, 0, 0
            if choice.is_sharded:
                self._download(revision, [choice.first], folder, where)
                get(revision, _shards(choice, first, where), folder, where)
            else:
                get(revision, [choice.first], folder, where)
            checkpoint = open_checkpoint(first, bounds=BOUNDS)
            _refuse_scaled(checkpoint)
        except InvalidCheckpoint as error:
            message = str(error)
            raise InvalidCheckpoint(
                message if message.startswith(where) else f"{where}: {message}"
            ) from None
        return checkpoint

    def _download(
        self, revision: HubRevision, files: Sequence[HubFile], folder: Path, where: str
    ) -> None:
        declared = sum(file.size or 0 for file in files)
        self._require_small(self._done + declared, where)
        self.room.reserve(declared)
        self._total = self._done + declared
        for file in files:
            before = self._done

            def received(size: int, before: int = before) -> None:
                self._require_small(before + size, where)
                self.count(before + size, max(self._total, before + size))
                if before + size - self._watched >= _WATCHED:
                    self._watched = before + size
                    self.room.watch()

            into = folder / PurePosixPath(file.path).name
            self._done = before + self.hub.download(revision, file, into, received)

    def _outline(
        self, revision: HubRevision, files: Sequence[HubFile], folder: Path, where: str
    ) -> None:
        left = BOUNDS.header
        for file in files:
            begun, told = self.hub.beginning(revision, file, _HEAD)
            size = told if file.size is None else file.size
            if size is None:  # nobody knows where it ends before it has come
                self._download(revision, [file], folder, where)
                continue
            length = _LENGTH + int.from_bytes(begun[:_LENGTH], "little")
            left -= length
            if len(begun) < length <= size and left >= 0:  # else it is refused as it is
                begun, _ = self.hub.beginning(revision, file, length)
            self.room.watch()
            into = folder / PurePosixPath(file.path).name
            with writing(file), into.open("wb") as target:
                target.write(begun[:size])
                target.truncate(size)

    def _require_small(self, size: int, where: str) -> None:
        if size > self.most:
            raise PayloadTooLarge(
                f"the checkpoint of {where} has {size} bytes or more, at most {self.most} are "
                f"downloaded here (MODELKIN_MAX_CHECKPOINT_BYTES)"
            )


def _shards(choice: CheckpointFiles, index: Path, where: str) -> list[HubFile]:
    return shards_of(choice, set(read_index(index, BOUNDS).values()), where)


def _refuse_scaled(checkpoint: Checkpoint) -> None:
    """8-bit floats whose scales are elsewhere are no weights, and nobody is there to be warned."""
    eights = [tensor for tensor in checkpoint.tensors if tensor.dtype.startswith(_EIGHT_BITS)]
    scales = [tensor for tensor in checkpoint.tensors if tensor.name.endswith(_SCALES)]
    if eights and scales:
        raise InvalidCheckpoint(
            f"{checkpoint.name}: tensor {eights[0].name!a} is {eights[0].dtype}, and its scales "
            f"are in others, {scales[0].name!a} for one: publish the checkpoint before "
            f"quantisation"
        )
