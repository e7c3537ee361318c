"""The file of a space's coordinate sketches: a disk cache that all processes of a machine share.

The slot of a model holds its sketch, the id of the sketched content, and a seal (checksum) of both.
A reader ignores a slot with another content or a wrong seal. So torn, stale, lost and foreign slots
do no harm, and no process needs a lock or an fsync. The first quarter of a sample has a separate
seal: a query rejects most models after that, without reading the other pages of their slots.

A process writes a slot whole by ``pwrite`` while others read through a guarded map, which outlives
a cut of the file: slots that are gone read as zeros, whose seals are wrong. Without a file, or
on a full disk, queries are still answered: models without a slot are compared in slower or less
sharp ways. This module never estimates a similarity.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.infra.storage.guarded_maps import GuardedMap
from app.infra.storage.holes import data_ranges, punch
from app.models.index.parts import in_parts
from app.models.index.sketch_heads import HEAD_BYTES, SAMPLE_SEED, SAMPLE_SIZE, sketch_of_head
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.sketch import Sketch

__all__ = ["MIN_PART", "SketchFile"]

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_HEADER_WORDS = 8
"""Words of a slot that precede its sketch; ``sealed_counts`` describes them."""
_PART_COUNT = 4
_MIN_SLOTS = 256
MIN_PART = 1 << 12
"""The least sketches of a part: 8 MiB of first quarters, which lie apart, 2 ms."""

log = logging.getLogger(__name__)


class SketchFile:
    """The sketches of one space.

    Args:
        path: the path of the file, which need not exist.
        num_parameters: M of the space.
        attempt: a function that runs a write, or skips it; see ``SketchFolder``.
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
        # A sample of all M parameters gives S exactly; a part of it would not.
        self._first_words = (
            self._words // _PART_COUNT if num_parameters > SAMPLE_SIZE else self._words
        )
        self._stride = -(-(_HEADER_WORDS + self._words) // 8) * 8
        self._lock = threading.Lock()
        self._closed = False
        self._unreadable = False
        self._descriptor: int | None = None
        self._mapped: GuardedMap | None = None
        self._slots = self._nothing

    def counts(self, sketch: Sketch, ids: Ids, contents: Ids, *, coarse: bool = False) -> Ids:
        """Count the members that models share with a sketch.

        Args:
            sketch: a sketch of the space's sample.
            ids: the ids of models, shape ``(n,)``.
            contents: the present content id of each model.
            coarse: whether to count in a quarter of the sample, which takes a quarter of the time.

        Returns:
            Shared and own members, shape ``(n, 2)``; -1 and -1 for a content not in the file.
        """
        slots = self._slots_up_to(int(ids.max(initial=-1)))
        known = np.flatnonzero((ids < slots.shape[0]) & (contents != 0))
        found = np.full((ids.size, 2), -1, np.int64)
        if known.size:
            tags, words = contents[known].view(np.uint64), self._arrange(sketch)
            words = words[: self._first_words] if coarse else words
            places, quarter = ids[known], 0 if coarse else 1
            parts = in_parts(
                known.size,
                lambda part: kernels().sealed_counts(
                    slots, words, places[part], tags[part], quarter
                ),
                least=MIN_PART,
            )
            found[known] = np.concatenate(parts)
        return found

    def members(self, sketch: Sketch, *, coarse: bool = False) -> int:
        """The number of members of a sketch that :meth:`counts` compares."""
        words = self._arrange(sketch)
        return _count(words[: self._first_words]) if coarse else sketch.members

    def write(self, model_id: int, content_id: int, sketch: Sketch) -> None:
        """Cache the sketch of a content, if the file can be written."""
        words = self._arrange(sketch)
        parts = words[: self._first_words], words
        first, members = map(_count, parts)
        seals = [kernels().seal(part, content_id, members, first) for part in parts]
        slot = np.zeros(self._stride, "<u8")
        slot[:5] = content_id, members, first, *seals
        slot[_HEADER_WORDS : _HEADER_WORDS + words.size] = words
        self._attempt(lambda: self._write(model_id, slot.tobytes()))

    def write_packed(self, model_id: int, content_id: int, packed: PackedSupport) -> None:
        """Cache the sketch of a packed support."""
        self.write(model_id, content_id, packed.sketch(SAMPLE_SIZE, SAMPLE_SEED))

    def has(self, ids: Ids, contents: Ids) -> npt.NDArray[np.bool_]:
        """Whether the file has the sketches of some contents, as :meth:`counts` takes them."""
        nothing = sketch_of_head(bytes(HEAD_BYTES), SAMPLE_SIZE, 1)
        known: npt.NDArray[np.bool_] = self.counts(nothing, ids, contents)[:, 0] >= 0
        return known

    def read(self, model_id: int, content_id: int) -> bytes | None:
        """The sketch of a content as ``head_of`` writes it; None if the file lacks it."""
        slots = self._slots_up_to(model_id)
        if model_id >= slots.shape[0]:
            return None
        words = slots[model_id, _HEADER_WORDS : _HEADER_WORDS + self._words].copy()
        if not self.has(np.array([model_id]), np.array([content_id]))[0]:  # also of the copy
            return None
        if self._first_words != self._words:
            words = words.reshape(_PART_COUNT, -1).T.ravel()
        plain = np.zeros(HEAD_BYTES // 8, "<u8")
        plain[: words.size] = words
        return plain.tobytes()

    def filled_ids(self) -> Ids:
        """The ids of models whose slots may take room on the disk, ascending."""
        with self._open() as descriptor:
            if descriptor is None:
                return np.zeros(0, np.int64)
            size = 8 * self._stride
            ranges = [
                np.arange(start // size, -(-end // size), dtype=np.int64)
                for start, end in data_ranges(descriptor)
            ]
        return np.unique(np.concatenate(ranges)) if ranges else np.zeros(0, np.int64)

    def give_back(self, ids: Ids) -> None:
        """Give the room of removed models back to the disk, as far as possible.

        Blocks are freed whole, so neighbours share the first and the last one of a slot. A slot
        that a process writes meanwhile may be spoilt; its seal shows it, and it counts as missing.

        Args:
            ids: the ids of the models, ascending.
        """
        size = 8 * self._stride
        with self._open() as descriptor:
            if descriptor is None:
                return
            for run in np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1):
                if run.size and not punch(descriptor, int(run[0]) * size, int(run[-1] + 1) * size):
                    return

    @contextlib.contextmanager
    def _open(self) -> Iterator[int | None]:
        """Open the file if there is one, and yield its descriptor for as long as the block runs."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file: from now on reads find no slot, and writes do nothing."""
        with self._lock:
            self._closed = True
            self._forget()

    def _arrange(self, sketch: Sketch) -> Words:
        """The words in the order of a slot: every fourth from the first, then from the second..."""
        words = sketch.words[: self._words]
        if self._first_words == self._words:
            return words
        return np.ascontiguousarray(words.reshape(-1, _PART_COUNT).T).ravel()

    @property
    def _nothing(self) -> Words:
        return np.zeros((0, self._stride), np.uint64)

    def _slots_up_to(self, last: int) -> Words:
        """The slots up to ``last`` at least, or as many as the file holds; read-only."""
        with self._lock:
            if self._has_changed() or self._slots.shape[0] <= last:
                try:
                    self._map()
                    self._unreadable = False
                except OSError as error:
                    if not self._unreadable:
                        log.warning("%s cannot be read: %s", self._path, error.strerror)
                    self._unreadable = True
            return self._slots

    def _has_changed(self) -> bool:
        """Whether the open file was deleted or cut; if so, close it."""
        if self._descriptor is None:
            return False
        status = os.fstat(self._descriptor)
        cut = self._mapped is not None and (
            self._mapped.lost or status.st_size < self._mapped.view.nbytes
        )
        if status.st_nlink and not cut:
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
            self._mapped = GuardedMap(self._descriptor, count * size)
            self._mapped.read_at_random()
            slots = np.frombuffer(self._mapped.view, np.uint64)
            self._slots = slots.reshape(count, self._stride)

    def _write(self, model_id: int, slot: bytes) -> None:
        descriptor = self._writable()
        if descriptor is None:
            return
        try:
            self.grow(descriptor, model_id)
            if os.pwrite(descriptor, slot, model_id * len(slot)) != len(slot):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _writable(self) -> int | None:
        """A descriptor for one write, so that the write needs no lock; None once closed."""
        with self._lock:
            if self._closed:
                return None
            self._has_changed()
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            return os.dup(self._descriptor)

    def grow(self, descriptor: int, model_id: int) -> None:
        """Extend the file beyond the slot, to a power of two, so that readers seldom map it again.

        The written byte is the last of a header, which is zero in every slot. So two processes may
        extend the file at once, and neither overwrites the other's slot.
        """
        count = max(_MIN_SLOTS, 1 << model_id.bit_length())
        end = 8 * (count * self._stride + _HEADER_WORDS)
        if os.fstat(descriptor).st_size < end:
            os.pwrite(descriptor, b"\0", end - 1)

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._mapped, self._slots = None, None, self._nothing


def _count(words: Words) -> int:
    return int(np.bitwise_count(words).sum(dtype=np.int64))
