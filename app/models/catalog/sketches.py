"""Sketches: sent by clients beside a signature, or made from supports.

A client that does not reveal its indices may send a sketch: the sample of coordinates that are
among them. The service stores it, and deletes it when the signature changes. The service makes the
sketch of a support itself, in the cache of this machine, once the support is durable.
"""

from __future__ import annotations

from functools import partial

from app.infra.db.database import Reader, Writer
from app.infra.errors import SketchMissing, SupportExists
from app.infra.preconditions import Precondition
from app.models.catalog.puts import PreparedSupport, Put, Stored, require_met
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.catalog.repositories.sketches import change_sketch, sketches_by_id
from app.models.index.sketch_folder import SketchFolder
from app.models.index.sketch_heads import SAMPLE_SEED, SAMPLE_SIZE
from app.models.spaces.origins import NOTHING_STATED, StatedOrigin, require_same_origin
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.sketch import Sketch
from modelkin.errors import InvalidSignature, SpaceMismatch

__all__ = ["SketchService", "cache_after_commit", "replace_sketch", "require_fitting"]


class SketchService:
    """The use cases of sketches.

    Args:
        reader: reads supports.
        files: the cache of this machine.
    """

    def __init__(self, reader: ModelReader, files: SketchFolder) -> None:
        self._reader = reader
        self._files = files

    def put(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        sketch: Sketch,
        *,
        precondition: Precondition | None = None,
        origin: StatedOrigin = NOTHING_STATED,
    ) -> Stored:
        """Store the sketch of a model with only a signature; the same sketch again changes nothing.

        Raises:
            ModelNotFound: there is no model to store it with.
            PreconditionFailed: the model does not meet ``precondition``.
            SupportExists: the model has a support, from which the service makes the sketch.
            SpaceMismatch: the sketch's M, sample or origin is not the space's.
            InvalidSignature: the sketch has another K than the signature.
        """
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        require_met(precondition, name, current)
        require_same_origin(space, origin)
        if current.kind == "support":
            raise SupportExists(
                f"model {name!r} has a support, and its sketch is made from that: read it here, or "
                f"delete the model first"
            )
        require_fitting(space, current.support_size, sketch)
        status = "replaced" if current.content_id else "created"
        changed = replace_sketch(session, space, current, sketch)
        if changed is None:
            return Stored(current, "unchanged")
        session.after_commit(partial(_cache, self._files, space, changed, sketch))
        return Stored(changed, "replaced" if status == "replaced" else "created")

    def get(self, session: Reader, space: SpaceRecord, name: str) -> tuple[ModelRecord, Sketch]:
        """Return a model and its sketch, which it sent or which was made from its support.

        Raises:
            ModelNotFound: there is no such model.
            SketchMissing: the model has only a signature.
            Unavailable: its support cannot be read.
        """
        model = models.get_model(session, space, name)
        if model.kind == "support":
            packed = self._reader.require_packed(space, model)
            return model, packed.sketch(SAMPLE_SIZE, SAMPLE_SEED)
        sketch = self._reader.sent_sketch(session, model)
        if sketch is None:
            raise SketchMissing(
                f"model {name!r} sent only a signature: its client may send support.sketch() too"
            )
        return model, sketch


def require_fitting(space: SpaceRecord, support_size: int, sketch: Sketch) -> None:
    """Refuse a sketch that is not comparable in this space, or not of the signature's support.

    Raises:
        SpaceMismatch: the sketch's M or sample is not the space's.
        InvalidSignature: the sketch has another K than the signature.
    """
    for what, theirs, ours in (
        ("num_parameters", sketch.num_parameters, space.num_parameters),
        ("size", sketch.size, SAMPLE_SIZE),
        ("seed", sketch.seed, SAMPLE_SEED),
    ):
        if theirs != ours:
            raise SpaceMismatch(
                f"the sketch's {what} is {theirs}, that of space {space.name!r} is {ours}; "
                f"support.sketch() makes one that fits"
            )
    if sketch.support_size != support_size:
        raise InvalidSignature(
            f"the sketch is of a support of {sketch.support_size} indices, the signature of one of "
            f"{support_size}: send the signature of this support first",
            field="support_size",
        )


def replace_sketch(
    session: Writer, space: SpaceRecord, model: ModelRecord, sketch: Sketch
) -> ModelRecord | None:
    """Store a sketch of a model and return the model; None if it has this sketch already.

    Args:
        session: a transaction that holds the space's lock.
        model: a stored model with only a signature.
        sketch: a fitting sketch.
    """
    data = sketch.to_bytes()
    if model.content_id and sketches_by_id(session, [model.id]).get(model.id) == data:
        return None
    return change_sketch(session, model, data, version=spaces.advance(session, space))


def cache_after_commit(
    session: Writer, files: SketchFolder, space: SpaceRecord, put: Put, stored: Stored
) -> None:
    """Cache the sketch of a put on this machine, after the commit."""
    if stored.status == "unchanged":
        return
    if isinstance(put.content, PreparedSupport):
        session.after_commit(partial(_cache_packed, files, space, stored.model, put.content.packed))
    elif put.sketch is not None:
        session.after_commit(partial(_cache, files, space, stored.model, put.sketch))


def _cache(files: SketchFolder, space: SpaceRecord, model: ModelRecord, sketch: Sketch) -> None:
    files.of(space.id, space.num_parameters).write(model.id, model.content_id, sketch)


def _cache_packed(files: SketchFolder, space: SpaceRecord, model: ModelRecord, data: bytes) -> None:
    packed = PackedSupport.from_buffer(data, space.num_parameters, model.support_size)
    files.of(space.id, space.num_parameters).write_packed(model.id, model.content_id, packed)
