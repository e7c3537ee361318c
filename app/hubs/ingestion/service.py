"""The job that looks at one model of one hub, and brings what is here in line with what it is now.

Whatever made somebody look, a delivery or a poll, is forgotten by then: the hub is asked, and what
it says at that moment is what counts. So deliveries may come twice, late, in any order, or never.
Looks at one model are numbered, and one that was overtaken changes nothing and looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from app.catalog.writer import ModelWriter
from app.errors import (
    HubForbidden,
    HubNotFound,
    RetryLater,
    SourceNotFound,
    SpaceExists,
    Unavailable,
)
from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.clients.registry import HubRegistry
from app.hubs.ingestion.checkpoint_fetcher import CheckpointFetcher, fingerprint, named
from app.hubs.ingestion.downloads import Downloads
from app.hubs.ingestion.model_writer import IngestResult, IngestWriter, held_by, note, require_free
from app.hubs.ingestion.selection_plan import (
    LACKING,
    Base,
    Selected,
    Sizes,
    base_of,
    require_same,
    select,
)
from app.hubs.ingestion.space_resolver import ResolvedSpace, SpaceResolver
from app.hubs.repositories import source_models, sources
from app.hubs.service import OpenSource, SourceService
from app.infra.db.database import Database
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, Progress
from modelkin._validation import check_model_name
from modelkin.checkpoints import Checkpoint
from modelkin.errors import JobFailed, ModelkinError, SpaceMismatch

__all__ = ["IngestionService"]

_MIB: Final = 1 << 20
_BUSY: Final = 30.0
"""Seconds, at most, between two tries to look at a model that another look is at."""

log = logging.getLogger(__name__)


class _Busy(RetryLater):
    """Another look at the model is under way: what it downloads is not downloaded beside it."""


@dataclass(slots=True)
class _Sync:
    """One look at one model, and what it has come to know.

    Attributes:
        name: that the model has on the hub now, as far as anybody knows.
        number: of the look.
        moved_from: the name that it had before, if it is known to have had one.
        revision: that it is at; None until the hub has said so.
    """

    name: str
    number: int
    moved_from: str | None
    revision: str | None = None


class IngestionService:
    """Carries out the looks.

    Args:
        database: the truth.
        service: knows the sources.
        hubs: opens their hubs.
        downloads: the disk.
        placing: finds spaces.
        sizes: of supports.
        ingest: stores models.
    """

    def __init__(
        self,
        database: Database,
        service: SourceService,
        hubs: HubRegistry,
        downloads: Downloads,
        placing: SpaceResolver,
        sizes: Sizes,
        ingest: ModelWriter,
    ) -> None:
        self._database = database
        self._sources = service
        self._hubs = hubs
        self._downloads = downloads
        self._placing = placing
        self._sizes = sizes
        self._ingest = ingest
        self._storing = IngestWriter(ingest)

    def execute(self, job: JobRecord, progress: Progress) -> Mapping[str, Any] | CommitHook:
        """The handler, see :data:`app.jobs.service.Handler`."""
        asked, source_id = job.parameters["model"], job.parameters["source"]
        try:
            with self._database.reading() as session:
                source = self._sources.open(session, job.tenant, source_id)
            number = self._begin(source, asked, job)
        except SourceNotFound:
            return {"outcome": "ignored", "reason": "its source was deleted"}
        look = _Sync(asked, number, job.parameters.get("moved_from"))
        try:
            asking = partial(progress, 0, 0, "asking the hub")
            with self._hubs.hub_of(source, asking) as hub:
                return self._look(hub, source, look, job, progress)
        except (JobFailed, _Busy):  # it was cancelled, or waits
            raise
        except ModelkinError as error:
            self._note(source, look, error)
            raise

    def _look(
        self, hub: Hub, source: OpenSource, look: _Sync, job: JobRecord, progress: Progress
    ) -> Mapping[str, Any] | CommitHook:
        try:
            revision = hub.look_up(look.name)
        except HubNotFound as error:
            return self._gone(hub, source, look, job, error)
        if revision.name != look.name:  # the hub leads on from a name that it had before
            self._move(source, look, job, revision.name)
        elif look.moved_from is not None and not _leads_to(hub, look.moved_from, revision.name):
            look.moved_from = None
        look.revision = revision.revision
        check_model_name(revision.name, field="model")
        with self._database.reading() as session:
            names = filter(None, (look.name, look.moved_from))
            known = [held for n in names if (held := held_by(session, source, n)) is not None]
        reason = source.filters.reason_against(revision.name, revision.tags)
        if reason is not None and not known:  # what is here does not grow old unseen
            return partial(self._storing.ignore, source, look.name, look.number, revision, reason)
        base = base_of(hub, revision, source.importance, source.base_model)
        made = IngestResult(
            source=source,
            look=look.number,
            name=look.name,
            moved_from=look.moved_from,
            revision=revision,
            base=base,
            depends_on=_dependencies(revision, base, source),
            job=job.id,
        )
        if any(held.is_made_like(made) for held in known):
            return partial(self._storing.describe, made)
        return self._make(hub, made, progress)

    def _make(self, hub: Hub, made: IngestResult, progress: Progress) -> CommitHook:
        """Download, select, and prepare what is then stored with the job's success."""

        def downloaded(what: str, done: int, total: int) -> None:
            progress(done // _MIB, total // _MIB, f"downloading {what}, MiB")

        with self._downloads.room() as room:
            most = self._hubs.limits.checkpoint_bytes
            fetching = CheckpointFetcher(hub, room, most, partial(downloaded, "it"))
            checkpoint = fetching.fetch(made.revision, "model")
            fetching.on_progress = partial(downloaded, "its base")
            made, base = _with_base(fetching, made, checkpoint)
            placed, (support, importance, note) = self._select(checkpoint, base, made, progress)
        progress(0, 0, "storing")
        with self._database.reading() as session:
            prepared = self._ingest.prepare(session, placed.space, made.name, support)
        notes = [*([note] if note else []), *checkpoint.notes]
        return partial(self._storing.store, made, placed, prepared, importance, notes)

    def _select(
        self,
        checkpoint: Checkpoint,
        base: Checkpoint | None,
        made: IngestResult,
        progress: Progress,
    ) -> tuple[ResolvedSpace, Selected]:
        """The support, and its space, which is made once there is something to be put into it."""

        def selecting(done: int, total: int) -> None:
            progress(done, total, "selecting")

        where = (made.source.tenant, made.source.space, checkpoint.layout)
        while True:
            space = self._placing.find(*where)
            with self._database.reading() as session:
                if space is not None:
                    require_free(session, space, made)
                rule = self._sizes.rule(session, space, checkpoint.num_parameters)
            layout = None if space is None else space.layout
            selected = select(checkpoint, base, made.base, layout, rule, selecting)
            if space is not None:
                return ResolvedSpace(space, created=False), selected
            with suppress(SpaceExists):
                placed = self._placing.place(*where)
                if placed.created:
                    return placed, selected
            # Somebody else has made it meanwhile, maybe of another layout or order, or with a K.

    def _begin(self, source: OpenSource, name: str, job: JobRecord) -> int:
        """The number of a look, the only one at its model that is under way."""
        with self._database.writing() as session:
            number = source_models.start_sync(session, source.id, name, job.id)
        if number is None:
            raise _Busy(f"another look at {name} is under way", most=_BUSY)
        return number

    def _gone(
        self, hub: Hub, source: OpenSource, look: _Sync, job: JobRecord, error: HubNotFound
    ) -> CommitHook:
        """What was never here was asked for in vain; what is here stays, or goes by its source,
        where it is sure that the model was deleted and not kept from us.
        """
        with self._database.reading() as session:
            place = source_models.placed(session, source.id, look.name)
        if place is None:
            raise error
        sure = error.definitive and (job.parameters.get("gone") is True or hub.knows_us())
        if source.on_delete == "remove" and not sure:
            raise HubNotFound(
                f"{error}; what is here of it stays, since that may be for want of a token, or of "
                f"the hub itself"
            )
        return partial(self._storing.let_go, source, look.name, look.number, str(error))

    def _move(self, source: OpenSource, look: _Sync, job: JobRecord, name: str) -> None:
        check_model_name(name, field="model")
        number = self._begin(source, name, job)
        look.name, look.number, look.moved_from = name, number, look.name

    def _note(self, source: OpenSource, look: _Sync, error: ModelkinError) -> None:
        """Let the source tell what went wrong; at a revision, so that nobody tries that again."""
        try:
            with self._database.writing() as session:
                sources.note_error(session, source.id, error.code, f"{look.name}: {error}")
                if look.revision is not None and not isinstance(error, Unavailable):
                    described = {"code": error.code, "detail": str(error)}
                    note(session, source, look.name, look.number, look.revision, described)
        except Unavailable as unavailable:
            log.info("what became of a look is not noted now: %s", unavailable)


def _with_base(
    fetching: CheckpointFetcher, made: IngestResult, checkpoint: Checkpoint
) -> tuple[IngestResult, Checkpoint | None]:
    """The base beside what was made of it, if it is of the same layout, which its headers tell
    before its weights come; where it cannot be had, and need not be, another look tries again.
    """
    revision = made.base.revision
    if revision is None:
        return made, None
    try:
        require_same(checkpoint, fetching.outline(revision, "outline"), revision)
        return made, fetching.fetch(revision, "base")
    except SpaceMismatch as error:
        if made.base.required:
            raise
        return replace(made, base=replace(made.base, note=f"no delta: {error}")), None
    except LACKING as error:
        base = made.base.without(error, named(revision), made.revision)
        return replace(made, base=base, depends_on=[*made.depends_on, "not given"]), None


def _leads_to(hub: Hub, before: str, now: str) -> bool:
    """Whether the name that a model had is nobody else's by now."""
    try:
        return hub.look_up(before).name == now
    except HubNotFound:
        return True
    except HubForbidden:
        return False


def _dependencies(revision: HubRevision, base: Base, source: OpenSource) -> list[str]:
    """What a support depends on, besides the size that its space asks for."""
    parts = [fingerprint(revision), source.importance or "", source.space]
    if base.revision is not None:
        parts += [base.revision.name, fingerprint(base.revision)]
    return parts
