"""The folder of a tenant's segments: their files, and the manifest that says which count.

All processes of a machine share the folder. One at a time changes it, under a lock of the file
system, which ends with its process. It writes a new file, then a new manifest in the place of the
old one, and deletes what no manifest names last. So a process that is killed anywhere leaves the
old manifest with its files, or the new one with its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.fingerprints.finding.merging import Merged
from app.fingerprints.finding.records import Damaged
from app.fingerprints.finding.segment_file import open_segment, write_segment
from app.fingerprints.finding.segments import Segment
from app.infra import fail_points
from app.infra.private_files import prepare_folder

__all__ = ["NOTHING_STORED", "SegmentStore", "Stored"]

_FORMAT: Final = 1
_MANIFEST: Final = "manifest"
_LOCK: Final = "lock"
_SUFFIX: Final = ".segment"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a manifest says.

    Attributes:
        version: that of the feed which the segments have reached.
        needed: that which they need to reach before they are asked: a later one while they are
            being built, since what changed again by then is not in them yet.
        names: the names of their files, the oldest first.
    """

    version: int
    needed: int
    names: tuple[str, ...]


NOTHING_STORED: Final = Stored(0, 0, ())


class SegmentStore:
    """The segments of one tenant on this machine.

    Args:
        folder: its folder, which the first write creates.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: str | None = None

    def read(self) -> Stored:
        """What the present manifest says; a lost, damaged or unknown one says that nothing is."""
        try:
            said: Any = json.loads((self._folder / _MANIFEST).read_bytes())
            given = said.pop("sum")
            if given == _checksum(said) and said["format"] == _FORMAT:
                names = tuple(map(str, said["segments"]))
                return Stored(int(said["version"]), int(said["needed"]), names)
        except FileNotFoundError:
            return NOTHING_STORED
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._say(f"cannot be read ({error})")
            return NOTHING_STORED
        self._say("is not one of this version")
        return NOTHING_STORED

    def _say(self, what: str) -> None:
        """Log a fault once: it is found again at each question, until another manifest is there."""
        if what != self._said:
            self._said = what
            log.warning("the manifest in %s %s: the index is built again", self._folder, what)

    def open(self, name: str) -> Segment:
        """Open a segment.

        Raises:
            Damaged: its file is not what was written, or is gone.
        """
        try:
            return open_segment(self._folder / name)
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror}") from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[bool]:
        """Have the folder alone while the block runs; False where another process has it.

        Raises:
            OSError: the folder cannot be made.
        """
        prepare_folder(self._folder)
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(descriptor)

    def write(self, found: Merged) -> str:
        """Write a segment, which no manifest names yet; return its name.

        Raises:
            OSError: it cannot be written.
        """
        name = f"{secrets.token_hex(8)}{_SUFFIX}"
        write_segment(self._folder / name, found)
        return name

    def publish(self, stored: Stored) -> None:
        """Have these segments count from now on, and no others, whose files are deleted.

        The caller has the folder alone.

        Raises:
            OSError: the manifest cannot be written; the present one stays.
        """
        said = {
            "format": _FORMAT,
            "version": stored.version,
            "needed": stored.needed,
            "segments": list(stored.names),
        }
        data = json.dumps(said | {"sum": _checksum(said)}).encode()
        path = self._folder / f"{_MANIFEST}.new"
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            with fail_points.around("fsync"):
                os.fsync(file.fileno())
        with fail_points.around("rename"):
            path.replace(self._folder / _MANIFEST)
        self._delete_others(stored.names)

    def discard(self) -> None:
        """Delete the manifest, so that all is built again; what another process maps stays there.

        The caller has the folder alone.
        """
        (self._folder / _MANIFEST).unlink(missing_ok=True)
        self._delete_others(())

    def _delete_others(self, names: Sequence[str]) -> None:
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in names:
                with fail_points.around("unlink"), contextlib.suppress(OSError):
                    path.unlink()


def _checksum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())
