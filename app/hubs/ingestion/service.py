"""``IngestionService``: the job that synchronizes one model with its hub.

A hub event or a poll only triggers the sync; the hub's present answer decides. So hub events may
come twice, late, in any order, or never. The syncs of a model are numbered. A sync that a later one
has overtaken changes nothing and runs again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.hubs.clients.registry import HubRegistry
from app.hubs.ingestion.adapters import WithoutWeights, adapter_base_of, is_adapter
from app.hubs.ingestion.base_names import BaseNames
from app.hubs.ingestion.bases import LACKING, Base, BaseFinder
from app.hubs.ingestion.components import Parts, base_of_part, parts_of
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.model_maker import NO_SUPPORT, ModelMaker
from app.hubs.ingestion.model_writer import IngestWriter, note
from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import Held, base_names, find_held
from app.hubs.ingestion.sync_results import SyncedModel, refusal_of
from app.hubs.records import UNREAD, Place
from app.hubs.repositories import fingerprint_states, source_models, sources
from app.hubs.service import OpenSource, SourceService
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
from app.tenancy.quotas.service import QuotaService
from modelkin._validation import check_model_name
from modelkin.core.file_formats import UnreadFormat
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

_NOTHING_WRONG: Final = (WithoutWeights, UnreadFormat)
"""The errors of models that the source leaves out."""

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
        downloads: the disk space for small files.
        maker: reads the models.
        writer: stores them.
    """

    def __init__(
        self,
        database: Database,
        service: SourceService,
        hubs: HubRegistry,
        downloads: Downloads,
        maker: ModelMaker,
        writer: IngestWriter,
        quotas: QuotaService,
    ) -> None:
        self._database = database
        self._sources = service
        self._hubs = hubs
        self._downloads = downloads
        self._maker = maker
        self._writer = writer
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
        places, is_stored = self._stored(source, [*filter(None, (sync.name, sync.moved_from))])
        reason = source.filters.reason_against(revision.name, revision.tags)
        ignore = partial(self._writer.ignore, source, sync.name, sync.number, revision)
        if reason is not None and not is_stored:  # stored models are synchronized all the same
            return partial(ignore, reason)
        try:
            synced, refused, notes = self._make_parts(
                hub, source, sync, revision, places, job, progress
            )
        except WithoutWeights as error:
            return partial(ignore, str(error))
        except UnreadFormat as error:
            if is_stored:  # what is stored is no longer what the hub has
                raise
            return partial(ignore, str(error), code=UNREAD)
        why = {name: refusal_of(error) for name, error in refused.items()}
        return partial(self._writer.finish, synced, why, notes)

    def _make_parts(
        self,
        hub: Hub,
        source: OpenSource,
        sync: _Sync,
        revision: HubRevision,
        places: Sequence[Mapping[str | None, Place]],
        job: JobRecord,
        progress: Progress,
    ) -> tuple[list[SyncedModel], dict[str, ModelkinError], Sequence[str]]:
        """Make the models of a repository; those that are refused, and notes.

        Args:
            places: where the repository's models are stored, by its names.

        Raises:
            ModelkinError: all are refused, or a failure is none of one component.
        """
        parts = parts_of(hub, revision, self._downloads)
        for part in parts.revisions:
            check_model_name(part.model_name, field="model")
        new = sum(all(part.component not in at for at in places) for part in parts.revisions)
        if new > 1:
            with self._database.reading() as session:
                self._quotas.require_allowance(session, source.tenant.id, models=new)

        def make(part: HubRevision) -> SyncedModel:
            mine = [at[part.component] for at in places if part.component in at]
            known = self._known(source, mine)
            finder = BaseFinder(self._base_names, hub, source, base_names(known))
            made = self._find(finder, sync, part, job, known)
            return self._maker.make(finder, made, known, progress)

        synced, refused = self._make_all(make, parts)
        return synced, refused, parts.notes

    def _make_all(
        self, make: Callable[[HubRevision], SyncedModel], parts: Parts
    ) -> tuple[list[SyncedModel], dict[str, ModelkinError]]:
        """Make the components of a repository; those that are refused do not end the others.

        Raises:
            ModelkinError: all are refused, or a failure is none of one component.
        """
        synced, refused = list[SyncedModel](), dict(parts.refused)
        try:
            for part in parts.revisions:
                try:
                    synced.append(make(part))
                except _REFUSALS as error:
                    if part.component is None:
                        raise
                    refused[part.component] = error
            if not synced:
                # A component without weights is nothing to look at; another failure is.
                raise min(refused.values(), key=lambda error: isinstance(error, _NOTHING_WRONG))
        except BaseException:
            self._maker.discard(synced)
            raise
        return synced, refused

    def _stored(
        self, source: OpenSource, names: Sequence[str]
    ) -> tuple[list[dict[str | None, Place]], bool]:
        """The places of a model under its names, and whether anything of it is stored."""
        with self._database.reading() as session:
            places = [source_models.find_places(session, source.id, name) for name in names]
            is_stored = any(places) or any(
                fingerprint_states.has_any(session, source.id, name) for name in names
            )
        return places, is_stored

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
        refusal: ModelkinError | None = None
        try:
            base = (
                adapter_base_of(finder, part)
                if adapter
                else base_of_part(finder.base_of(part), part)
            )
        except (*NO_SUPPORT, *LACKING) as error:
            if adapter:
                raise
            base, refusal = Base(None, required=False, reason=str(error)), error
        return IngestResult(
            source=finder.source,
            sync=sync.number,
            moved_from=sync.moved_from,
            revision=part,
            base=base,
            job=job.id,
            adapter=adapter,
            refusal=refusal,
        )

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
        if not self._stored(source, [sync.name])[1]:
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
                    why = refusal_of(error)
                    note(session, source, sync.name, sync.number, sync.revision, why)
        except Unavailable as unavailable:
            log.info("the error of a sync is not recorded now: %s", explain(unavailable))


def _leads_to(hub: Hub, before: str, now: str) -> bool:
    """Whether a model's previous name belongs to no other model now."""
    try:
        return hub.look_up(before).name == now
    except HubNotFound:
        return True
    except HubForbidden:
        return False
