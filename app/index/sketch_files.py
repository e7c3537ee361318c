"""Coordinate sketches on this machine's disk: a file a space, which all its processes share.

Derived data, a cache: of each model the slot of its id holds a sketch, the id of the content that
it is a sketch of, and a seal over both. A slot whose content or seal is another one is not there,
whatever was torn, left over, lost with the power or written by somebody else; so nobody locks or
syncs anything. The first part of a slot, a quarter of the sample, has a seal of its own: most of
what is looked at is passed over after that, without its other pages.

Slots are written whole by ``pwrite`` and read through a mapping, while others write. Without a
file, or where none can be written, everything is answered all the same: what has no slot is
compared in slower or in blunter ways. This module never says how similar anything is.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.sketch import DEFAULT_SIZE, Sketch

__all__ = ["SAMPLE_SEED", "SAMPLE_SIZE", "SketchFile", "SketchFiles"]

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

SAMPLE_SIZE, SAMPLE_SEED = DEFAULT_SIZE, 1
"""The sample of every space: ``support.sketch()`` without arguments."""

_SUFFIX = ".sketches"
_HEADER = 8
"""Words of a slot before those of its sketch, as ``sealed_counts`` describes them."""
_PARTS = 4
_SMALLEST = 256
_MOST_OPEN = 64
_PAUSE = 60.0
"""Seconds without a try to write, once writing failed."""

log = logging.getLogger(__name__)


class SketchFile:
    """The sketches of one space.

    Args:
        path: of the file, which need not exist.
        num_parameters: M of the space.
        attempt: carries out a write, or not; see :class:`SketchFiles`.
    """

    def __init__(
        self,
        path: Path,
        num_parameters: int,
        attempt: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        self._path = path
        self._attempt = attempt
        self._words = -(-min(num_parameters, SAMPLE_SIZE) // 64)
        # Where the sample is all of M it is a sketch that tells all, and none of its parts does.
        self._first = self._words // _PARTS if num_parameters > SAMPLE_SIZE else self._words
        self._stride = -(-(_HEADER + self._words) // 8) * 8
        self._lock = threading.Lock()
        self._closed = False
        self._unreadable = False
        self._descriptor: int | None = None
        self._slots = self._nothing

    def counts(self, sketch: Sketch, ids: Ids, contents: Ids, *, roughly: bool = False) -> Ids:
        """What sketches share with one, as far as they are known here.

        Args:
            sketch: of the space's sample.
            ids: of models, shape ``(n,)``.
            contents: the id of the content that each of them has.
            roughly: only a quarter of a sample is looked at, which takes a quarter of the time.

        Returns:
            Shared and own members, shape ``(n, 2)``; -1 and -1 of a content not known here.
        """
        slots = self._reaching(int(ids.max(initial=-1)))
        known = np.flatnonzero((ids < slots.shape[0]) & (contents != 0))
        found = np.full((ids.size, 2), -1, np.int64)
        if known.size:
            tags, words = contents[known].view(np.uint64), self._arranged(sketch)
            words = words[: self._first] if roughly else words
            part = 0 if roughly else 1
            found[known] = kernels().sealed_counts(slots, words, ids[known], tags, part)
        return found

    def members(self, sketch: Sketch, *, roughly: bool = False) -> int:
        """How many members a sketch has in what :meth:`counts` looks at."""
        words = self._arranged(sketch)
        return _count(words[: self._first]) if roughly else sketch.members

    def write(self, model_id: int, content_id: int, sketch: Sketch) -> None:
        """Keep the sketch of a content, if that can be done."""
        words = self._arranged(sketch)
        parts = words[: self._first], words
        first, members = map(_count, parts)
        seals = [kernels().seal(part, content_id, members, first) for part in parts]
        slot = np.zeros(self._stride, "<u8")
        slot[:5] = content_id, members, first, *seals
        slot[_HEADER : _HEADER + words.size] = words
        self._attempt(lambda: self._write(model_id, slot.tobytes()))

    def write_packed(self, model_id: int, content_id: int, packed: PackedSupport) -> None:
        """Keep the sketch of a support."""
        self.write(model_id, content_id, packed.sketch(SAMPLE_SIZE, SAMPLE_SEED))

    def close(self) -> None:
        """Let the file go: nothing is known here any more, and nothing is kept."""
        with self._lock:
            self._closed = True
            self._forget()

    def _arranged(self, sketch: Sketch) -> Words:
        """The words as a slot has them: every fourth from the first on, then from the second on."""
        words = sketch.words[: self._words]
        if self._first == self._words:
            return words
        return np.ascontiguousarray(words.reshape(-1, _PARTS).T).ravel()

    @property
    def _nothing(self) -> Words:
        return np.zeros((0, self._stride), np.uint64)

    def _reaching(self, last: int) -> Words:
        """The slots up to the last one asked for, or as far as the file goes; read-only."""
        with self._lock:
            if self._is_gone() or self._slots.shape[0] <= last:
                try:
                    self._map()
                    self._unreadable = False
                except OSError as error:
                    if not self._unreadable:
                        log.warning("%s cannot be read: %s", self._path, error.strerror)
                    self._unreadable = True
            return self._slots

    def _is_gone(self) -> bool:
        """Whether the open file was deleted since; it is let go then."""
        if self._descriptor is None or os.fstat(self._descriptor).st_nlink:
            return False
        self._forget()
        return True

    def _map(self) -> None:
        if self._closed:
            return
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return
        size = 8 * self._stride
        count = os.fstat(self._descriptor).st_size // size
        if count > self._slots.shape[0]:
            # Files only grow, so that no mapping ever reaches behind an end.
            mapped = mmap.mmap(self._descriptor, count * size, prot=mmap.PROT_READ)
            mapped.madvise(mmap.MADV_RANDOM)
            self._slots = np.frombuffer(mapped, np.uint64).reshape(count, self._stride)

    def _write(self, model_id: int, slot: bytes) -> None:
        descriptor = self._writable()
        if descriptor is None:
            return
        try:
            self._grow(descriptor, model_id)
            if os.pwrite(descriptor, slot, model_id * len(slot)) != len(slot):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _writable(self) -> int | None:
        """The file, open for this one write, which keeps nobody waiting; None once closed."""
        with self._lock:
            if self._closed:
                return None
            self._is_gone()
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            return os.dup(self._descriptor)

    def _grow(self, descriptor: int, model_id: int) -> None:
        """Reach beyond the slot, to a power of two: what was mapped is seldom mapped anew.

        What is written is the last byte of a header, which is zero in all of them: so two processes
        may do it at a time, and what either has put there since stays as it is.
        """
        count = max(_SMALLEST, 1 << model_id.bit_length())
        end = 8 * (count * self._stride + _HEADER)
        if os.fstat(descriptor).st_size < end:
            os.pwrite(descriptor, b"\0", end - 1)

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._slots = None, self._nothing


class SketchFiles:
    """The sketches of all spaces of one database on this machine.

    Args:
        folder: holds the files of nobody else; it is made with the first of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: OrderedDict[int, SketchFile] = OrderedDict()
        self._failed_at: float | None = None

    def of(self, space_id: int, num_parameters: int) -> SketchFile:
        """The sketches of a space, whose M never changes."""
        with self._lock:
            file = self._files.get(space_id)
            if file is None:
                file = SketchFile(self._path(space_id), num_parameters, self._attempt)
                self._files[space_id] = file
            self._files.move_to_end(space_id)
            idle = self._files.popitem(last=False)[1] if len(self._files) > _MOST_OPEN else None
        if idle is not None:
            idle.close()
        return file

    def forget(self, space_id: int) -> None:
        """Delete the sketches of a space that was deleted."""
        with self._lock:
            file = self._files.pop(space_id, None)
        if file is not None:
            file.close()
        _delete(self._path(space_id))

    def sweep(self, space_ids: Iterable[int]) -> None:
        """Delete what belongs to none of the spaces that there are: another machine deleted it."""
        wanted = {self._path(space_id).name for space_id in space_ids}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in wanted and path.stem.isdecimal():
                self.forget(int(path.stem))

    def close(self) -> None:
        """Let all files go."""
        with self._lock:
            files, self._files = list(self._files.values()), OrderedDict()
        for file in files:
            file.close()

    def _path(self, space_id: int) -> Path:
        return self._folder / f"{space_id}{_SUFFIX}"

    def _attempt(self, write: Callable[[], None]) -> None:
        """Write, unless that failed a moment ago; one line when it fails, and one when it works."""
        failed_at = self._failed_at
        if failed_at is not None and time.monotonic() < failed_at + _PAUSE:
            return
        try:
            write()
        except OSError as error:
            self._failed_at = time.monotonic()
            if failed_at is None:
                log.warning(
                    "sketches cannot be kept in %s (%s): queries go on without",
                    self._folder,
                    error.strerror,
                )
            return
        if failed_at is not None:
            self._failed_at = None
            log.info("sketches are kept in %s again", self._folder)


def _count(words: Words) -> int:
    return int(np.bitwise_count(words).sum(dtype=np.int64))


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
