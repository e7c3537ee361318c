"""``HubEventService``: verify a hub event, record it once, and enqueue a sync job.

Recording and enqueueing are one transaction, and the hub is answered once it is durable. The
payload only says that a sync is due: the job asks the hub for the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any, Final

from pydantic_core import from_json

from app.hubs.filters import Filters, unnamable
from app.hubs.incoming.events import HubEvent, InvalidWebhookSignature
from app.hubs.kinds import DEFAULT_HUB_KIND, HUB_KINDS
from app.hubs.records import HubEventRecord, Outcome, SourceRecord
from app.hubs.repositories import hub_events, source_models, sources
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database, Reader, Writer
from app.infra.db.group_commit import GroupCommit
from app.infra.errors import Unauthorized, Unavailable, explain
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.jobs.service import Progress
from modelkin.errors import InvalidParameter
from modelkin.wire.json_structure import check_structure

__all__ = ["PRUNE", "HubEventService", "Receipt"]

PRUNE: Final = "prune_deliveries"
"""The kind of the periodic jobs that delete old hub events.

Its name is older than theirs, and stays: a job of it may wait while a service is upgraded.
"""
_BATCH_SIZE = 1000
_REFUSAL_INTERVAL_S = 30.0
"""Seconds between two refusals that are recorded: an attacker may send any number."""
_MAX_REASON_LENGTH = 500

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The record of a hub event; ``duplicate`` if it was recorded before."""

    event: HubEventRecord
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _VerifiedEvent:
    """A hub event that is verified, and not recorded yet."""

    source: SourceRecord
    event_id: str
    content: HubEvent


class HubEventService:
    """Receives webhooks from hubs.

    Args:
        database: the database of hub events.
        secrets: the keys that decrypt the secrets of sources.
        sync: the service that enqueues sync jobs.
        retention: the days for which hub events are kept; a later repetition is a new event.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        secrets: Secrets,
        sync: SyncScheduler,
        *,
        retention: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._sync = sync
        self._retention = timedelta(days=retention)
        self._now = now
        self._decoy_secret = token_urlsafe()
        self._refused_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._records = GroupCommit(database, self._record_each)

    def receive(self, source_id: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Verify and record a hub event, once for each id of a source.

        Args:
            source_id: the source whose hook was called.
            headers: the headers, by their names in lower case.
            body: the body as received.

        Raises:
            Unauthorized: there is no such source, or the secret is wrong; the error does not say
                which.
            InvalidParameter: the body is not a JSON object.
            Unavailable: the database or the encryption key cannot be used now.
        """
        source = self._verify(source_id, headers, body)
        try:
            check_structure(body)
            document = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise InvalidParameter(f"the body is not valid JSON: {error}") from None
        if not isinstance(document, dict):
            raise InvalidParameter("the body is not a JSON object")
        webhooks = HUB_KINDS[source.kind].webhooks
        event_id = webhooks.event_id(headers, body, document)
        return self._records.do(_VerifiedEvent(source, event_id, webhooks.read(document)))

    # --- verification -------------------------------------------------------------------------

    def _verify(self, source_id: str, headers: Mapping[str, str], body: bytes) -> SourceRecord:
        with self._database.reading() as session:
            source = sources.find_source(session, source_id)
        self._secrets.require_key()  # a missing key must not reveal which sources exist
        kind = DEFAULT_HUB_KIND if source is None else HUB_KINDS[source.kind]
        secret = self._decoy_secret if source is None else self._secrets.decrypt(source.secret)
        try:
            kind.webhooks.verify(secret, headers, body, self._now())
        except InvalidWebhookSignature as refused:
            if source is not None:
                self._note_refusal(source, str(refused))
        else:
            if source is not None:
                return source
        raise Unauthorized("there is no such hook, or the secret of this event is wrong")

    def _note_refusal(self, source: SourceRecord, detail: str) -> None:
        """Record a refusal for the source's owner, at most one in 30 s."""
        with self._lock:
            last = self._refused_at.get(source.id)
            if last is not None and time.monotonic() - last < _REFUSAL_INTERVAL_S:
                return
            self._refused_at[source.id] = time.monotonic()
        log.warning("source %s: a hub event was refused: %s", source.id, detail)
        try:
            with self._database.writing() as session:
                sources.note_refusal(session, source.id, self._now(), detail)
        except Unavailable as error:
            log.info("a refused event of source %s is not recorded: %s", source.id, explain(error))

    # --- recording ----------------------------------------------------------------------------

    def _record_each(self, session: Writer, events: Sequence[_VerifiedEvent]) -> list[Receipt]:
        """Record events of several sources, which are locked in one order everywhere."""
        places = sorted(range(len(events)), key=lambda place: events[place].source.id)
        receipts = {place: self._record(session, events[place]) for place in places}
        return [receipts[place] for place in range(len(events))]

    def _record(self, session: Writer, event: _VerifiedEvent) -> Receipt:
        source, event_id, content = event.source, event.event_id, event.content
        now = self._now()
        if not sources.note_event(session, source.id, now):  # locks the source: one at a time
            raise Unauthorized("the source was deleted just now")
        before = hub_events.find_event(session, source.id, event_id)
        if before is not None:
            return Receipt(before, duplicate=True)
        outcome, reason = self._outcome(session, source, content)
        job: JobRecord | None = None
        if outcome == "enqueued":
            assert content.model is not None
            job = self._sync.sync_model(
                session,
                source.tenant,
                source.id,
                content.model,
                space=source.space,
                revision=content.revision,
                moved_from=content.moved_from,
                gone=content.gone,
            )
        record = HubEventRecord(
            source_id=source.id,
            event_id=event_id,
            event=content.event,
            model=content.model,
            revision=content.revision,
            outcome=outcome,
            reason=None if reason is None else reason[:_MAX_REASON_LENGTH],
            job=None if job is None else job.id,
            received_at=now,
        )
        hub_events.insert_event(session, record)
        return Receipt(record, duplicate=False)

    def _outcome(
        self, session: Reader, source: SourceRecord, event: HubEvent
    ) -> tuple[Outcome, str | None]:
        """Decide whether an event needs a sync; return the reason if it does not."""
        if event.ignored is not None:
            return "ignored", event.ignored
        assert event.model is not None
        if reason := unnamable(event.model):
            return "ignored", reason
        filters = Filters.of(source.filters)
        names = [name for name in (event.model, event.moved_from) if name is not None]
        reasons = [filters.reason_against(name, event.tags) for name in names]
        # Stored models stay in sync, whatever the filters say now.
        stored = (source_models.find_places(session, source.id, name) for name in names)
        if None not in reasons and not any(stored):
            return "ignored", reasons[0]
        if source.url is None:
            return "recorded", "the source has no url, so no hub can be asked"
        return "enqueued", None

    # --- retention ----------------------------------------------------------------------------

    def any_old(self, session: Reader) -> bool:
        """Whether a hub event is older than the retention."""
        return hub_events.any_before(session, self._now() - self._retention)

    def prune(self, job: JobRecord, progress: Progress) -> dict[str, Any]:
        """Delete hub events older than the retention, batch by batch."""
        del job
        before, pruned = self._now() - self._retention, 0
        while True:
            progress(pruned, 0, "deleting old hub events")
            with self._database.writing() as session:
                deleted = hub_events.prune_events(session, before, limit=_BATCH_SIZE)
            pruned += deleted
            if deleted < _BATCH_SIZE:
                return {"pruned": pruned}
