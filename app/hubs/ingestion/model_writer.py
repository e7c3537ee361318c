"""``IngestWriter``: writes the result of a sync, in the transaction that ends its job.

The support of a model's weights and that of its difference from its base are one model here, in two
spaces under one name: they are stored, renamed, moved and deleted together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from app.hubs.clients.protocol import HubRevision, tags_digest
from app.hubs.ingestion.component_changes import ComponentChange, changes_of, move_stored
from app.hubs.ingestion.descriptions import (
    attributes_of,
    bases_of,
    contents_of,
    hub_attribute,
    tags_of,
)
from app.hubs.ingestion.fingerprinting import Fingerprinting
from app.hubs.ingestion.renamed_bases import rename_bases, renames_of, spaces_declaring
from app.hubs.ingestion.results import IngestResult, PreparedModel
from app.hubs.ingestion.selector import Selection
from app.hubs.ingestion.stored_models import Held, find_held, hub_of, require_free
from app.hubs.ingestion.sync_results import (
    SyncedModel,
    difference_facts,
    fingerprint_result,
    pipeline_result,
    refusal_of,
    superseded_error,
)
from app.hubs.records import ImportanceName
from app.hubs.repositories import fingerprint_states, source_models, sources
from app.hubs.service import OpenSource
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Writer
from app.models.catalog.puts import Put, Stored
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.weights.service import WeightsService

__all__ = ["IngestWriter", "note"]


class IngestWriter:
    """Store an ingested model and record its sync."""

    def __init__(
        self,
        models: ModelWriter,
        weights: WeightsService,
        syncs: SyncScheduler,
        fingerprinting: Fingerprinting,
    ) -> None:
        self._models = models
        self._fingerprinting = fingerprinting
        self._weights = weights
        self._syncs = syncs

    def finish(
        self,
        parts: Sequence[SyncedModel],
        refused: Mapping[str, Mapping[str, Any]],
        notes: Sequence[str],
        session: Writer,
    ) -> Mapping[str, Any]:
        """Store what a sync has found, and return the job's result.

        Args:
            parts: the model, or the components of a pipeline.
            refused: the errors of components that cannot be read, by their names; those that are
                stored stay as they are.
            notes: remarks on the pipeline.
            session: the transaction that ends the job.

        Raises:
            Unavailable: a later sync has ended, or the model has changed: this one runs again.
            Conflict: another hub's model has the name.
        """
        for part in parts:
            for ready in part.prepared:
                put = Put(part.made.name, ready.content)
                session.after_rollback(partial(self._models.discard, put))
        made = parts[0].made
        changes = changes_of(parts, refused, self._hold(session, made))
        self._record(session, made, changes)
        renames = renames_of(made, [each.component for each in changes])
        declaring = spaces_declaring(session, made.source, renames)
        holding = [space for each in changes for space in each.spaces]
        _lock(session, [*holding, *declaring])
        results, left = dict[str | None, dict[str, Any]](), dict[str, list[str]]()
        for each in changes:
            left_in = move_stored(session, self._models, made.source, each)
            if each.part is not None:
                results[each.component] = self._write(
                    session, each.part, each.targets, dict(left_in)
                )
            elif left_in and not each.stays:
                left[each.name] = [space for _, space in left_in]
        rename_bases(session, made.source, renames, declaring, {space.id for space in holding})
        self._sync_moved(session, parts)
        self._store_fingerprints(session, parts, refused, results)
        if made.moved_from is not None:
            source_models.forget(session, made.source.id, made.moved_from)
        more = {"left": left} if left else {}
        if None in results:
            return {**results[None], **more}
        return pipeline_result(results, refused, notes, made) | more

    def _record(
        self, session: Writer, made: IngestResult, changes: Sequence[ComponentChange]
    ) -> None:
        """Record the sync, unless a later one has ended."""
        whole = next((each.part for each in changes if each.component is None), None)
        refusal = None if whole is None else whole.made.refusal
        if not source_models.finish_sync(
            session,
            made.source.id,
            made.revision.name,
            made.sync,
            opened=made.source.updated_at,
            revision=made.revision.revision,
            places={each.component: each.place for each in changes if each.place is not None},
            error=None if refusal is None else refusal_of(refusal),
            tags=tags_digest(made.revision.tags),
            changed_at=made.revision.changed_at,
        ):
            raise superseded_error(made.revision.name)

    def _store_fingerprints(
        self,
        session: Writer,
        parts: Sequence[SyncedModel],
        refused: Collection[str],
        results: Mapping[str | None, dict[str, Any]],
    ) -> None:
        """Store the fingerprints, and add to each result what there is to say of it."""
        made = parts[0].made
        if not made.source.fingerprints:
            outdated = {part.component: part.made.fingerprint_recipe for part in parts}
            fingerprint_states.outdate(session, made.source.id, made.revision.name, outdated)
            return
        found = [(part.made, part.fingerprint) for part in parts]
        for component, said in self._fingerprinting.store(session, found, refused).items():
            results[component]["fingerprint"] = said

    def _sync_moved(self, session: Writer, parts: Sequence[SyncedModel]) -> None:
        """Enqueue the syncs of bases that have moved on the hub, and not yet here."""
        source = parts[0].made.source
        former = {base.former for part in parts for base in part.made.base.named}
        for name in sorted(filter(None, former)):
            if source_models.find_places(session, source.id, name):
                self._syncs.sync_model(session, source.tenant, source.id, name, space=source.space)

    def _write(
        self,
        session: Writer,
        part: SyncedModel,
        targets: Mapping[ImportanceName, SpaceRecord],
        left: Mapping[ImportanceName, str],
    ) -> dict[str, Any]:
        """Store new supports, or update the description of a model whose have not changed.

        Of a model of which none can be made, the source gets the reason.
        """
        made, refusal = part.made, part.made.refusal
        if refusal is not None:
            sources.note_error(session, made.source.id, refusal.code, f"{made.name}: {refusal}")
            return fingerprint_result(part, refusal)
        if part.selection is None:
            return self._describe(session, made, targets)
        return self._store_all(session, part, part.selection, left)

    def _store_all(
        self,
        session: Writer,
        part: SyncedModel,
        selection: Selection,
        left: Mapping[ImportanceName, str],
    ) -> dict[str, Any]:
        """Store new supports with tags, source and base; return the job's result."""
        made, prepared = part.made, part.prepared
        facts = difference_facts(made, prepared, selection)
        stored = [self._store(session, made, ready, facts, part.notes) for ready in prepared]
        first, result = prepared[0], stored[0]
        session.after_commit(selection.forget)
        space = first.placed.space
        # Of two supports of one file, that of its weights has the digests.
        self._weights.state(session, space, made.name, selection.weights, stated_by="hub")
        if first.importance == "weight" and result.status == "created":
            source_models.request_resync_of_derivatives(
                session, made.source.id, space, made.name, made.revision.component
            )
        return {
            "outcome": "stored",
            "status": result.status,
            "space": first.placed.space.name,
            "space_created": first.placed.created,
            "model": made.name,
            "revision": made.revision.revision,
            "importance": first.importance,
            "base": facts.get("base") if first.importance == "delta" else None,
            "support_size": result.model.support_size,
            "delta": facts | {"left_in": left.get("delta")},
            "notes": list(part.notes),
            "moved_from": made.moved_from,
            "left_in": left.get("weight"),
        }

    def _describe(
        self, session: Writer, made: IngestResult, targets: Mapping[ImportanceName, SpaceRecord]
    ) -> dict[str, Any]:
        """Update the description of a model whose supports have not changed."""
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
        code: str | None = None,
    ) -> Mapping[str, Any]:
        """Record a model that the source does not follow; a stored model stays as it is.

        Args:
            reason: why, for people.
            code: the same for queries; None where nothing counts these models.
        """
        error = None if code is None else {"code": code, "detail": reason}
        note(session, source, name, sync, revision.revision, error)
        return {"outcome": "ignored", "revision": revision.revision, "reason": reason}

    def remove(
        self, source: OpenSource, name: str, sync: int, detail: str, session: Writer
    ) -> Mapping[str, Any]:
        """Record that the hub has deleted a model; delete it here, too, if its source says so.

        Raises:
            Unavailable: a later sync has ended: this one runs again.
        """
        places = source_models.hold(session, source.id, name)
        removes = source.on_delete == "remove"
        found = [find_held(session, source, place) for place in places.values()] if removes else []
        stored = [one for held in found if held is not None for _, one in held]
        if not source_models.finish_sync(
            session,
            source.id,
            name,
            sync,
            opened=source.updated_at,
            revision=None,
            places={} if removes else None,
        ):
            raise superseded_error(name)
        _lock(session, (one.space for one in stored))
        for one in stored:
            self._models.delete(session, one.space, one.model.name)
        without = removes and self._fingerprinting.remove(session, source, name)
        whole = places.get(None)
        return {
            "outcome": "gone",
            "removed": bool(stored),
            "fingerprint_removed": without,
            "space": None if whole is None else whole.space,
            "delta_space": None if whole is None else whole.delta_space,
            "model": None if whole is None else whole.model,
            **({"components": sorted(filter(None, places))} if any(places) else {}),
            "detail": detail,
        }

    def _hold(self, session: Writer, made: IngestResult) -> dict[str | None, list[Held]]:
        """Lock and return what is stored of a repository, by its present and previous name."""
        source, found = made.source, dict[str | None, list[Held]]()
        for known in filter(None, (made.revision.name, made.moved_from)):
            for component, place in source_models.hold(session, source.id, known).items():
                if (held := find_held(session, source, place)) is not None:
                    found.setdefault(component, []).append(held)
        return found

    def _store(
        self,
        session: Writer,
        made: IngestResult,
        part: PreparedModel,
        facts: Mapping[str, Any],
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
            "base": facts["base"] if is_difference else None,
            "delta": dict(facts),
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
            bases=bases_of(made),
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
        error=error,
    )
    if source.fingerprints:
        fingerprint_states.set_state(session, source.id, name, "none")


def _lock(session: Writer, involved: Iterable[SpaceRecord]) -> None:
    """Lock spaces, always in the same order, so that two syncs cannot wait for each other."""
    for space in sorted({space.id: space for space in involved}.values(), key=lambda s: s.id):
        spaces.lock_space(session, space)
