"""What a look changes, in the transaction that ends its job: a model, what is said of it, its name.

What is kept beside a model stands under ``hub`` among its attributes: where it comes from, at which
revision, and how its support was made. Attributes and tags that people add stay theirs.
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
    """What a look has found.

    Attributes:
        look: its number.
        name: of the model, there and here; ``moved_from`` the one before.
        depends_on: all that its support depends on, besides the size that its space asks for.
        job: whose look it is.
    """

    source: OpenSource
    look: int
    name: str
    moved_from: str | None
    revision: HubRevision
    base: Base
    depends_on: Sequence[str]
    job: str

    @property
    def recipe(self) -> str:
        """The same for the same support."""
        return hashlib.sha256("\n".join(self.depends_on).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of a source as it is here."""

    space: SpaceRecord
    model: ModelRecord

    def is_made_like(self, made: IngestResult) -> bool:
        """Whether its support is what would be made again."""
        recipe = _hub_of(self.model).get("recipe")
        return self.model.kind == "support" and recipe == made.recipe


def held_by(session: Reader, source: OpenSource, name: str) -> StoredModel | None:
    """The model that a source has brought under a name of its hub, unless that is gone since."""
    place = source_models.placed(session, source.id, name)
    if place is None:
        return None
    space = spaces.find_space(session, source.tenant, place[0])
    model = None if space is None else models.find_model(session, space, place[1])
    if space is None or model is None or not _is_of(model, source):
        return None
    return StoredModel(space, model)


def require_free(session: Reader, space: SpaceRecord, made: IngestResult) -> None:
    """Refuse to replace what another hub has brought; what people have put is replaced.

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
    """Writes what looks have found.

    Args:
        ingest: changes models.
    """

    def __init__(self, ingest: ModelWriter) -> None:
        self._ingest = ingest

    def store(
        self,
        made: IngestResult,
        placed: ResolvedSpace,
        prepared: PreparedSupport,
        importance: Importance,
        notes: Sequence[str],
        session: Writer,
    ) -> Mapping[str, Any]:
        """A support that was made, its tags, its source and its base; answers the job's result.

        Raises:
            Unavailable: a later look has come to its end: this is to look again.
            Conflict: another hub's model has the name.
        """
        put = Put(made.name, prepared)
        session.after_rollback(partial(self._ingest.discard, put))
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
        stored = self._ingest.put(session, space, put)
        self._say_where_from(session, space, made)
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
        """What is said of a model whose support is what it was.

        Raises:
            Unavailable: a later look has ended, or the model has changed: this is to look again.
        """
        known = (made.name, made.moved_from)
        held = [held_by(session, made.source, name) for name in known if name is not None]
        fitting = [one for one in held if one is not None and one.is_made_like(made)]
        if not fitting:
            raise _overtaken(made.name)
        self._begin(session, made, fitting[0].space)
        space = spaces.lock_space(session, fitting[0].space)
        current = models.get_model(session, space, made.name)
        attributes = _attributes(current, _hub_of(current) | _described(made))
        tags = _tags(current, made)
        self._say_where_from(session, space, made, tags=tags, attributes=attributes)
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
        look: int,
        revision: HubRevision,
        reason: str,
        session: Writer,
    ) -> Mapping[str, Any]:
        """A model that the source does not follow: what is here of it stays as it is."""
        note(session, source, name, look, revision.revision)
        return {"outcome": "ignored", "revision": revision.revision, "reason": reason}

    def let_go(
        self, source: OpenSource, name: str, look: int, detail: str, session: Writer
    ) -> Mapping[str, Any]:
        """A model that is gone there: it goes here as well, if its source says so.

        Raises:
            Unavailable: a later look has come to its end: this is to look again.
        """
        place = source_models.hold(session, source.id, name) or (None, None)
        removes = source.on_delete == "remove"
        held = held_by(session, source, name) if removes else None
        left = (None, None) if removes else place
        if not source_models.finish_sync(
            session,
            source.id,
            name,
            look,
            opened=source.updated_at,
            revision=None,
            space=left[0],
            model=left[1],
        ):
            raise _overtaken(name)
        if held is not None:
            self._ingest.delete(session, held.space, held.model.name)
        return {
            "outcome": "gone",
            "removed": held is not None,
            "space": place[0],
            "model": place[1],
            "detail": detail,
        }

    def _begin(self, session: Writer, made: IngestResult, space: SpaceRecord) -> str | None:
        """Let no earlier look follow, and the model have one name and one place; answers the space
        in which its revisions of another layout stay.

        Models of another layout than the present one stay where a source keeps what is gone.
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
            made.look,
            opened=source.updated_at,
            revision=made.revision.revision,
            space=space.name,
            model=made.name,
        ):
            raise _overtaken(made.name)
        if made.moved_from is not None:
            source_models.forget(session, source.id, made.moved_from)
        left = None
        for held in past:
            if held.space.id == space.id:
                self._rename(session, held, made.name)
            elif source.on_delete == "remove":
                self._ingest.delete(session, held.space, held.model.name)
            else:
                self._rename(session, held, made.name)
                left = held.space.name
        return left

    def _rename(self, session: Writer, held: StoredModel, name: str) -> None:
        """What had another name gets its present one, unless that is there already."""
        if held.model.name == name:
            return
        if models.find_model(session, held.space, name) is None:
            self._ingest.rename(session, held.space, held.model.name, name)
        else:
            self._ingest.delete(session, held.space, held.model.name)

    def _say_where_from(
        self,
        session: Writer,
        space: SpaceRecord,
        made: IngestResult,
        *,
        tags: Sequence[str] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self._ingest.update(
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
    look: int,
    revision: str,
    error: Mapping[str, Any] | None = None,
) -> None:
    """A look has ended at a revision, and what is here of the model stays where it is."""
    place = source_models.hold(session, source.id, name) or (None, None)
    source_models.finish_sync(
        session,
        source.id,
        name,
        look,
        opened=source.updated_at,
        revision=revision,
        space=place[0],
        model=place[1],
        error=error,
    )


def _overtaken(name: str) -> Unavailable:
    return Unavailable(f"another look at {name} has ended meanwhile: it is looked at again")


def _hub_of(model: ModelRecord) -> dict[str, Any]:
    hub = model.attributes.get(HUB)
    return hub if isinstance(hub, dict) else {}


def _is_of(model: ModelRecord, source: OpenSource) -> bool:
    """Whether a source has brought it, or another one of the same hub."""
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
    """Those that people gave it, then the hub's, as many as a model may have."""
    if current is None:
        own: list[str] = []
    else:
        before = _hub_of(current).get("tags")
        own = [tag for tag in current.tags if tag not in (before or ())]
    merged = dict.fromkeys([*own, *_valid(made.revision.tags)])
    return tuple(sorted(list(merged)[:MAX_TAGS]))


def _valid(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of a hub that can be tags here."""
    found = []
    for tag in tags:
        try:
            found.append(check_tag(tag))
        except InvalidName:
            continue
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _base_model(made: IngestResult) -> str | Unchanged:
    """What the model is made from, as a name; what people said stays where the hub says nothing."""
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
