"""``CheckpointFetcher``: the checkpoint of a hub's revision, chosen, downloaded and opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from app.hubs.clients.download import writing
from app.hubs.clients.protocol import Hub, HubFile, HubRevision
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.ingestion.files.downloads import DownloadDir
from app.hubs.ingestion.files.ranged_files import RangedFiles
from app.hubs.ingestion.files.resumption import Resumption
from app.models.spaces.stored_layouts import MAX_DIMENSIONS, MAX_TENSOR_NAME_LENGTH, MAX_TENSORS
from modelkin.checkpoints import Adapter, Checkpoint, CheckpointLimits, open_checkpoint
from modelkin.checkpoints.gguf import GGUF_SUFFIX, MAX_HEADER_BYTES, holds_header
from modelkin.checkpoints.indexes import read_index
from modelkin.core.foreign_json import Raw, decode_json
from modelkin.errors import InvalidCheckpoint, PayloadTooLarge

__all__ = [
    "WHOLE_BYTES",
    "CheckpointFetcher",
    "Counter",
    "files_digest",
    "names_in",
    "revision_label",
]

Counter = Callable[[int, int], None]
"""A function of the bytes received and the bytes expected, 0 if the size is unknown."""

_Get = Callable[[HubRevision, Sequence[HubFile], Path, str], None]
"""Downloads files of a revision into a folder."""

LIMITS: Final = CheckpointLimits(
    header=8_000_000, tensors=MAX_TENSORS, name=MAX_TENSOR_NAME_LENGTH, dimensions=MAX_DIMENSIONS
)
"""Limits of a checkpoint's header: no model has a million tensors."""

WHOLE_BYTES: Final = 1 << 30
"""The most bytes of a checkpoint that is downloaded before it is read."""

_FIRST_REQUEST_BYTES: Final = 64 << 10
"""Bytes of a file requested first: they give the header's length and mostly hold all of it."""
_LENGTH_BYTES: Final = 8
_GROWTH: Final = 4
"""How many times as much is requested where a beginning does not hold the header."""
_DISK_CHECK_BYTES: Final = 8 << 20
"""Bytes written between two checks of the free disk space."""
_MIN_BYTES_A_WEIGHT: Final = 2


def revision_label(revision: HubRevision) -> str:
    """The name of a revision in messages, ``org/name@revision``."""
    return f"{revision.model_name}@{revision.revision}"


def files_digest(revision: HubRevision) -> str:
    """A digest of the weights of a revision, from the digests that the hub declares.

    Where the hub declares no digests, it changes with every revision.

    Raises:
        InvalidCheckpoint: the revision holds no checkpoint, or more than one.
    """
    chosen = choose(revision.files, revision_label(revision))
    files = [*chosen.weights, *chosen.beside]
    facts = [
        [
            PurePosixPath(file.path).name,
            file.sha256 or file.blob or f"{revision.revision} {file.size}",
        ]
        for file in sorted(files, key=lambda file: file.path)
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def names_in(hub: Hub, revision: HubRevision, file: HubFile) -> Collection[str]:
    """The names of the tensors in a file, from its header; none if it has no header.

    Raises:
        HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub refuses it.
    """
    begun, _ = hub.beginning(revision, file, _FIRST_REQUEST_BYTES)
    length = _LENGTH_BYTES + int.from_bytes(begun[:_LENGTH_BYTES], "little")
    if length > LIMITS.header:
        return ()
    if len(begun) < length:
        begun, _ = hub.beginning(revision, file, length)
    try:
        return decode_json(begun[_LENGTH_BYTES:length], dict[str, Raw]).keys()
    except ValueError:  # opening the file refuses it
        return ()


@dataclass
class CheckpointFetcher:
    """Downloads the checkpoints of one job.

    Attributes:
        hub: the hub to download from.
        directory: the directory to download into.
        max_bytes: the largest size of one checkpoint.
        on_progress: a function that is called as bytes arrive.
        exclude: patterns of the tensors that are left out.
        whole: whether to download files whole, whatever their size.
        ranged: the files that are fetched as they are read.
    """

    hub: Hub
    directory: DownloadDir
    max_bytes: int
    on_progress: Counter
    exclude: Sequence[str] = ()
    whole: bool = False
    ranged: RangedFiles = field(init=False)
    _done: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)
    _checked: int = field(default=0, init=False)
    _fetched: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.ranged = RangedFiles(self.hub, self._block_fetched)

    def fetch(self, revision: HubRevision, name: str) -> Checkpoint:
        """Open the checkpoint of a revision, in a folder of this name.

        It is downloaded first, or fetched as it is read where it is large.

        Raises:
            InvalidCheckpoint: the revision holds no checkpoint that can be compared.
            PayloadTooLarge: the checkpoint is too large.
            StorageFull: the disk cannot hold it.
            HubNotFound, HubForbidden, HubUnavailable, HubProtocolError: the hub refuses it.
        """
        return self._open(revision, name, self._get)

    def outline(self, revision: HubRevision, name: str) -> Checkpoint:
        """Open the checkpoint from its headers alone: tensor names and shapes, holes for weights.

        Raises: as :meth:`fetch`.
        """
        return self._open(revision, name, self._outline)

    def make_room(self, held: int) -> None:
        """Reserve the disk for the bytes of a file that are read twice.

        Raises:
            StorageFull: the disk cannot hold them.
        """
        if self.ranged:
            self.directory.reserve(self.ranged.room_for(held))

    def resumption(self, *facts: str | None) -> Resumption:
        """What a killed sync of the same facts has read; nothing where files are downloaded."""
        if not self.ranged:
            return Resumption()
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return Resumption(self.directory.beside(f"{key[:32]}.npz"), self.directory)

    def _open(self, revision: HubRevision, name: str, get: _Get) -> Checkpoint:
        where = revision_label(revision)
        chosen = choose(revision.files, where)
        if chosen.choice.kind == "pipeline":
            raise InvalidCheckpoint(f"{where} is a pipeline: its components alone are models")
        folder = self.directory.folder(name)
        first = folder / PurePosixPath(chosen.first.path).name
        try:
            self._done, self._total, self._checked = 0, 0, 0
            self._download(revision, chosen.beside, folder, where)
            remarks = chosen.choice.notes
            if chosen.choice.kind == "index":
                self._download(revision, [chosen.first], folder, where)
                shards = chosen.choice.follow(set(read_index(first, LIMITS).values()), where)
                get(revision, chosen.of(shards), folder, where)
                remarks += shards.notes
            else:
                get(revision, chosen.shards or [chosen.first], folder, where)
            opened = folder if chosen.shards else first
            checkpoint = open_checkpoint(
                opened, self.exclude, LIMITS, unmatched_ok=True, open_file=self.ranged.open
            )
            remarks = tuple(dict.fromkeys([*remarks, *checkpoint.remarks]))
            checkpoint = replace(checkpoint, remarks=remarks)
            if isinstance(checkpoint, Adapter):
                self._check_adapter(checkpoint, where)
        except InvalidCheckpoint as error:
            message = str(error)
            raise InvalidCheckpoint(
                message if message.startswith(where) else f"{where}: {message}"
            ) from None
        return checkpoint

    def _get(
        self, revision: HubRevision, files: Sequence[HubFile], folder: Path, where: str
    ) -> None:
        """Download files, or make sparse ones that are fetched as they are read."""
        sizes = [file.size for file in files]
        known = [size for size in sizes if size is not None]
        if self.whole or len(known) < len(sizes) or sum(known) <= WHOLE_BYTES:
            self._download(revision, files, folder, where)
            return
        self._require_small(sum(known), where)
        self.directory.reserve(self.ranged.window)
        self._outline(revision, files, folder, where)
        for file, size in zip(files, known, strict=True):
            self.ranged.add(folder / PurePosixPath(file.path).name, revision, file, size)

    def _block_fetched(self, size: int) -> None:
        self._fetched += size
        self.on_progress(self._fetched, max(self._fetched, self.ranged.size))
        self.directory.watch()

    def _download(
        self, revision: HubRevision, files: Sequence[HubFile], folder: Path, where: str
    ) -> None:
        declared = sum(file.size or 0 for file in files)
        self._require_small(self._done + declared, where)
        self.directory.reserve(declared)
        self._total = self._done + declared
        for file in files:
            before = self._done

            def received(size: int, before: int = before) -> None:
                self._require_small(before + size, where)
                self.on_progress(before + size, max(self._total, before + size))
                if before + size - self._checked >= _DISK_CHECK_BYTES:
                    self._checked = before + size
                    self.directory.watch()

            into = folder / PurePosixPath(file.path).name
            self._done = before + self.hub.download(revision, file, into, received)

    def _outline(
        self, revision: HubRevision, files: Sequence[HubFile], folder: Path, where: str
    ) -> None:
        left = LIMITS.header
        for file in files:
            begun, total = self.hub.beginning(revision, file, _FIRST_REQUEST_BYTES)
            size = total if file.size is None else file.size
            if size is None:  # the hub does not say where the file ends
                self._download(revision, [file], folder, where)
                continue
            if file.path.endswith(GGUF_SUFFIX):
                begun = self._gguf_header(revision, file, size, begun)
            else:
                length = _LENGTH_BYTES + int.from_bytes(begun[:_LENGTH_BYTES], "little")
                left -= length
                if len(begun) < length <= size and left >= 0:  # else opening the file refuses it
                    begun, _ = self.hub.beginning(revision, file, length)
            self.directory.watch()
            into = folder / PurePosixPath(file.path).name
            with writing(file), into.open("wb") as target:
                target.write(begun[:size])
                target.truncate(size)

    def _gguf_header(self, revision: HubRevision, file: HubFile, size: int, begun: bytes) -> bytes:
        """The beginning of a GGUF file with its header, whose length the file does not say."""
        most = min(size, MAX_HEADER_BYTES)
        while len(begun) < most and not holds_header(begun, size):
            asked = min(len(begun) * _GROWTH, most)
            begun, _ = self.hub.beginning(revision, file, asked)
            if len(begun) < asked:  # opening the file refuses it
                break
        return begun

    def _check_adapter(self, adapter: Adapter, where: str) -> None:
        """Limit the differences that an adapter makes: a small file may make many."""
        size = _MIN_BYTES_A_WEIGHT * adapter.num_parameters
        if size > self.max_bytes:
            raise PayloadTooLarge(
                f"the adapter of {where} changes {adapter.num_parameters} weights, which take "
                f"{size} bytes or more, and at most {self.max_bytes} are read here "
                f"(MODELKIN_MAX_CHECKPOINT_BYTES)"
            )

    def _require_small(self, size: int, where: str) -> None:
        if size > self.max_bytes:
            raise PayloadTooLarge(
                f"the checkpoint of {where} has {size} bytes or more, at most {self.max_bytes} are "
                f"downloaded here (MODELKIN_MAX_CHECKPOINT_BYTES)"
            )
