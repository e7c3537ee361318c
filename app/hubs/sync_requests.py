"""``SyncScheduler``: enqueues jobs that synchronize models with their hub.

A hub event, in whatever order it arrives, only says that a sync is due. The job asks the hub.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from app.infra.db.database import Writer
from app.infra.errors import Unavailable
from app.jobs import repository
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant

__all__ = ["BACKFILL", "INGEST", "POLL", "SyncScheduler"]

INGEST: Final = "ingest"
"""The kind of the jobs that synchronize one model."""
BACKFILL: Final = "backfill"
"""The kind of the jobs that synchronize one model, to read it for its fingerprint."""
POLL: Final = "poll"
"""The kind of the jobs that compare a hub's listing and enqueue a sync for each change."""
_MAX_CONCURRENT_SYNCS = 50
"""The most sync jobs of one model that run at a time, far more than there are workers."""


class SyncScheduler:
    """Enqueues sync jobs.

    Args:
        jobs: the queue; ingestion and polling carry the jobs out.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs

    def sync_model(
        self,
        session: Writer,
        tenant: Tenant,
        source_id: str,
        model: str,
        *,
        space: str,
        revision: str | None = None,
        moved_from: str | None = None,
        gone: bool = False,
    ) -> JobRecord:
        """Enqueue the sync of one model.

        Args:
            model: the model's name on the hub.
            space: the name of the source's space, which the job is about.
            revision: the revision of the event, a hint.
            moved_from: the model's previous name.
            gone: whether the hub said that the model was deleted, or no longer lists it.
        """
        parameters = {
            "source": source_id,
            "model": model,
            "revision": revision,
            "moved_from": moved_from,
            **({"gone": True} if gone else {}),
        }
        about = f"{source_id} {model} {moved_from or ''}{' gone' if gone else ''}".encode()
        key = hashlib.blake2b(about, digest_size=16).hexdigest()
        return self._enqueue(session, tenant, INGEST, key, parameters, space=space)

    def read_again(
        self, session: Writer, tenant: Tenant, source_id: str, model: str, *, space: str
    ) -> JobRecord:
        """Enqueue the sync of a stored model, behind those of events and polls.

        Args: as of :meth:`sync_model`.
        """
        asked = {"source": source_id, "model": model, "revision": None, "moved_from": None}
        key = hashlib.blake2b(f"{source_id} {model}".encode(), digest_size=16).hexdigest()
        return self._jobs.enqueue(session, tenant, BACKFILL, asked, space=space, dedup_key=key)

    def sync_hub(
        self,
        session: Writer,
        tenant: Tenant,
        source_id: str,
        *,
        space: str,
        in_time: bool = False,
    ) -> JobRecord:
        """Enqueue the poll of a source's hub.

        Args:
            space: the name of the source's space, which the job is about.
            in_time: the poll is only due by its schedule: a running one is enough.
        """
        asked = {"source": source_id}
        return self._enqueue(
            session, tenant, POLL, source_id, asked, space=space, running_will_do=in_time
        )

    def end_all(self, session: Writer, tenant: Tenant, source_id: str) -> None:
        """Cancel the unfinished jobs of a source, which is deleted in the same transaction."""
        kinds, now = (INGEST, BACKFILL, POLL), datetime.now(UTC)
        repository.cancel_unfinished(session, tenant, kinds, ("source", source_id), now)

    def _enqueue(
        self,
        session: Writer,
        tenant: Tenant,
        kind: str,
        key: str,
        parameters: Mapping[str, Any],
        *,
        space: str,
        running_will_do: bool = False,
    ) -> JobRecord:
        """A job that begins after this moment, so it sees the hub as it is now or later.

        A queued job serves, and its delay ends: the hub is evidently up. A running job may have
        asked the hub before, so another one is enqueued.
        """
        for place in range(_MAX_CONCURRENT_SYNCS):
            dedup_key = f"{key} {place}"
            kept = repository.find_by_dedup_key(session, tenant, kind, dedup_key)
            if kept is None:
                return self._jobs.enqueue(
                    session, tenant, kind, parameters, space=space, dedup_key=dedup_key
                )
            if kept.state == "queued" and kept.not_before is not None and not running_will_do:
                repository.make_job_due(session, kept)
            if kept.state == "queued" or running_will_do:
                return kept
        raise Unavailable("too many syncs of the same model run already: try again")
