"""Looks: jobs that bring what is here in line with what a hub says, of one model or of all.

Whatever was delivered, and in whatever order, means no more than that somebody should look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from app.auth.records import Tenant
from app.errors import Unavailable
from app.infra.db.database import Writer
from app.jobs import repository as stored
from app.jobs.records import JobRecord
from app.jobs.service import JobService

__all__ = ["INGEST", "POLL", "SyncScheduler"]

INGEST: Final = "ingest"
"""The kind of the jobs that look at one model."""
POLL: Final = "poll"
"""The kind of those that look through a hub for models to be looked at."""
_AT_ONCE = 50
"""Looks at one model that run at a time, far more than there are workers that could."""


class SyncScheduler:
    """Sends somebody to look.

    Args:
        jobs: where the looks are enqueued; ingestion and polling register the kinds.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs

    def at_model(
        self,
        session: Writer,
        tenant: Tenant,
        source_id: str,
        model: str,
        *,
        revision: str | None = None,
        moved_from: str | None = None,
        gone: bool = False,
    ) -> JobRecord:
        """A job that looks at a model.

        Args:
            model: its name on the hub.
            revision: what somebody said it is at, a hint.
            moved_from: the name that it had before.
            gone: the hub has told that it was deleted, or lists it no more.
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
        return self._enqueue(session, tenant, INGEST, key, parameters)

    def through_hub(
        self, session: Writer, tenant: Tenant, source_id: str, *, in_time: bool = False
    ) -> JobRecord:
        """A job that looks through the hub of a source.

        Args:
            in_time: it is due, no more: one that still runs will do.
        """
        asked = {"source": source_id}
        return self._enqueue(session, tenant, POLL, source_id, asked, running_will_do=in_time)

    def _enqueue(
        self,
        session: Writer,
        tenant: Tenant,
        kind: str,
        key: str,
        parameters: Mapping[str, Any],
        *,
        running_will_do: bool = False,
    ) -> JobRecord:
        """A job that begins after this moment, so that it sees all that was so at this moment.

        One that waits already is the answer, and no second one is made, but it waits no longer:
        who was away has just been heard of. One that runs may have looked before.
        """
        for place in range(_AT_ONCE):
            dedup_key = f"{key} {place}"
            kept = stored.find_kept(session, tenant, kind, dedup_key)
            if kept is None:
                return self._jobs.enqueue(session, tenant, kind, parameters, dedup_key=dedup_key)
            if kept.state == "queued" and kept.not_before is not None and not running_will_do:
                stored.hasten_job(session, kept)
            if kept.state == "queued" or running_will_do:
                return kept
        raise Unavailable("too many looks at the same run already: try again")
