"""``IngestWriter``: writes the result of a sync, in the transaction that ends its job.

The support of a model's weights and that of its difference from its base are one model here, in two
spaces under one name: they are stored, renamed, moved and deleted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from app.hubs.clients.protocol import HubRevision, tags_digest
from app.hubs.ingestion.checkpoint_fetcher import revision_label
from app.hubs.ingestion.descriptions import (
    attributes_of,
    base_model_of,
    contents_of,
    hub_attribute,
    tags_of,
)
from app.hubs.ingestion.results import IngestResult, PreparedModel
from app.hubs.ingestion.selector import Selection
from app.hubs.ingestion.stored_models import Held, StoredModel, find_held, hub_of, require_free
from app.hubs.records import ImportanceName, Place
from app.hubs.repositories import source_models
from app.hubs.service import OpenSource
from app.infra.db.database import Writer
from app.infra.errors import Unavailable
from app.models.catalog.puts import Put, Stored
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.weights.service import WeightsService

__all__ = ["IngestWriter", "note"]


class IngestWriter:
    """Store an ingested model and record its sync."""

    def __init__(self, models: ModelWriter, weights: WeightsService) -> None:
        self._models = models
        self._weights = weights

    def store(
        self,
        made: IngestResult,
        prepared: Sequence[PreparedModel],
        selection: Selection,
        notes: Sequence[str],
        session: Writer,
    ) -> Mapping[str, Any]:
        """Store new supports with tags, source and base; return the job's result.

        Args:
            made: the findings about the model.
            prepared: the supports of the model.
            selection: how they were selected, or why there is no difference among them.
            notes: notes for people.
            session: the transaction that ends the job.

        Raises:
            Unavailable: a later sync has ended: this one runs again.
            Conflict: another hub's model has the name.
        """
        for part in prepared:
            put = Put(made.name, part.content)
            session.after_rollback(partial(self._models.discard, put))
        left = self._begin(session, made, {p.importance: p.placed.space for p in prepared})
        difference_facts = _difference_facts(made, prepared, selection)
        stored = [self._store(session, made, part, difference_facts, notes) for part in prepared]
        first, result = prepared[0], stored[0]
        if made.weights is not None:  # of two supports of one file, that of its weights has them
            self._weights.state(
                session, first.placed.space, made.name, made.weights, stated_by="hub"
            )
        if first.importance == "weight" and result.status == "created":
            space = first.placed.space
            source_models.request_resync_of_derivatives(session, made.source.id, space, made.name)
        return {
            "outcome": "stored",
            "status": result.status,
            "space": first.placed.space.name,
            "space_created": first.placed.created,
            "model": made.name,
            "revision": made.revision.revision,
            "importance": first.importance,
            "base": difference_facts.get("base") if first.importance == "delta" else None,
            "support_size": result.model.support_size,
            "delta": difference_facts | {"left_in": left.get("delta")},
            "notes": list(notes),
            "moved_from": made.moved_from,
            "left_in": left.get("weight"),
        }

    def describe(self, made: IngestResult, session: Writer) -> Mapping[str, Any]:
        """Update the description of a model whose supports have not changed.

        Raises:
            Unavailable: a later sync has ended, or the model has changed: this one runs again.
        """
        held = self._hold(session, made)
        fitting = [one for one in held if one.is_made_like(made)]
        if not fitting:
            raise _superseded_error(made.name)
        targets = {importance: stored.space for importance, stored in fitting[0]}
        self._begin(session, made, targets)
        for space in targets.values():
            current = models.get_model(session, space, made.name)
            contents = contents_of(current, made, current.revision)
            hub = {**hub_of(current), **hub_attribute(made), "contents": contents}
            attributes = attributes_of(current, hub)
            tags = tags_of(current, made)
            self._describe_origin(session, space, made, tags=tags, attributes=attributes)
        difference_space = targets.get("delta")
        return {
            "outcome": "unchanged",
            "space": next(iter(targets.values())).name,
            "delta_space": None if difference_space is None else difference_space.name,
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
        place = source_models.hold(session, source.id, name)
        removes = source.on_delete == "remove"
        held = find_held(session, source, name) if removes else None
        if not source_models.finish_sync(
            session,
            source.id,
            name,
            sync,
            opened=source.updated_at,
            revision=None,
            place=None if removes else place,
        ):
            raise _superseded_error(name)
        if held is not None:
            _lock(session, (stored.space for _, stored in held))
            for _, stored in held:
                self._models.delete(session, stored.space, stored.model.name)
        return {
            "outcome": "gone",
            "removed": held is not None,
            "space": None if place is None else place.space,
            "delta_space": None if place is None else place.delta_space,
            "model": None if place is None else place.model,
            "detail": detail,
        }

    def _hold(self, session: Writer, made: IngestResult) -> list[Held]:
        """Lock and return the stored supports of the model, by its present and previous name."""
        source, found = made.source, []
        for known in filter(None, (made.name, made.moved_from)):
            source_models.hold(session, source.id, known)
            if (held := find_held(session, source, known)) is not None:
                found.append(held)
        return found

    def _begin(
        self, session: Writer, made: IngestResult, targets: Mapping[ImportanceName, SpaceRecord]
    ) -> dict[ImportanceName, str]:
        """Record the sync, and move the stored models to the present name.

        A support that belongs to another space by now, or to none, stays where it is if the source
        keeps deleted models. Returns these spaces.
        """
        source, past = made.source, self._hold(session, made)
        weight, difference_space = targets.get("weight"), targets.get("delta")
        place = Place(
            made.name,
            None if weight is None else weight.name,
            None if difference_space is None else difference_space.name,
        )
        if not source_models.finish_sync(
            session,
            source.id,
            made.name,
            made.sync,
            opened=source.updated_at,
            revision=made.revision.revision,
            place=place,
            tags=tags_digest(made.revision.tags),
        ):
            raise _superseded_error(made.name)
        if made.moved_from is not None:
            source_models.forget(session, source.id, made.moved_from)
        stored = [one for held in past for one in held]
        _lock(session, [*targets.values(), *(one.space for _, one in stored)])
        kept = {space.id for space in targets.values()}
        left: dict[ImportanceName, str] = {}
        for importance, one in stored:
            if one.space.id in kept:
                self._rename(session, one, made.name)
            elif source.on_delete == "remove":
                self._models.delete(session, one.space, one.model.name)
            else:
                self._rename(session, one, made.name)
                left[importance] = one.space.name
        return left

    def _rename(self, session: Writer, held: StoredModel, name: str) -> None:
        """Give a stored model its present name; delete it if a model has that name already."""
        if held.model.name == name:
            return
        if models.find_model(session, held.space, name) is None:
            self._models.rename(session, held.space, held.model.name, name)
        else:
            self._models.delete(session, held.space, held.model.name)

    def _store(
        self,
        session: Writer,
        made: IngestResult,
        part: PreparedModel,
        difference_facts: Mapping[str, Any],
        notes: Sequence[str],
    ) -> Stored:
        """Store one of a model's supports."""
        space, is_difference = part.placed.space, part.importance == "delta"
        require_free(session, space, made)
        current = models.find_model(session, space, made.name)
        hub = hub_attribute(made) | {
            "recipe": made.difference_recipe if is_difference else made.recipe,
            "delta_recipe": made.difference_recipe,
            "importance": part.importance,
            "base": difference_facts["base"] if is_difference else None,
            "delta": dict(difference_facts),
            "notes": list(notes),
        }
        tags, attributes = tags_of(current, made), attributes_of(current, hub)
        put = Put(made.name, part.content, tags=tags, attributes=attributes)
        stored = self._models.put(session, space, put)
        hub["contents"] = contents_of(current, made, stored.model.revision)
        attributes = attributes_of(current, hub)
        self._describe_origin(session, space, made, attributes=attributes)
        return stored

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
            base_model=base_model_of(made),
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
    source_models.finish_sync(
        session,
        source.id,
        name,
        sync,
        opened=source.updated_at,
        revision=revision,
        place=source_models.hold(session, source.id, name),
        error=error,
    )


def _superseded_error(name: str) -> Unavailable:
    return Unavailable(f"another sync of {name} has ended meanwhile: this one runs again")


def _difference_facts(
    made: IngestResult, prepared: Sequence[PreparedModel], selection: Selection
) -> dict[str, Any]:
    """Describe the difference: its space, base, size and caveat, or why there is none."""
    for part in prepared:
        if part.importance == "delta":
            base = made.base.revision
            return {
                "space": part.placed.space.name,
                "base": made.base.name if base is None or made.adapter else revision_label(base),
                "support_size": part.content.support.k,
                **({} if selection.rounding is None else {"note": selection.rounding}),
            }
    return {"reason": selection.reason}


def _lock(session: Writer, involved: Iterable[SpaceRecord]) -> None:
    """Lock spaces, always in the same order, so that two syncs cannot wait for each other."""
    for space in sorted({space.id: space for space in involved}.values(), key=lambda s: s.id):
        spaces.lock_space(session, space)
