"""``SourceService``: sources, the hubs whose models the service follows.

Secrets and tokens are encrypted before they are stored. They leave only as an :class:`OpenSource`,
for the jobs that ask the hub. The service sends no request here: endpoints check a URL before, and
every connection is checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from app.hubs.filters import Filters
from app.hubs.kinds import HUB_KINDS, PUBLIC_HOSTS
from app.hubs.records import (
    FingerprintCounts,
    HubEventRecord,
    ImportanceName,
    OnDelete,
    SourceRecord,
)
from app.hubs.repositories import fingerprint_states, hub_events, source_models, sources
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Reader, Writer
from app.infra.db.ids import new_id
from app.infra.egress.web_origins import web_origin
from app.infra.errors import Conflict
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "DEFAULT_BACKFILL_PER_HOUR",
    "DEFAULT_POLL_S",
    "OpenSource",
    "SourceIn",
    "SourceService",
]

DEFAULT_POLL_S: Final = 3600
"""Seconds between two polls by default."""
DEFAULT_BACKFILL_PER_HOUR: Final = 60
"""Models that are read again an hour for their fingerprints, by default."""
_RESYNC_FIELDS = ("url", "space", "importance", "base_model", "exclude", "filters")
"""The fields whose change requires a sync of every model."""


@dataclass(frozen=True, slots=True)
class SourceIn:
    """The fields of a new source; see :class:`app.hubs.records.SourceRecord`.

    ``polled`` says that the client set ``poll_seconds``, so it is not the default.
    """

    kind: str
    space: str
    secret: str = field(repr=False)
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    importance: ImportanceName | None = None
    base_model: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    on_delete: OnDelete = "keep"
    poll_seconds: int | None = DEFAULT_POLL_S
    polled: bool = False
    exclude: Sequence[str] = ()
    fingerprints: bool = True
    backfill_per_hour: int | None = DEFAULT_BACKFILL_PER_HOUR


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source with its token decrypted: for one job, and never stored, shown or logged.

    ``updated_at`` shows whether a client has changed the source since.
    """

    id: str
    tenant: Tenant
    kind: str
    space: str
    url: str | None
    token: str | None = field(repr=False)
    importance: ImportanceName | None
    base_model: str | None
    filters: Filters
    on_delete: OnDelete
    updated_at: datetime
    exclude: tuple[str, ...] = ()
    fingerprints: bool = True


class SourceService:
    """Creates, changes, polls and deletes sources.

    Args:
        secrets: the keys that encrypt secrets and tokens.
        sync: the service that enqueues polls.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        secrets: Secrets,
        sync: SyncScheduler,
        quotas: QuotaService,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._secrets = secrets
        self._sync = sync
        self._quotas = quotas
        self._now = now

    def create(self, session: Writer, tenant: Tenant, wanted: SourceIn) -> SourceRecord:
        """Create a source, and enqueue its first poll if it is polled.

        Raises:
            InvalidParameter: the fields contradict each other; the error says which.
            QuotaExceeded: the tenant's quota of sources is used up.
            SecretKeyMissing: there is no key to encrypt its secret with.
        """
        filters = _fitting(wanted.kind, wanted.filters)
        _refuse_to_exclude_all(wanted.exclude)
        _refuse_homeless_token(wanted.url, wanted.token)
        now = self._now()
        source = SourceRecord(
            id=new_id(now),
            tenant=tenant,
            kind=wanted.kind,
            space=wanted.space,
            url=wanted.url,
            secret=self._secrets.encrypt(wanted.secret),
            token=None if wanted.token is None else self._secrets.encrypt(wanted.token),
            importance=wanted.importance,
            base_model=wanted.base_model,
            filters=filters.to_json(),
            on_delete=wanted.on_delete,
            poll_seconds=wanted.poll_seconds,
            created_at=now,
            updated_at=now,
            exclude=list(wanted.exclude) or None,
            fingerprints=wanted.fingerprints,
            backfill_per_hour=wanted.backfill_per_hour,
            next_backfill_at=now if wanted.fingerprints else None,
        )
        source = _with_next_poll(source, filters, asked=wanted.polled, now=now)
        count = partial(sources.count_sources, session, tenant)
        self._quotas.require(session, tenant.id, "sources", count)
        sources.insert_source(session, source)
        return self._poll_if_due(session, source)

    def get(self, session: Reader, tenant: Tenant, source_id: str) -> SourceRecord:
        """The tenant's source of this id, or :class:`SourceNotFound`."""
        return sources.get_source(session, tenant, source_id)

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
    ) -> Page[SourceRecord]:
        """The tenant's sources, newest first."""
        return sources.list_sources(session, tenant, limit=limit, cursor=cursor)

    def update(
        self, session: Writer, tenant: Tenant, source_id: str, given: Mapping[str, Any]
    ) -> SourceRecord:
        """Change the given fields, by the names of :class:`SourceIn`; keep the other fields.

        If the change affects stored models, a poll becomes due that synchronizes all models.

        Raises:
            SourceNotFound: there is no source with this id.
            InvalidParameter: the fields contradict each other; the error says which.
        """
        before = sources.lock_source(session, tenant, source_id)
        _refuse_to_send_elsewhere(before, given)
        changes = dict(given)
        if given.get("url", before.url) is None:
            _refuse_homeless_token(None, given.get("token"))
            changes["token"] = None
        for name in ("secret", "token"):
            if changes.get(name) is not None:
                changes[name] = self._secrets.encrypt(changes[name])
        filters = _fitting(before.kind, given.get("filters", before.filters))
        changes["filters"] = filters.to_json()
        if "exclude" in changes:
            _refuse_to_exclude_all(changes["exclude"] or ())
            changes["exclude"] = list(changes["exclude"] or ()) or None
        now = self._now()
        after = replace(before, **changes, updated_at=now)
        after = replace(after, next_backfill_at=now if after.fingerprints else None)
        resync = "token" in given or any(
            getattr(after, name) != getattr(before, name) for name in _RESYNC_FIELDS
        )
        if resync:
            source_models.request_resync(session, after.id)
        if resync or after.poll_seconds != before.poll_seconds:
            asked = given.get("poll_seconds") is not None
            after = _with_next_poll(after, filters, asked=asked, now=now)
        names = (*changes, "updated_at", "poll_seconds", "next_poll_at", "next_backfill_at")
        sources.update_source(session, after.id, {name: getattr(after, name) for name in names})
        return self._poll_if_due(session, after)

    def delete(self, session: Writer, tenant: Tenant, source_id: str) -> None:
        """Delete a source with its hub events, and end its jobs; its models stay.

        Raises:
            SourceNotFound: there is no source with this id.
        """
        source = sources.lock_source(session, tenant, source_id)
        self._sync.end_all(session, tenant, source.id)
        sources.delete_source(session, source.id)

    def poll(self, session: Writer, tenant: Tenant, source_id: str) -> JobRecord:
        """Enqueue a poll that begins after this moment.

        Raises:
            SourceNotFound: there is no source with this id.
            Conflict: the source cannot be polled.
        """
        source = self.get(session, tenant, source_id)
        if why := _why_not_polled(source, Filters.of(source.filters)):
            raise Conflict(f"this source is not polled: {why}")
        return self._sync.sync_hub(session, tenant, source.id, space=source.space)

    def fingerprint_counts(
        self, session: Reader, found: Collection[SourceRecord]
    ) -> Mapping[str, FingerprintCounts]:
        """How far the fingerprints of some sources are, by the ids of the sources."""
        return fingerprint_states.counts(session, [source.id for source in found])

    def hub_events(
        self, session: Reader, source: SourceRecord, *, limit: int, cursor: str | None
    ) -> Page[HubEventRecord]:
        """The hub events of a source, newest first, as long as they are kept."""
        return hub_events.list_events(session, source.id, limit=limit, cursor=cursor)

    def open(self, session: Reader, tenant: Tenant, source_id: str) -> OpenSource:
        """Open a source with its token decrypted, for a job.

        Raises:
            SourceNotFound: the source was deleted.
            Unavailable: the token cannot be decrypted.
        """
        source = self.get(session, tenant, source_id)
        return OpenSource(
            id=source.id,
            tenant=source.tenant,
            kind=source.kind,
            space=source.space,
            url=source.url,
            token=None if source.token is None else self._secrets.decrypt(source.token),
            importance=source.importance,
            base_model=source.base_model,
            filters=Filters.of(source.filters),
            on_delete=source.on_delete,
            updated_at=source.updated_at,
            exclude=tuple(source.exclude or ()),
            fingerprints=source.fingerprints,
        )

    def _poll_if_due(self, session: Writer, source: SourceRecord) -> SourceRecord:
        """Enqueue a poll that is due at once, without waiting for the scheduler."""
        now = self._now()
        if source.next_poll_at is None or source.next_poll_at > now:
            return source
        self._sync.sync_hub(session, source.tenant, source.id, space=source.space)
        sources.put_off_poll(session, source, now)
        return sources.get_source(session, source.tenant, source.id)


def _fitting(kind: str, given: Mapping[str, Any]) -> Filters:
    """The filters, if they apply to this kind of hub."""
    filters = Filters.of(given)
    refusal = HUB_KINDS[kind].owners_refusal
    if refusal is not None and filters.owners:
        raise InvalidParameter(refusal, field="filters.owners")
    return filters


def _with_next_poll(
    source: SourceRecord, filters: Filters, *, asked: bool, now: datetime
) -> SourceRecord:
    """The source with its next poll due at once, or without polls where it cannot be polled.

    Args:
        asked: the client asked for polls, so an impossible one is an error.
    """
    why = _why_not_polled(source, filters)
    if why is not None and asked:
        raise InvalidParameter(f"poll_seconds: {why}", field="poll_seconds")
    if why is not None or source.poll_seconds is None:
        return replace(source, poll_seconds=None, next_poll_at=None)
    return replace(source, next_poll_at=now)


def _why_not_polled(source: SourceRecord, filters: Filters) -> str | None:
    """Why a source cannot be polled; None if it can."""
    if source.url is None:
        return "without a url there is nothing to poll"
    if urlsplit(source.url).hostname in PUBLIC_HOSTS and filters.named_owners is None:
        return (
            "a poll lists the models of some owners, not those of the whole public hub: give "
            'filters such as {"owners": ["org"]} or {"repos": ["org/*"]}'
        )
    return None


def _refuse_to_exclude_all(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if set(pattern) <= {"*", "?"} and "*" in pattern and pattern.count("?") <= 1:
            raise InvalidParameter(
                f"exclude: {pattern!r} matches every tensor, so that nothing would be left to "
                f"compare: name the tensors to leave out, such as '*.running_*'",
                field="exclude",
            )


def _refuse_homeless_token(url: str | None, token: str | None) -> None:
    if token is not None and url is None:
        raise InvalidParameter("token: it is for the hub at url, and there is none", field="token")


def _refuse_to_send_elsewhere(source: SourceRecord, given: Mapping[str, Any]) -> None:
    """Refuse to send a stored token to another host: its owner gave it for the present one."""
    url = given.get("url", source.url)
    if source.token is None or url is None or source.url is None or "token" in given:
        return
    if web_origin(url) != web_origin(source.url):
        raise InvalidParameter(
            "token: the one that is stored was given for another host: give one for this, or null",
            field="token",
        )
