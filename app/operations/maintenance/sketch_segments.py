"""Fetch sketches that this machine lacks: from packs of an object store, or from the objects.

Without them a search ranks by bytes of signatures, and compares more supports, each a download. So
the clean-up of each process fetches the sketches of models that changed since its last round: with
one request for each pack of 4,096 models, and for other models with one request each for the first
bytes of an object. One process packs the next 4,096 models of a space as soon as they exist. A
model that was replaced after it was packed has its new sketch in its own object.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Final

import numpy as np

from app.infra.db.database import Database
from app.infra.db.released_blobs import SKETCHES
from app.infra.errors import Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.catalog.stored_supports import SupportDecoder
from app.models.index.repositories import segments
from app.models.index.repositories.segments import Sketched
from app.models.index.sketch_file import SketchFile
from app.models.index.sketch_folder import SketchFolder
from app.models.index.sketch_heads import HEAD_BYTES, SAMPLE_SEED, SAMPLE_SIZE, sketch_of_head
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from modelkin.core.sketching.sketch import Sketch

__all__ = ["SEGMENT_MODELS", "SketchSegments"]

SEGMENT_MODELS: Final = 4096
_MAX_READS: Final = 32
_MAX_WHOLE_READS: Final = 4
"""Supports in memory at a time, to sketch those whose objects have no head."""
_WORTH_A_PACK: Final = 2
"""Models of a lost pack that are packed again; a single one takes one request either way."""
_ENTRY: Final = struct.Struct("<qq")
"""Precedes each sketch of a pack: the ids of the model and of its content."""

log = logging.getLogger(__name__)


class SketchSegments:
    """Brings the sketches of all spaces to this machine, and packs the sketches that it has.

    Args:
        database: the database that names the models and the packs.
        blobs: the store of the supports and the packs.
        sketches: the sketches on this machine.
        models: the number of models in a pack.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        sketches: SketchFolder,
        *,
        models: int = SEGMENT_MODELS,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._sketches = sketches
        self._models = models
        self._done: dict[int, int] = {}
        self._whole = threading.BoundedSemaphore(_MAX_WHOLE_READS)

    def run_once(self, stopping: threading.Event) -> None:
        """Fetch and pack new sketches; end early when ``stopping`` is set.

        Raises:
            Unavailable: a store cannot be used now.
        """
        if not self._blobs.keeps_heads:
            return
        with self._database.reading() as session:
            known = [space for space in spaces.all_spaces(session) if space.supports]
        self._done = {s.id: self._done[s.id] for s in known if s.id in self._done}
        for space in known:
            if self._done.get(space.id) == space.version:
                continue
            self._bring(space, stopping)
            while not stopping.is_set() and self._packed_one(space):
                pass

    def _bring(self, space: SpaceRecord, stopping: threading.Event) -> None:
        """Bring the sketches of the models that changed since the last round."""
        file, after, complete = self._sketches.of(space.id, space.num_parameters), 0, True
        since = self._done.get(space.id, -1)
        while not stopping.is_set():
            with self._database.reading() as session:
                models = segments.sketched_since(
                    session, space.id, since, after=after, limit=self._models
                )
            if not models:
                if complete:
                    self._done[space.id] = space.version
                return
            after = models[-1].id
            missing = {model.id: model for model in _missing(file, models)}
            if len(missing) > 1:
                self._from_packs(space, file, missing)
            complete &= self._from_objects(space, file, [*missing.values()], stopping)

    def _from_packs(
        self, space: SpaceRecord, file: SketchFile, missing: dict[int, Sketched]
    ) -> None:
        """Store missing sketches that packs have, and remove them from ``missing``."""
        with self._database.reading() as session:
            keys = segments.segment_keys(session, space.id, min(missing), max(missing))
        for key in keys:
            for model_id, content_id, head in self._entries(key):
                model = missing.get(model_id)
                if model is not None and model.content_id == content_id:
                    file.write(model_id, content_id, _sketch(space, model, head))
                    del missing[model_id]

    def _entries(self, key: str) -> Iterator[tuple[int, int, bytes]]:
        try:
            pack = self._blobs.read(key)
        except (KeyError, DamagedBlob):
            with self._database.writing() as session:
                segments.forget(session, key)
            return
        size = _ENTRY.size + HEAD_BYTES
        for at in range(0, pack.nbytes - size + 1, size):
            model_id, content_id = _ENTRY.unpack_from(pack, at)
            yield model_id, content_id, bytes(pack[at + _ENTRY.size : at + size])

    def _from_objects(
        self,
        space: SpaceRecord,
        file: SketchFile,
        missing: Sequence[Sketched],
        stopping: threading.Event,
    ) -> bool:
        """Read sketches from objects, side by side; return whether the store answered each time."""
        bring = partial(self._from_object, space, file, stopping=stopping)
        with ThreadPoolExecutor(_MAX_READS) as readers:
            return all([*readers.map(bring, missing)])

    def _from_object(
        self, space: SpaceRecord, file: SketchFile, model: Sketched, stopping: threading.Event
    ) -> bool:
        """Read one sketch; one whose object is gone or damaged is left to its query."""
        if stopping.is_set():
            return False
        try:
            file.write(model.id, model.content_id, self._read(space, model))
        except (KeyError, DamagedBlob):
            pass
        except Unavailable as error:
            log.debug("no sketch of %s: %s", model.blob_key, error)
            return False
        return True

    def _read(self, space: SpaceRecord, model: Sketched) -> Sketch:
        """The sketch of a support, from the first bytes of its object.

        A backup does not store these bytes, and objects of 0.2.0 do not say whose they are. Such
        a support is read whole, once.
        """
        head = self._blobs.head(model.blob_key)
        if head:
            return _sketch(space, model, head)
        with self._whole:
            decode = SupportDecoder(space, model.support_size, model.digest)
            return decode(self._blobs.read(model.blob_key)).sketch(SAMPLE_SIZE, SAMPLE_SEED)

    def _packed_one(self, space: SpaceRecord) -> bool:
        """Pack the models of one range, if a range can be packed."""
        with self._database.reading() as session:
            ranges = segments.free_ranges(session, space.id)
        return any(self._packed(space, after, before) for after, before in ranges)

    def _packed(self, space: SpaceRecord, after: int, before: int | None) -> bool:
        """Pack a range, if it has enough models and this machine has all their sketches."""
        with self._database.reading() as session:
            models = segments.sketched_since(
                session, space.id, -1, after=after, before=before, limit=self._models
            )
        # The remaining models of a lost pack are worth a pack; a pack never grows.
        if len(models) < (self._models if before is None else _WORTH_A_PACK):
            return False
        file = self._sketches.of(space.id, space.num_parameters)
        heads = [file.read(model.id, model.content_id) for model in models]
        if None in heads:
            return False
        last = models[-1].id if before is None else before - 1
        with self._database.writing() as session:
            if not segments.claim(session, space.id, after + 1, last):
                return False
        pairs = zip(models, heads, strict=True)
        data = b"".join(
            chain.from_iterable((_ENTRY.pack(m.id, m.content_id), h or b"") for m, h in pairs)
        )
        key = self._blobs.put(f"{SKETCHES}/{space.id}", data)
        with self._database.writing() as session:
            if not segments.finish(session, space.id, after + 1, key):
                session.after_commit(lambda: self._blobs.delete(key))
        return True


def _sketch(space: SpaceRecord, model: Sketched, head: bytes) -> Sketch:
    return sketch_of_head(head, space.num_parameters, model.support_size)


def _missing(file: SketchFile, models: Sequence[Sketched]) -> list[Sketched]:
    ids = np.array([model.id for model in models], np.int64)
    contents = np.array([model.content_id for model in models], np.int64)
    known = file.has(ids, contents)
    return [model for model, there in zip(models, known.tolist(), strict=True) if not there]
