"""What becomes of a delivery: verified, recorded once, and a job enqueued, in one transaction.

Nothing is fetched here and nothing is believed but that somebody should look: the answer is out as
soon as that is durable.
"""

from __future__ import annotations

import logging
import secrets as random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from pydantic_core import from_json

from app.errors import Unauthorized, Unavailable
from app.hubs.filters import Filters, unnamable
from app.hubs.incoming import huggingface, mlflow
from app.hubs.incoming.events import HubEvent, InvalidWebhookSignature
from app.hubs.records import HubEventRecord, HubKind, Outcome, SourceRecord
from app.hubs.repositories import hub_events, source_models, sources
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database, Reader, Writer
from app.infra.db.group_commit import GroupCommit
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.jobs.service import Progress
from modelkin.errors import InvalidParameter

__all__ = ["PRUNE", "HubEventService", "Receipt"]

PRUNE: Final = "prune_deliveries"
"""The kind of the periodic jobs that forget old deliveries."""
_AT_ONCE = 1000
_QUIET = 30.0
"""Seconds between two refusals of a source that are noted: a stranger may send any number."""
_LONGEST = 500

log = logging.getLogger(__name__)


class _Hub(Protocol):
    """How deliveries of a kind of hub are verified and read."""

    def verify(
        self, secret: str, headers: Mapping[str, str], body: bytes, now: datetime
    ) -> None: ...

    def event_id(self, headers: Mapping[str, str], body: bytes, document: Any) -> str: ...

    def read(self, document: Any) -> HubEvent: ...


_KINDS: Mapping[HubKind, _Hub] = {"huggingface": huggingface, "mlflow": mlflow}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a delivery; ``duplicate`` if that was before, and nothing is new."""

    event: HubEventRecord
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One that is verified, and not recorded yet."""

    source: SourceRecord
    event_id: str
    told: HubEvent


class HubEventService:
    """The use case of receiving.

    Args:
        database: the truth.
        secrets: decrypts what deliveries are vouched for with.
        jobs: has the periodic kind that prunes.
        looks: sends somebody to look at a model.
        retention: days that deliveries are kept; a repetition that comes later is new.
        now: the time.
    """

    def __init__(
        self,
        database: Database,
        secrets: Secrets,
        looks: SyncScheduler,
        *,
        retention: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._looks = looks
        self._retention = timedelta(days=retention)
        self._now = now
        self._stranger = random.token_urlsafe()
        self._noted: dict[str, float] = {}
        self._noting = threading.Lock()
        self._records = GroupCommit(database, self._record, order=lambda given: given.source.id)

    def receive(self, source_id: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Take a delivery in, once for each id.

        Args:
            source_id: whose hook was called.
            headers: by their names in lower case.
            body: as it came.

        Raises:
            Unauthorized: there is no such source, or its secret does not vouch for this: which of
                the two is not told.
            InvalidParameter: the body is no JSON object.
            Unavailable: the database, or the key of secrets, cannot be used now.
        """
        source = self._verified(source_id, headers, body)
        try:
            document = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise InvalidParameter(f"the body is no valid JSON: {error}") from None
        if not isinstance(document, dict):
            raise InvalidParameter("the body is no JSON object")
        hub = _KINDS[source.kind]
        event_id = hub.event_id(headers, body, document)
        told = hub.read(document)
        return self._records.do(_Delivery(source, event_id, told))

    # --- who sent it --------------------------------------------------------------------------

    def _verified(self, source_id: str, headers: Mapping[str, str], body: bytes) -> SourceRecord:
        with self._database.reading() as session:
            source = sources.find_source(session, source_id)
        self._secrets.require_key()  # else only sources that are there would miss it
        hub = _KINDS["huggingface" if source is None else source.kind]
        secret = self._stranger if source is None else self._secrets.decrypt(source.secret)
        try:
            hub.verify(secret, headers, body, self._now())
        except InvalidWebhookSignature as forged:
            if source is not None:
                self._note_refusal(source, str(forged))
        else:
            if source is not None:
                return source
        raise Unauthorized("there is no such hook, or its secret does not vouch for this delivery")

    def _note_refusal(self, source: SourceRecord, detail: str) -> None:
        """For the owner of the source, who wonders why nothing comes."""
        with self._noting:
            last = self._noted.get(source.id)
            if last is not None and time.monotonic() - last < _QUIET:
                return
            self._noted[source.id] = time.monotonic()
        log.warning("source %s: a delivery was refused: %s", source.id, detail)
        try:
            with self._database.writing() as session:
                sources.note_refusal(session, source.id, self._now(), detail)
        except Unavailable as error:
            log.info("a refused delivery of source %s is not noted: %s", source.id, error)

    # --- what becomes of it -------------------------------------------------------------------

    def _record(self, session: Writer, given: _Delivery) -> Receipt:
        source, event_id, told = given.source, given.event_id, given.told
        now = self._now()
        if not sources.note_event(session, source.id, now):  # locks it: one delivery at a time
            raise Unauthorized("the source was deleted just now")
        before = hub_events.find_event(session, source.id, event_id)
        if before is not None:
            return Receipt(before, duplicate=True)
        outcome, reason = self._decided(session, source, told)
        job: JobRecord | None = None
        if outcome == "enqueued":
            assert told.model is not None
            job = self._looks.at_model(
                session,
                source.tenant,
                source.id,
                told.model,
                revision=told.revision,
                moved_from=told.moved_from,
                gone=told.gone,
            )
        delivery = HubEventRecord(
            source_id=source.id,
            event_id=event_id,
            event=told.event,
            model=told.model,
            revision=told.revision,
            outcome=outcome,
            reason=None if reason is None else reason[:_LONGEST],
            job=None if job is None else job.id,
            received_at=now,
        )
        hub_events.insert_event(session, delivery)
        return Receipt(delivery, duplicate=False)

    def _decided(
        self, session: Reader, source: SourceRecord, told: HubEvent
    ) -> tuple[Outcome, str | None]:
        """What to do about a delivery, and why that is nothing."""
        if told.ignored is not None:
            return "ignored", told.ignored
        assert told.model is not None
        if reason := unnamable(told.model):
            return "ignored", reason
        filters = Filters.of(source.filters)
        names = [name for name in (told.model, told.moved_from) if name is not None]
        reasons = [filters.reason_against(name, told.tags) for name in names]
        # What is here already has to follow, whatever the filters would say of it now.
        here = (source_models.placed(session, source.id, name) for name in names)
        if None not in reasons and not any(here):
            return "ignored", reasons[0]
        if source.url is None:
            return "recorded", "the source has no url, so there is nobody to ask"
        return "enqueued", None

    # --- what is kept -------------------------------------------------------------------------

    def any_old(self, session: Reader) -> bool:
        """Whether there is a hub event to be pruned."""
        return hub_events.any_before(session, self._now() - self._retention)

    def prune(self, job: JobRecord, progress: Progress) -> dict[str, Any]:
        """Forget what came too long ago, a little at a time."""
        del job
        before, pruned = self._now() - self._retention, 0
        while True:
            progress(pruned, 0, "forgetting old deliveries")
            with self._database.writing() as session:
                some = hub_events.prune_events(session, before, limit=_AT_ONCE)
            pruned += some
            if some < _AT_ONCE:
                return {"pruned": pruned}
