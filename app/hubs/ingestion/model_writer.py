"""``IngestWriter``: writes the result of a sync, in the transaction that ends its job.

The attribute ``hub`` of a model records its source, its revision and how its support was made.
Attributes and tags that users add stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from app.catalog.puts import PreparedSupport, Put
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.catalog.writer import ModelWriter
from app.errors import Conflict, Unavailable
from app.hubs.clients.protocol import HubRevision
from app.hubs.ingestion.checkpoint_fetcher import named
from app.hubs.ingestion.selection_plan import Base
from app.hubs.ingestion.space_resolver import ResolvedSpace
from app.hubs.records import Importance
from app.hubs.repositories import source_models
from app.hubs.service import OpenSource
from app.infra.db.database import Reader, Writer
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from modelkin._validation import MAX_TAGS, check_model_name, check_tag
from modelkin.errors import InvalidName
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = ["HUB", "StoredModel", "IngestResult", "IngestWriter", "held_by", "note", "require_free"]

HUB: Final = "hub"
"""The attribute that says where a model comes from."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The findings of a sync.

    Attributes:
        sync: the number of the sync.
        name: the model's name, on the hub and here; ``moved_from`` the previous one.
        depends_on: all that its support depends on, except for the support size of its space.
        job: the job of the sync.
    """

    source: OpenSource
    sync: int
    name: str
    moved_from: str | None
    revision: HubRevision
    base: Base
    depends_on: Sequence[str]
    job: str

    @property
    def recipe(self) -> str:
        """A digest that is the same for the same support."""
        return hashlib.sha256("\n".join(self.depends_on).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of a source, as it is stored here."""

    space: SpaceRecord
    model: ModelRecord

    def is_made_like(self, made: IngestResult) -> bool:
        """Whether making its support again would have the same result."""
        recipe = _hub_of(self.model).get("recipe")
        return self.model.kind == "support" and recipe == made.recipe


def held_by(session: Reader, source: OpenSource, name: str) -> StoredModel | None:
    """The stored model of a source under a name of its hub, or None if it is deleted."""
    place = source_models.placed(session, source.id, name)
    if place is None:
        return None
    space = spaces.find_space(session, source.tenant, place[0])
    model = None if space is None else models.find_model(session, space, place[1])
    if space is None or model is None or not _is_of(model, source):
        return None
    return StoredModel(space, model)


def require_free(session: Reader, space: SpaceRecord, made: IngestResult) -> None:
    """Refuse to replace the model of another hub; a model that a client has put is replaced.

    Raises:
        Conflict: another hub's model has the name.
    """
    current = models.find_model(session, space, made.name)
    if current is not None and _hub_of(current) and not _is_of(current, made.source):
        raise Conflict(
            f"space {space.name!r} holds a model {made.name!r} from {_hub_of(current).get('url')} "
            f"already: give this source a space of its own, or delete that model"
        )


class IngestWriter:
    """Store an ingested model and record its sync.

    Args:
        models: changes models.
    """

    def __init__(self, models: ModelWriter) -> None:
        self._models = models

    def store(
        self,
        made: IngestResult,
        placed: ResolvedSpace,
        prepared: PreparedSupport,
        importance: Importance,
        notes: Sequence[str],
        session: Writer,
    ) -> Mapping[str, Any]:
        """Store a new support with its tags, source and base; returns the job's result.

        Raises:
            Unavailable: a later sync has ended: this one runs again.
            Conflict: another hub's model has the name.
        """
        put = Put(made.name, prepared)
        session.after_rollback(partial(self._models.discard, put))
        left = self._begin(session, made, placed.space)
        space = spaces.lock_space(session, placed.space)
        require_free(session, space, made)
        current = models.find_model(session, space, made.name)
        base = made.base.revision if importance == "delta" else None
        hub = _described(made) | {
            "recipe": made.recipe,
            "importance": importance,
            "base": None if base is None else named(base),
            "notes": list(notes),
        }
        put = replace(put, tags=_tags(current, made), attributes=_attributes(current, hub))
        stored = self._models.put(session, space, put)
        self._describe_origin(session, space, made)
        return {
            "outcome": "stored",
            "status": stored.status,
            "space": space.name,
            "space_created": placed.created,
            "model": made.name,
            "revision": made.revision.revision,
            "importance": importance,
            "base": hub["base"],
            "support_size": stored.model.support_size,
            "notes": list(notes),
            "moved_from": made.moved_from,
            "left_in": left,
        }

    def describe(self, made: IngestResult, session: Writer) -> Mapping[str, Any]:
        """Update the description of a model whose support has not changed.

        Raises:
            Unavailable: a later sync has ended, or the model has changed: this one runs again.
        """
        known = (made.name, made.moved_from)
        held = [held_by(session, made.source, name) for name in known if name is not None]
        fitting = [one for one in held if one is not None and one.is_made_like(made)]
        if not fitting:
            raise _superseded(made.name)
        self._begin(session, made, fitting[0].space)
        space = spaces.lock_space(session, fitting[0].space)
        current = models.get_model(session, space, made.name)
        attributes = _attributes(current, _hub_of(current) | _described(made))
        tags = _tags(current, made)
        self._describe_origin(session, space, made, tags=tags, attributes=attributes)
        return {
            "outcome": "unchanged",
            "space": space.name,
            "model": made.name,
            "revision": made.revision.revision,
            "moved_from": made.moved_from,
        }

    def ignore(
        self,
        source: OpenSource,
        name: str,
        sync: int,
        revision: HubRevision,
        reason: str,
        session: Writer,
    ) -> Mapping[str, Any]:
        """Record a model that the source does not follow; a stored model stays as it is."""
        note(session, source, name, sync, revision.revision)
        return {"outcome": "ignored", "revision": revision.revision, "reason": reason}

    def remove(
        self, source: OpenSource, name: str, sync: int, detail: str, session: Writer
    ) -> Mapping[str, Any]:
        """Record that the hub has deleted a model; delete it here, too, if its source says so.

        Raises:
            Unavailable: a later sync has ended: this one runs again.
        """
        place = source_models.hold(session, source.id, name) or (None, None)
        removes = source.on_delete == "remove"
        held = held_by(session, source, name) if removes else None
        left = (None, None) if removes else place
        if not source_models.finish_sync(
            session,
            source.id,
            name,
            sync,
            opened=source.updated_at,
            revision=None,
            space=left[0],
            model=left[1],
        ):
            raise _superseded(name)
        if held is not None:
            self._models.delete(session, held.space, held.model.name)
        return {
            "outcome": "gone",
            "removed": held is not None,
            "space": place[0],
            "model": place[1],
            "detail": detail,
        }

    def _begin(self, session: Writer, made: IngestResult, space: SpaceRecord) -> str | None:
        """Record the sync, and move the stored models to the present name.

        A model of another layout stays in its space if the source keeps deleted models. Returns
        that space.
        """
        source, past = made.source, []
        for known in filter(None, (made.name, made.moved_from)):
            source_models.hold(session, source.id, known)
            if (held := held_by(session, source, known)) is not None:
                past.append(held)
        if not source_models.finish_sync(
            session,
            source.id,
            made.name,
            made.sync,
            opened=source.updated_at,
            revision=made.revision.revision,
            space=space.name,
            model=made.name,
        ):
            raise _superseded(made.name)
        if made.moved_from is not None:
            source_models.forget(session, source.id, made.moved_from)
        left = None
        for held in past:
            if held.space.id == space.id:
                self._rename(session, held, made.name)
            elif source.on_delete == "remove":
                self._models.delete(session, held.space, held.model.name)
            else:
                self._rename(session, held, made.name)
                left = held.space.name
        return left

    def _rename(self, session: Writer, held: StoredModel, name: str) -> None:
        """Give a stored model its present name; delete it if a model has that name already."""
        if held.model.name == name:
            return
        if models.find_model(session, held.space, name) is None:
            self._models.rename(session, held.space, held.model.name, name)
        else:
            self._models.delete(session, held.space, held.model.name)

    def _describe_origin(
        self,
        session: Writer,
        space: SpaceRecord,
        made: IngestResult,
        *,
        tags: Sequence[str] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self._models.update(
            session,
            space,
            made.name,
            tags=tags,
            attributes=attributes,
            source=made.revision.address,
            base_model=_base_model(made),
        )


def note(
    session: Writer,
    source: OpenSource,
    name: str,
    sync: int,
    revision: str,
    error: Mapping[str, Any] | None = None,
) -> None:
    """Record that a sync ended at a revision; the stored model stays where it is."""
    place = source_models.hold(session, source.id, name) or (None, None)
    source_models.finish_sync(
        session,
        source.id,
        name,
        sync,
        opened=source.updated_at,
        revision=revision,
        space=place[0],
        model=place[1],
        error=error,
    )


def _superseded(name: str) -> Unavailable:
    return Unavailable(f"another sync of {name} has ended meanwhile: this one runs again")


def _hub_of(model: ModelRecord) -> dict[str, Any]:
    hub = model.attributes.get(HUB)
    return hub if isinstance(hub, dict) else {}


def _is_of(model: ModelRecord, source: OpenSource) -> bool:
    """Whether a model comes from this source, or from another source of the same hub."""
    hub = _hub_of(model)
    if hub.get("source") == source.id:
        return True
    return (hub.get("kind"), hub.get("url")) == (source.kind, _address(source))


def _address(source: OpenSource) -> str:
    return (source.url or "").rstrip("/")


def _described(made: IngestResult) -> dict[str, Any]:
    revision = made.revision
    return {
        "kind": made.source.kind,
        "url": _address(made.source),
        "source": made.source.id,
        "model": revision.name,
        "revision": revision.revision,
        "private": revision.private,
        "tags": list(_valid(revision.tags)),
        "job": made.job,
        **revision.attributes,
    }


def _attributes(current: ModelRecord | None, hub: Mapping[str, Any]) -> dict[str, Any]:
    return {**({} if current is None else current.attributes), HUB: dict(hub)}


def _tags(current: ModelRecord | None, made: IngestResult) -> tuple[str, ...]:
    """The tags that users added, then those of the hub, as many as a model may have."""
    if current is None:
        own: list[str] = []
    else:
        before = _hub_of(current).get("tags")
        own = [tag for tag in current.tags if tag not in (before or ())]
    merged = dict.fromkeys([*own, *_valid(made.revision.tags)])
    return tuple(sorted(list(merged)[:MAX_TAGS]))


def _valid(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of a hub that are valid here."""
    found = []
    for tag in tags:
        try:
            found.append(check_tag(tag))
        except InvalidName:
            continue
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _base_model(made: IngestResult) -> str | Unchanged:
    """The name of the model's base; unchanged if the hub names none."""
    declared = made.revision.base_model
    if declared is None and made.base.revision is not None:
        declared = made.base.revision.name
    if declared is None:
        return UNCHANGED
    name = declared.rpartition("@")[0] or declared
    try:
        return check_model_name(name)
    except InvalidName:
        return UNCHANGED
