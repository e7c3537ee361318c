"""``RangedFiles``: files of a hub that are read by ranges, a window of which is on the disk.

A file is sparse: its blocks are fetched when they are read, and given back to the disk when the
window is full. Blocks of a matrix that is read twice are held until then. What reads a file sees an
ordinary one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Final

from app.hubs.clients.download import writing
from app.hubs.clients.protocol import Hub, HubFile, HubRevision, RangesIgnored
from app.infra.errors import HubProtocolError
from app.infra.storage.holes import punch

__all__ = ["BLOCK_BYTES", "LOOK_BYTES", "WINDOW_BYTES", "RangedFiles"]

BLOCK_BYTES: Final = 32 << 20
"""Bytes of a request."""
WINDOW_BYTES: Final = 1 << 28
"""Bytes that are on the disk at a time, of all files, unless more of a matrix is held. A model and
its base are read side by side, so a few blocks do; what a sync keeps of its findings takes more."""

LOOK_BYTES: Final = 256 << 10
"""The most bytes of a read that may come alone."""

Fetched = Callable[[int], None]
"""A function of the bytes of a block that has arrived; an error ends the reading."""


@dataclass(slots=True)
class _RangedFile:
    """A file of a hub, and what of it was fetched.

    Attributes:
        digest: of the blocks up to ``digested``, which were fetched one after another.
        compared: whether the whole file has the digest that the hub declares.
        versions: what the hub calls the versions of the file that it has sent.
    """

    path: Path
    revision: HubRevision
    file: HubFile
    size: int
    digest: Any = field(default_factory=hashlib.sha256)
    digested: int = 0
    compared: bool = False
    versions: frozenset[str] = frozenset()


class RangedFiles:
    """Opens sparse files whose blocks come from a hub as they are read.

    Args:
        hub: the hub to fetch from.
        fetched: is called with the size of each block.
        block: bytes of a request.
        window: bytes that are on the disk at a time.
    """

    def __init__(
        self,
        hub: Hub,
        fetched: Fetched,
        block: int | None = None,
        window: int | None = None,
    ) -> None:
        self._hub = hub
        self._fetched = fetched
        self.window = WINDOW_BYTES if window is None else window
        self._block = BLOCK_BYTES if block is None else block
        self._most = max(2, self.window // self._block)
        self._held: tuple[Path, int | None] | None = None
        self._files: dict[Path, _RangedFile] = {}
        self._blocks: OrderedDict[tuple[Path, int], None] = OrderedDict()
        self._looked: set[tuple[Path, int]] = set()

    @property
    def most_read(self) -> int:
        """The most bytes of a read; they lie in the half of the window that nothing can hold."""
        return (self._least - 1) * self._block

    @property
    def _least(self) -> int:
        """The blocks that are on the disk beside those that are held."""
        return self._most // 2 + 1

    def __bool__(self) -> bool:
        """Whether a file was added."""
        return bool(self._files)

    def add(self, path: Path, revision: HubRevision, file: HubFile, size: int) -> None:
        """Read this file by ranges: ``path`` is a sparse file of its size."""
        self._files[path] = _RangedFile(path, revision, file, size)

    def open(self, path: Path) -> FileIO:
        """Open a file; one that was not added is read as it is."""
        ranged = self._files.get(path)
        return FileIO(path) if ranged is None else _Filled(ranged, self)

    def require(self, ranged: _RangedFile, begin: int, end: int) -> None:
        """Fetch the blocks of a range that are not on the disk.

        The first few bytes that are read of a block come alone: a look into a tensor costs no
        block.

        Raises:
            RangesIgnored: the hub sends whole files alone, or ranges of several versions of a file
                whose digest it does not declare.
            HubUnavailable, HubProtocolError, HubForbidden, HubNotFound, StorageFull: see
                :meth:`app.hubs.clients.protocol.Hub.part`.
        """
        end = min(end, ranged.size)
        for at in range(begin // self._block, -(-end // self._block)):
            key = ranged.path, at
            if key in self._blocks:
                self._blocks.move_to_end(key)
                continue
            if end - begin <= LOOK_BYTES and key not in self._looked:
                self._looked.add(key)
                self._fetch(ranged, begin, end)
                return
            self._fetch_block(ranged, at)
            self._make_room()

    def hold(self, path: Path, begin: int | None) -> None:
        """Keep what is fetched of a file from a byte on, beyond the window where that is full.

        Args:
            path: the only file of which anything is held.
            begin: None to hold nothing more.
        """
        self._held = path, begin

    @property
    def paths(self) -> frozenset[Path]:
        """The files that were added."""
        return frozenset(self._files)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(ranged.size for ranged in self._files.values())

    def trust(self, paths: Collection[Path]) -> None:
        """Take files for compared: an earlier process has done that."""
        for path in self._files.keys() & set(paths):
            self._files[path].compared = True

    def finish(self, paths: Collection[Path] | None = None) -> None:
        """Compare files with the digests that the hub declares, and fetch what that takes.

        Blocks that were read in order were digested as they came. The others are fetched again.

        Args:
            paths: the files, of which some may be others; None for all that were added.

        Raises:
            HubProtocolError: the bytes do not have the declared digest.
        """
        for ranged in self._files.values():
            if paths is not None and ranged.path not in paths:
                continue
            if ranged.compared or ranged.file.sha256 is None:
                continue
            while ranged.digested * self._block < ranged.size:
                at = ranged.digested
                self._fetch_block(ranged, at)
                self._give_back(ranged.path, at)
            found = ranged.digest.hexdigest()
            if found != ranged.file.sha256:
                raise HubProtocolError(
                    f"the hub declares {ranged.file.path} with the SHA-256 {ranged.file.sha256}, "
                    f"what it sends has {found}"
                )
            ranged.compared = True

    def _fetch_block(self, ranged: _RangedFile, at: int) -> None:
        """Fetch a block, and digest all blocks that follow the digested ones on the disk."""
        begin = at * self._block
        self._fetch(ranged, begin, min(begin + self._block, ranged.size))
        self._blocks[ranged.path, at] = None
        while (ranged.path, ranged.digested) in self._blocks:
            with ranged.path.open("rb", buffering=0) as file:
                file.seek(ranged.digested * self._block)
                ranged.digest.update(file.read(self._block))
            ranged.digested += 1

    def room_for(self, held: int) -> int:
        """The most bytes that are on the disk where so many are held."""
        return max(self.window, held + (self._least + 3) * self._block)

    def _make_room(self) -> None:
        """Give the blocks back that were read the longest ago and are not held."""
        free = [key for key in self._blocks if not self._is_held(*key)]
        excess = min(len(self._blocks) - self._most, len(free) - self._least)
        for key in free[: max(0, excess)]:
            self._give_back(*key)

    def _is_held(self, path: Path, at: int) -> bool:
        if self._held is None or self._held[0] != path or self._held[1] is None:
            return False
        return (at + 1) * self._block > self._held[1]

    def _fetch(self, ranged: _RangedFile, begin: int, end: int) -> None:
        with writing(ranged.file), ranged.path.open("r+b") as target:
            target.seek(begin)
            part = self._hub.part(ranged.revision, ranged.file, begin, end, target)
        ranged.versions |= part
        if ranged.file.sha256 is None and len(ranged.versions) > 1:
            raise RangesIgnored(f"{ranged.file.path} is another file at each request")
        self._fetched(end - begin)

    def _give_back(self, path: Path, at: int) -> None:
        self._blocks.pop((path, at), None)
        with path.open("r+b") as file:
            punch(file.fileno(), at * self._block, (at + 1) * self._block)


class _Filled(FileIO):
    """A sparse file whose blocks are fetched before they are read.

    One read takes no more than half of the window: its first blocks would be given back before that
    where a matrix is held.
    """

    def __init__(self, ranged: _RangedFile, files: RangedFiles) -> None:
        super().__init__(ranged.path)
        self._ranged = ranged
        self._files = files

    def readinto(self, buffer: Any, /) -> int:
        begin, wanted = self.tell(), memoryview(buffer).cast("B")[: self._files.most_read]
        self._files.require(self._ranged, begin, begin + wanted.nbytes)
        return super().readinto(wanted)
