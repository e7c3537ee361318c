"""The model writer: a support or signature becomes a model, or its next revision, durably.

``prepare`` does the slow work before the write transaction begins; ``put`` then only records the
result. ``put_each`` has the rules for one model or many, in four stages: it resolves each put,
records the changed models, then the new models, and announces them.
:mod:`app.models.catalog.preparation` makes contents and owns their blobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from app.infra.db.database import Reader, Writer
from app.infra.preconditions import Precondition
from app.infra.storage.blobs import BlobStore
from app.models.catalog import events
from app.models.catalog.preparation import Preparation
from app.models.catalog.puts import PreparedSupport, Put, Stored, require_met
from app.models.catalog.records import DeclaredBases, ModelRecord
from app.models.catalog.repositories import model_writes, models
from app.models.catalog.revision_recorder import ModelChange, RevisionRecorder
from app.models.catalog.sketches import cache_after_commit, replace_sketch
from app.models.index.sketch_folder import SketchFolder
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.quotas.service import Allowance, QuotaService
from app.webhooks.outbox import Outbox
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import ModelkinError
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = ["ModelWriter"]

BaseChange: TypeAlias = Callable[[DeclaredBases], DeclaredBases]
"""A function of a model's declared bases that returns its new ones."""
AttributeChange: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""A function of a model's attributes that returns its new attributes."""


class ModelWriter:
    """The use cases that change models."""

    def __init__(
        self,
        blobs: BlobStore,
        history: RevisionRecorder,
        sketches: SketchFolder,
        outbox: Outbox | None = None,
        quotas: QuotaService | None = None,
    ) -> None:
        self._contents = Preparation(blobs, history)
        self._history = history
        self._sketches = sketches
        self._outbox = outbox
        self._quotas = quotas

    def prepare(
        self, session: Reader, space: SpaceRecord, name: str, support: Support
    ) -> PreparedSupport:
        """Process ``support`` as far as possible without a lock.

        Raises:
            SpaceMismatch: the support has another number of parameters or order, or is larger than
                the space allows.
            StorageFull, Unavailable: the support could not be written.
        """
        [prepared] = self.prepare_each(session, space, [(name, support)])
        if isinstance(prepared, ModelkinError):
            raise prepared
        return prepared

    def prepare_each(
        self, session: Reader, space: SpaceRecord, supports: Sequence[tuple[str, Support]]
    ) -> list[PreparedSupport | ModelkinError]:
        """Process the supports of models; return errors of :meth:`prepare` in their place.

        All supports together take as many statements as one, and their blobs are synced side by
        side.

        Raises:
            StorageFull, Unavailable: a store failed; no support leaves anything behind.
        """
        return self._contents.prepare(session, space, supports)

    def put(self, session: Writer, space: SpaceRecord, put: Put) -> Stored:
        """Record one model.

        The same content again changes nothing, but repairs a damaged file. A model that had only a
        signature becomes a full one with its support.

        Raises:
            SpaceMismatch: the signature's scheme, number of values, seed or M is not the space's.
            SupportExists: the put is a signature, and the model has a support.
            PreconditionFailed: the model does not meet ``precondition``.
            QuotaExceeded: the tenant has no room left for it.
        """
        self.delete_unless_committed(session, put)
        [stored] = self.put_each(session, space, [put])
        if isinstance(stored, ModelkinError):
            raise stored
        return stored

    def put_each(
        self, session: Writer, space: SpaceRecord, puts: Sequence[Put]
    ) -> list[Stored | ModelkinError]:
        """Record models of distinct names, in order; return errors of :meth:`put` in their place.

        A refused put does not affect the others, and its blob is deleted with the commit; all new
        models together take as many statements as one. The caller deletes prepared blobs if the
        transaction fails for good.
        """
        space = spaces.lock_space(session, space)
        resolved = self._resolve(session, space, puts)
        stored = [each for each in resolved if each.content is not None]
        self._record_changed(session, space, [each for each in stored if each.current is not None])
        _record_new(session, space, [each for each in stored if each.current is None])
        self._announce(session, space, resolved)
        return [each.result for each in resolved if each.result is not None]

    def discard(self, put: Put) -> None:
        """Delete the prepared blob of a put that is not stored."""
        self._contents.discard(put)

    def delete_unless_committed(self, session: Writer, put: Put) -> None:
        """Delete the prepared blob of a put if the transaction fails, before or after it began."""
        self._contents.delete_unless_committed(session, put)

    def update(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        *,
        tags: Sequence[str] | None,
        attributes: dict[str, Any] | None,
        source: str | Unchanged | None,
        bases: BaseChange | Unchanged = UNCHANGED,
        change: AttributeChange | None = None,
        precondition: Precondition | None = None,
    ) -> ModelRecord:
        """Replace metadata of a model; parameters that are ``None`` or UNCHANGED keep theirs.

        ``change`` makes new attributes of the model's attributes, and ``bases`` new bases of its
        bases, under the lock of the space.
        """
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        require_met(precondition, name, current)
        if change is not None:
            attributes = change(current.attributes if attributes is None else attributes)
        columns = {
            column: value
            for column, value in (
                ("attributes", UNCHANGED if attributes is None else attributes),
                ("source", source),
            )
            if value is not UNCHANGED and value != getattr(current, column)
        }
        declared = current.declared if isinstance(bases, Unchanged) else bases(current.declared)
        if declared != current.declared:
            columns |= declared.columns
        new_tags = None if tags is None or tuple(tags) == current.tags else tags
        if not columns and new_tags is None:
            return current
        version = spaces.advance(session, space)
        model_writes.update_metadata(session, current, version=version, tags=new_tags, **columns)
        updated = models.get_model(session, space, name)
        if self._outbox is not None and updated.bases != current.bases:
            events.base_declared(self._outbox, session, space, updated)
        return updated

    def delete(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        """Remove a model, its support and its signature."""
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        require_met(precondition, name, current)
        freed = self._history.forget(session, space, current)
        version = spaces.advance(session, space, support_bytes=-freed, **{f"{current.kind}s": -1})
        model_writes.delete_model(session, current, version=version)

    def rename(self, session: Writer, space: SpaceRecord, name: str, new: str) -> None:
        """Give a model another name that no model of the space has; its revisions stay with it."""
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        model_writes.update_metadata(
            session, current, version=spaces.advance(session, space), name=new
        )

    def _resolve(self, session: Writer, space: SpaceRecord, puts: Sequence[Put]) -> list[_Resolved]:
        """Find what each put changes; those that are refused or change no content have a result."""
        known = models.find_models(session, space, [put.name for put in puts])
        signatures = _signatures(session, known, puts)
        allowance: Allowance | None = None
        resolved = []
        for put in puts:
            each = _Resolved(put, known.get(put.name))
            resolved.append(each)
            content = None
            try:
                content = self._contents.of(session, space, put, each.current, signatures)
                if content is not None and self._quotas is not None:
                    allowance = allowance or self._quotas.allowance(session, space.tenant_id)
                    allowance.take(
                        models=each.current is None, support_bytes=content.blob_size or 0
                    )
            except ModelkinError as error:
                session.after_commit(partial(self._contents.discard, put, content))
                each.result = error
                continue
            each.content = content
            if content is None and each.current is not None:
                each.result = _same_content(session, space, put, each.current)
        return resolved

    def _record_changed(
        self, session: Writer, space: SpaceRecord, resolved: Sequence[_Resolved]
    ) -> None:
        """Replace the contents of models, and count the bytes that older ones free."""
        if not resolved:
            return
        changes = [each.change for each in resolved]
        freed = self._history.add(session, space, changes)
        moved = Counter(change.content.kind for change in changes)
        moved.subtract(change.model.kind for change in changes)
        last = spaces.advance(
            session,
            space,
            by=len(changes),
            supports=moved["support"],
            signatures=moved["signature"],
            support_bytes=_bytes(change.content for change in changes) - freed,
        )
        first = last - len(changes) + 1
        changed = model_writes.update_contents(
            session,
            [(change.model, change.content, first + n) for n, change in enumerate(changes)],
        )
        for each, model in zip(resolved, changed, strict=True):
            described = _describe(session, space, each.put, model, model.version)
            each.result = Stored(described.model, "replaced")

    def _announce(self, session: Writer, space: SpaceRecord, resolved: Sequence[_Resolved]) -> None:
        """Have sketches cached after the commit, and write the events of the stored models."""
        for each in resolved:
            if isinstance(each.result, Stored):
                cache_after_commit(session, self._sketches, space, each.put, each.result)
        if self._outbox is None:
            return
        stored = [
            each.result.model
            for each in resolved
            if each.content is not None and isinstance(each.result, Stored)
        ]
        events.supports_stored(self._outbox, session, space, stored)
        for each in resolved:
            if (model := each.with_new_base) is not None:
                events.base_declared(self._outbox, session, space, model)


@dataclass(slots=True)
class _Resolved:
    """A put under the lock: the model as it is, what the put makes of it, and the result.

    Attributes:
        current: the stored model; None for a new one.
        content: the new content; None where the put is refused or the model has it already.
        result: None until it is stored or refused.
    """

    put: Put
    current: ModelRecord | None
    content: model_writes.Content | None = None
    result: Stored | ModelkinError | None = None

    @property
    def change(self) -> ModelChange:
        """The next revision of a model that is there."""
        assert self.current is not None
        assert self.content is not None
        return ModelChange(self.current, self.content, self.put.drift)

    @property
    def new_model(self) -> model_writes.NewModel:
        """The first data of a model that is not there yet."""
        assert self.content is not None
        put = self.put
        tags, attributes = put.tags or (), put.attributes or {}
        return model_writes.NewModel(
            put.name, self.content, tags, attributes, put.source, put.base_model
        )

    @property
    def with_new_base(self) -> ModelRecord | None:
        """The stored model, if it was there before and declares another base now."""
        if self.current is None or not isinstance(self.result, Stored):
            return None
        model = self.result.model
        return None if model.bases == self.current.bases else model


def _signatures(
    session: Writer, known: dict[str, ModelRecord], puts: Sequence[Put]
) -> dict[int, bytes]:
    """The stored signatures with which puts are compared, by model id."""
    compared = [
        known[put.name].id
        for put in puts
        if isinstance(put.content, Signature) and put.name in known
    ]
    return models.signatures_by_id(session, compared)


def _record_new(session: Writer, space: SpaceRecord, resolved: Sequence[_Resolved]) -> None:
    """Insert new models."""
    if not resolved:
        return
    new = [each.new_model for each in resolved]
    supports = sum(model.content.kind == "support" for model in new)
    version = spaces.advance(
        session,
        space,
        by=len(new),
        supports=supports,
        signatures=len(new) - supports,
        support_bytes=_bytes(model.content for model in new),
    )
    inserted = model_writes.insert_models(session, space, new, version=version - len(new) + 1)
    for each, model in zip(resolved, inserted, strict=True):
        each.result = Stored(model, "created")


def _bytes(contents: Iterable[model_writes.Content]) -> int:
    """The bytes of the blobs of some contents."""
    return sum(content.blob_size or 0 for content in contents)


def _same_content(session: Writer, space: SpaceRecord, put: Put, current: ModelRecord) -> Stored:
    """A model whose support or signature stays; its sketch and metadata may be new."""
    changed = None
    if put.sketch is not None:
        changed = replace_sketch(session, space, current, put.sketch)
    if changed is None:
        return _describe(session, space, put, current, None)
    described = _describe(session, space, put, changed, changed.version)
    return Stored(described.model, "replaced")


def _describe(
    session: Writer, space: SpaceRecord, put: Put, current: ModelRecord, version: int | None
) -> Stored:
    """Replace the metadata of a model, if the put has other metadata.

    ``version`` is the version of this change if the content changed, too.
    """
    tags = None if put.tags is None or tuple(put.tags) == current.tags else put.tags
    columns = {
        column: value
        for column in ("attributes", "source")
        if (value := getattr(put, column)) is not None and value != getattr(current, column)
    }
    if put.base_model is not None and current.bases != (put.base_model,):
        columns |= DeclaredBases((put.base_model,)).columns
    if tags is None and not columns:
        return Stored(current, "unchanged")
    if version is None:
        version = spaces.advance(session, space)
    model_writes.update_metadata(session, current, version=version, tags=tags, **columns)
    return Stored(models.get_model(session, space, current.name), "replaced")
