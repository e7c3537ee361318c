"""``KindSplitService``: parts weights and deltas that sources have stored in one space.

Before spaces stated a kind, a source without a set importance put the deltas of fine-tunes beside
the weights of their bases, where they have no similarity. What each model was selected by is
recorded in its attribute ``hub``. Deltas move to sister spaces, one for each recorded base, and a
space that then holds weights alone states that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from app.auth.records import Tenant
from app.auth.tenants import get_tenant
from app.catalog.puts import PreparedSupport, Put
from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.catalog.writer import ModelWriter
from app.errors import Conflict
from app.hubs.ingestion.space_resolver import sister_name
from app.hubs.ingestion.stored_models import hub_of
from app.hubs.repositories import source_models
from app.infra.db.database import Database, Writer
from app.spaces import layout_repository as layouts
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.spaces.service import BandingRequest, SpaceService
from app.spaces.stored_layouts import StoredLayout
from app.spaces.support_sizes import SupportSizeRequest
from modelkin.core.importance import MAX_NOTE_LENGTH, Importance
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch

__all__ = ["KindSplit", "KindSplitService"]

_PAGE_SIZE: Final = 200
_MAX_ATTEMPTS: Final = 5
"""How often a model is moved again that changes while it is read."""

Progress = Callable[[int, int, str], None]
"""Called with the models done, the models in all, and what is done."""


class _Changed(Exception):
    """A model has changed since it was read."""


@dataclass(slots=True)
class KindSplit:
    """The result of parting a space.

    Attributes:
        space: its name.
        importance: what it states now.
        moved: the deltas that moved, by the space that they moved to.
        taken: the deltas that stay because the sister space has a model of their name.
        weights: the models that are recorded as weights.
        unrecorded: the models of which nothing is recorded.
    """

    space: str
    importance: Importance
    moved: Counter[str] = field(default_factory=Counter)
    taken: list[str] = field(default_factory=list)
    weights: int = 0
    unrecorded: int = 0


class KindSplitService:
    """Parts the kinds of a space.

    Args:
        database: the truth.
        space_service: creates sister spaces.
        reader: reads supports.
        writer: moves models.
    """

    def __init__(
        self,
        database: Database,
        space_service: SpaceService,
        reader: ModelReader,
        writer: ModelWriter,
    ) -> None:
        self._database = database
        self._spaces = space_service
        self._reader = reader
        self._writer = writer

    def split(self, space: SpaceRecord, progress: Progress | None = None) -> KindSplit:
        """Move the deltas of a space, and let it state what the rest is.

        Every model moves in a transaction of its own, so that an interrupted run can be repeated,
        while the service goes on. A space that states a kind stays as it is.

        Raises:
            SpaceExists: a space that was not made by this has the name of a sister space.
            Unavailable: a support is damaged, or cannot be read now.
            Conflict: the space is changed faster than it can be read.
        """
        result = KindSplit(space.name, space.importance)
        if space.importance.is_stated:
            return result
        with self._database.reading() as session:
            tenant = get_tenant(session, space.tenant_id)
        deltas = [(m.name, base) for m in self._models(space) if (base := _base_of(m)) is not None]
        for done, (name, base) in enumerate(deltas):
            if progress is not None:
                progress(done, len(deltas), "moving deltas")
            target = self._sister(tenant, space, base)
            if self._move(tenant, space, target, name):
                result.moved[target.name] += 1
        self._state(space, result)
        return result

    def _models(self, space: SpaceRecord) -> Iterator[ModelRecord]:
        """The models of a space, page by page."""
        cursor = None
        while True:
            with self._database.reading() as session:
                page = models.list_models(session, space, limit=_PAGE_SIZE, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _sister(self, tenant: Tenant, space: SpaceRecord, base: str) -> SpaceRecord:
        """The space for differences from a recorded base, like the one that they come from."""
        policy = space.support_size
        with self._database.writing() as session:
            layout = layouts.find_layout(session, space)
            sister, _ = self._spaces.create(
                session,
                tenant,
                sister_name(space.name, hashlib.sha256(base.encode()).hexdigest()),
                num_parameters=space.num_parameters,
                layout=None if layout is None else StoredLayout.of(layout),
                scheme=space.signature.scheme,
                num_perm=space.signature.num_perm,
                seed=space.signature.seed,
                banding=BandingRequest(space.banding.bands, space.banding.rows, None),
                support_size=SupportSizeRequest(policy.policy, k=policy.k),
                importance=Importance("delta", None, _note(base)),
                exclude=space.exclude,
            )
        return sister

    def _move(self, tenant: Tenant, space: SpaceRecord, target: SpaceRecord, name: str) -> bool:
        """Move a model; False if it is gone, not a delta now, or its name is taken.

        Raises:
            Conflict: it changes faster than it can be read.
        """
        for _ in range(_MAX_ATTEMPTS):
            with self._database.reading() as session:
                model = models.find_model(session, space, name)
                if model is None or _base_of(model) is None:
                    return False
                if models.find_model(session, target, name) is not None:
                    return False
            put = self._prepared(space, target, model)
            with suppress(_Changed), self._database.writing() as session:
                session.after_rollback(partial(self._writer.discard, put))
                source_models.move_to_delta(session, tenant, space.name, name, target.name)
                self._store(session, space, target, model, put)
                return True
        raise Conflict(
            f"model {name!r} has changed {_MAX_ATTEMPTS} times while it was read: run this again "
            f"when fewer changes arrive; the deltas that have moved stay there"
        )

    def _prepared(self, space: SpaceRecord, target: SpaceRecord, model: ModelRecord) -> Put:
        """The content and the metadata of a model, ready for another space."""
        content: PreparedSupport | Signature
        sketch: Sketch | None = None
        with self._database.reading() as session:
            if model.kind == "signature":
                content = self._reader.signature(session, space, model)
                sketch = self._reader.sent_sketch(session, model)
            else:
                support = self._reader.support(space, model)
                content = self._writer.prepare(session, target, model.name, support)
        return Put(model.name, content, model.tags, model.attributes, sketch=sketch)

    def _store(
        self,
        session: Writer,
        space: SpaceRecord,
        target: SpaceRecord,
        model: ModelRecord,
        put: Put,
    ) -> None:
        """Store a model in the other space and delete it here; :class:`_Changed` if it has."""
        for one in sorted((space, target), key=lambda one: one.id):
            spaces.lock_space(session, one)
        current = models.find_model(session, space, model.name)
        taken = models.find_model(session, target, model.name)
        if current is None or current.version_tag != model.version_tag or taken is not None:
            raise _Changed
        self._writer.put(session, target, put)
        self._writer.update(
            session,
            target,
            model.name,
            tags=None,
            attributes=None,
            source=model.source,
            base_model=model.base_model,
        )
        self._writer.delete(session, space, model.name)

    def _state(self, space: SpaceRecord, result: KindSplit) -> None:
        """Count what is left, and let the space state ``weight`` if it is nothing else.

        Raises:
            Conflict: the space changes faster than it can be read.
        """
        for _ in range(_MAX_ATTEMPTS):
            result.weights, result.unrecorded, result.taken = 0, 0, []
            with self._database.reading() as session:
                seen = spaces.find_space_by_id(session, space.id)
            for model in self._models(space):
                if _base_of(model) is not None:
                    result.taken.append(model.name)
                elif hub_of(model).get("importance") == "weight":
                    result.weights += 1
                else:
                    result.unrecorded += 1
            if result.taken or result.unrecorded or not (result.weights or result.moved):
                return
            with self._database.writing() as session:
                current = spaces.lock_space(session, space)
                if seen is not None and current.version == seen.version:
                    result.importance = Importance("weight")
                    spaces.state_importance(session, current, result.importance)
                    return
        raise Conflict(
            f"space {space.name!r} has changed {_MAX_ATTEMPTS} times while it was read: run this "
            f"again when fewer changes arrive; the deltas that have moved stay there"
        )


def _base_of(model: ModelRecord) -> str | None:
    """The recorded base of a delta; None for everything else."""
    hub = hub_of(model)
    base = hub.get("base")
    return base if hub.get("importance") == "delta" and isinstance(base, str) and base else None


def _note(base: str) -> str:
    return f"differences from {base}, as recorded; parted from weights"[:MAX_NOTE_LENGTH]
