"""``IngestionService``: the job that synchronizes one model with its hub.

A hub event or a poll only triggers the sync; the hub's present answer decides. So hub events may
come twice, late, in any order, or never. The syncs of a model are numbered. A sync that a later one
has overtaken changes nothing and runs again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from app.hubs.clients.protocol import Hub, HubRevision, RangesIgnored
from app.hubs.clients.registry import HubRegistry
from app.hubs.ingestion.adapters import adapter_base_of, is_adapter, with_targets
from app.hubs.ingestion.base_names import BaseNames
from app.hubs.ingestion.bases import LACKING, BaseFinder, require_common_tensors
from app.hubs.ingestion.components import base_of_part, parts_of
from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.model_writer import IngestWriter, note
from app.hubs.ingestion.results import IngestResult, PreparedModel
from app.hubs.ingestion.selector import Selection, SupportSelector
from app.hubs.ingestion.stored_models import Held, base_names, find_held
from app.hubs.ingestion.sync_results import SyncedModel
from app.hubs.records import Place
from app.hubs.repositories import source_models, sources
from app.hubs.service import OpenSource, SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database
from app.infra.errors import (
    Conflict,
    HubForbidden,
    HubNotFound,
    QuotaExceeded,
    RetryLater,
    SourceNotFound,
    Unavailable,
    explain,
)
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, Progress
from app.models.catalog.puts import Put
from app.models.catalog.writer import ModelWriter
from app.models.weights.service import WeightsService
from app.tenancy.quotas.service import QuotaService
from modelkin._validation import check_model_name
from modelkin.checkpoints import Adapter, Checkpoint
from modelkin.errors import (
    InvalidCheckpoint,
    InvalidImportance,
    InvalidParameter,
    JobFailed,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
)

__all__ = ["IngestionService"]

_MIB: Final = 1 << 20
_MAX_BUSY_RETRY_S: Final = 30.0
"""The most seconds between two attempts at a model while another sync of it runs."""

_REFUSALS: Final = (
    InvalidCheckpoint,
    InvalidImportance,
    InvalidParameter,
    PayloadTooLarge,
    SpaceMismatch,
    Conflict,
)
"""The errors of one component of a pipeline that say nothing of the others."""

log = logging.getLogger(__name__)


class _SyncInProgress(RetryLater):
    """Another sync of the model is running, so this one must not download the same files."""


@dataclass(slots=True)
class _Sync:
    """A sync of one model, and its findings.

    Attributes:
        name: the model's present name on the hub, as far as it is known.
        moved_from: the model's previous name, if it is known.
        revision: the model's revision; None before the hub has answered.
    """

    name: str
    number: int
    moved_from: str | None
    revision: str | None = None


class IngestionService:
    """Carries out syncs.

    Args:
        database: the database of sources and models.
        service: the service that opens sources.
        hubs: the registry that opens their hubs.
        downloads: the disk space for checkpoints.
        syncs: enqueues the syncs that another one finds due.
    """

    def __init__(
        self,
        database: Database,
        service: SourceService,
        hubs: HubRegistry,
        downloads: Downloads,
        selector: SupportSelector,
        models: ModelWriter,
        weights: WeightsService,
        quotas: QuotaService,
        syncs: SyncScheduler,
    ) -> None:
        self._database = database
        self._sources = service
        self._hubs = hubs
        self._downloads = downloads
        self._selector = selector
        self._models = models
        self._writer = IngestWriter(models, weights, syncs)
        self._quotas = quotas
        self._base_names = BaseNames()

    def execute(self, job: JobRecord, progress: Progress) -> Mapping[str, Any] | CommitHook:
        """Carry out a sync; see :data:`app.jobs.service.Handler`."""
        asked, source_id = job.parameters["model"], job.parameters["source"]
        try:
            with self._database.reading() as session:
                source = self._sources.open(session, job.tenant, source_id)
            number = self._begin(source, asked, job)
        except SourceNotFound:
            return {"outcome": "ignored", "reason": "its source was deleted"}
        sync = _Sync(asked, number, job.parameters.get("moved_from"))
        try:
            asking = partial(progress, 0, 0, "asking the hub")
            with self._hubs.hub_of(source, asking) as hub:
                return self._sync(hub, source, sync, job, progress)
        except (JobFailed, _SyncInProgress):  # cancelled, or to be retried
            raise
        except ModelkinError as error:
            self._note(source, sync, error)
            raise

    def _sync(
        self, hub: Hub, source: OpenSource, sync: _Sync, job: JobRecord, progress: Progress
    ) -> Mapping[str, Any] | CommitHook:
        try:
            revision = hub.look_up(sync.name)
        except HubNotFound as error:
            return self._handle_missing(hub, source, sync, job, error)
        if revision.name != sync.name:  # the hub redirects from a previous name
            self._move(source, sync, job, revision.name)
        elif sync.moved_from is not None and not _leads_to(hub, sync.moved_from, revision.name):
            sync.moved_from = None
        sync.revision = revision.revision
        check_model_name(revision.name, field="model")
        with self._database.reading() as session:
            names = filter(None, (sync.name, sync.moved_from))
            places = [source_models.find_places(session, source.id, name) for name in names]
        reason = source.filters.reason_against(revision.name, revision.tags)
        if reason is not None and not any(places):  # stored models are synchronized all the same
            return partial(self._writer.ignore, source, sync.name, sync.number, revision, reason)
        parts = parts_of(hub, revision, self._downloads)
        for part in parts.revisions:
            check_model_name(part.model_name, field="model")
        new = sum(all(part.component not in at for at in places) for part in parts.revisions)
        if new > 1:
            with self._database.reading() as session:
                self._quotas.require_allowance(session, source.tenant.id, models=new)
        synced, refused = [], dict(parts.refused)
        try:
            for part in parts.revisions:
                try:
                    mine = [at[part.component] for at in places if part.component in at]
                    known = self._known(source, mine)
                    finder = BaseFinder(self._base_names, hub, source, base_names(known))
                    made = self._find(finder, sync, part, job, known)
                    synced.append(self._sync_part(finder, made, known, progress))
                except _REFUSALS as error:
                    if part.component is None:
                        raise
                    refused[part.component] = error
            if not synced:
                raise next(iter(refused.values()))
        except BaseException:
            self._discard(synced)
            raise
        why = {name: {"code": e.code, "detail": str(e)} for name, e in refused.items()}
        return partial(self._writer.finish, synced, why, parts.notes)

    def _known(self, source: OpenSource, places: Sequence[Place]) -> list[Held]:
        """What is stored of a model at these places."""
        with self._database.reading() as session:
            found = [find_held(session, source, place) for place in places]
        return [held for held in found if held is not None]

    def _find(
        self,
        finder: BaseFinder,
        sync: _Sync,
        part: HubRevision,
        job: JobRecord,
        known: Sequence[Held],
    ) -> IngestResult:
        """What is known of a model before it is downloaded."""
        adapter = is_adapter(finder.hub, part, finder.source, known)
        base = (
            adapter_base_of(finder, part) if adapter else base_of_part(finder.base_of(part), part)
        )
        return IngestResult(
            source=finder.source,
            sync=sync.number,
            moved_from=sync.moved_from,
            revision=part,
            base=base,
            job=job.id,
            adapter=adapter,
        )

    def _sync_part(
        self, finder: BaseFinder, made: IngestResult, known: Sequence[Held], progress: Progress
    ) -> SyncedModel:
        """Make the supports of a model, unless those that are stored are made like them."""
        if any(held.is_made_like(made) for held in known):
            return SyncedModel(made)
        with self._database.reading() as session:  # before a download that would be in vain
            new = 0 if known else 1
            self._quotas.require_allowance(session, made.source.tenant.id, models=new)
        try:
            return self._make(finder, made, progress)
        except RangesIgnored:
            return self._make(finder, made, progress, whole=True)

    def _make(
        self, finder: BaseFinder, made: IngestResult, progress: Progress, *, whole: bool = False
    ) -> SyncedModel:
        """Read the checkpoint, select the supports, and prepare the write that ends the job."""

        def downloaded(what: str, done: int, total: int) -> None:
            progress(done // _MIB, total // _MIB, f"downloading {what}, MiB")

        what = made.revision.component or "it"
        with self._downloads.directory() as directory:
            fetching = CheckpointFetcher(
                finder.hub,
                directory,
                self._hubs.limits.checkpoint_bytes,
                partial(downloaded, what),
                exclude=self._selector.exclude(made),
                whole=whole or made.adapter,  # an adapter is read several times
            )
            checkpoint = fetching.fetch(made.revision, "model")
            checkpoint, tables = self._selector.without_tables(fetching, checkpoint, made)
            fetching.on_progress = partial(downloaded, "its base")
            if isinstance(checkpoint, Adapter):
                made, base = with_targets(finder, fetching, made, checkpoint), None
            else:
                made, base = _with_base(fetching, made, checkpoint)
            fetching.on_progress = partial(downloaded, what)  # both, as they are read
            selection = self._selector.select(checkpoint, base, made, fetching, progress, tables)
        progress(0, 0, "storing")
        rounding = [] if selection.rounding is None else [selection.rounding]
        notes = (
            *_notes(made, selection.reason, checkpoint),
            *checkpoint.notes,
            *rounding,
            *selection.notes,
        )
        return SyncedModel(made, selection, tuple(self._prepare(made, selection)), notes)

    def _discard(self, synced: Sequence[SyncedModel]) -> None:
        """Discard what was prepared for models that are not stored."""
        for part in synced:
            for ready in part.prepared:
                self._models.discard(Put(part.made.name, ready.content))

    def _prepare(self, made: IngestResult, selection: Selection) -> list[PreparedModel]:
        """Return the supports, ready to be stored, or none."""
        prepared: list[PreparedModel] = []
        try:
            for one in selection.models:
                with self._database.reading() as session:
                    content = self._models.prepare(
                        session, one.placed.space, made.name, one.support
                    )
                prepared.append(PreparedModel(one.importance, one.placed, content))
        except BaseException:
            for ready in prepared:
                self._models.discard(Put(made.name, ready.content))
            raise
        return prepared

    def _begin(self, source: OpenSource, name: str, job: JobRecord) -> int:
        """The number of a new sync, the only one of its model that is running."""
        with self._database.writing() as session:
            number = source_models.start_sync(session, source.id, name, job.id)
        if number is None:
            raise _SyncInProgress(f"another sync of {name} is running", most=_MAX_BUSY_RETRY_S)
        return number

    def _handle_missing(
        self, hub: Hub, source: OpenSource, sync: _Sync, job: JobRecord, error: HubNotFound
    ) -> CommitHook:
        """Handle a model that is missing on the hub; raise the error if it was never stored.

        A stored model is removed only if its source says so and the model is certainly deleted,
        not only hidden from this token.
        """
        with self._database.reading() as session:
            places = source_models.find_places(session, source.id, sync.name)
        if not places:
            raise error
        sure = error.definitive and (job.parameters.get("gone") is True or hub.knows_us())
        if source.on_delete == "remove" and not sure:
            raise HubNotFound(
                f"{error}; the stored model stays, since the token or the hub may be at fault"
            )
        return partial(self._writer.remove, source, sync.name, sync.number, str(error))

    def _move(self, source: OpenSource, sync: _Sync, job: JobRecord, name: str) -> None:
        check_model_name(name, field="model")
        number = self._begin(source, name, job)
        self._base_names.forget(source.id)
        sync.name, sync.number, sync.moved_from = name, number, sync.name

    def _note(self, source: OpenSource, sync: _Sync, error: ModelkinError) -> None:
        """Record an error at the source, with the revision, so that polls do not retry it.

        After an outage, or if a quota had no room, the next poll retries it.
        """
        try:
            with self._database.writing() as session:
                sources.note_error(session, source.id, error.code, f"{sync.name}: {error}")
                passing = isinstance(error, (Unavailable, QuotaExceeded))
                if sync.revision is not None and not passing:
                    described = {"code": error.code, "detail": str(error)}
                    note(session, source, sync.name, sync.number, sync.revision, described)
        except Unavailable as unavailable:
            log.info("the error of a sync is not recorded now: %s", explain(unavailable))


def _with_base(
    fetching: CheckpointFetcher, made: IngestResult, checkpoint: Checkpoint
) -> tuple[IngestResult, Checkpoint | None]:
    """The base of a checkpoint, if it has enough of its tensors; its headers are read first.

    Without an optional base that cannot be downloaded, a later sync tries again.
    """
    revision = made.base.revision
    if revision is None:
        return made, None
    try:
        require_common_tensors(checkpoint, fetching.outline(revision, "outline"), revision)
        base = fetching.fetch(revision, "base")
        require_common_tensors(checkpoint, base, revision)
        return made, base
    except SpaceMismatch as error:
        if made.base.required:
            raise
        return replace(made, base=replace(made.base, reason=str(error))), None
    except LACKING as error:
        return replace(made, base=made.base.without(error, revision.name, made.revision)), None


def _notes(made: IngestResult, reason: str | None, checkpoint: Checkpoint) -> list[str]:
    """The notes: why a declared base gives no difference, and which patterns exclude nothing."""
    declared = made.base.revision is not None or made.base.lacking is not None
    what = "the targets are not compared with a base" if made.adapter else "no delta"
    reason = made.base.reason if made.adapter else reason
    unmatched = [
        pattern
        for pattern in made.source.exclude
        if not any(fnmatchcase(name, pattern) for name in checkpoint.excluded)
    ]
    return [
        *([f"{what}: {reason}"] if declared and reason is not None else []),
        *(f"exclude: {pattern!a} matches no tensor" for pattern in unmatched),
    ]


def _leads_to(hub: Hub, before: str, now: str) -> bool:
    """Whether a model's previous name belongs to no other model now."""
    try:
        return hub.look_up(before).name == now
    except HubNotFound:
        return True
    except HubForbidden:
        return False
