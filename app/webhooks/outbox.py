"""The outbox of events: each event is written in the transaction of the change that it reports.

Without a subscription, a change costs one small query. ``app.kinship.notifications`` fans each
event out to subscriptions, and ``delivery`` sends it. The features build the payloads of their own
events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from app.infra.db.database import Writer
from app.infra.db.ids import new_id
from app.jobs.service import JobService
from app.tenancy.auth.records import OwnedSpace, Tenant
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories import subscriptions

__all__ = [
    "ANATOMY_CHANGED",
    "CLUSTERING_COMPLETED",
    "DECLARED",
    "FINGERPRINT_REMOVED",
    "FINGERPRINT_STORED",
    "JOB_KIND",
    "LEARNGENE_PUBLISHED",
    "LINEAGE_MISMATCH",
    "LINES_CHANGED",
    "MERGE_COMPLETED",
    "MERGE_FAILED",
    "MERGE_JOINING",
    "MODEL_DUPLICATE",
    "NEIGHBORS_CHANGED",
    "NO_SPACE",
    "NO_SPACE_ID",
    "REPORT_READY",
    "SUPPORT_STORED",
    "Outbox",
    "Subject",
    "dedup_key",
    "enqueue_of_tenant",
]

SUPPORT_STORED: Final = "support.stored"
NEIGHBORS_CHANGED: Final = "neighbors.changed"
CLUSTERING_COMPLETED: Final = "clustering.completed"
LINEAGE_MISMATCH: Final = "lineage.mismatch"
MERGE_JOINING: Final = "merge.joining"
MERGE_COMPLETED: Final = "merge.completed"
MERGE_FAILED: Final = "merge.failed"
LEARNGENE_PUBLISHED: Final = "learngene.published"
MODEL_DUPLICATE: Final = "model.duplicate"
ANATOMY_CHANGED: Final = "anatomy.changed"
FINGERPRINT_STORED: Final = "fingerprint.stored"
FINGERPRINT_REMOVED: Final = "fingerprint.removed"
REPORT_READY: Final = "report.ready"
DECLARED: Final = "base.declared"
"""A model declares another base, or its base has another content.

It is not delivered, but the lineage of the model is checked.
"""
LINES_CHANGED: Final = "lines.changed"
"""A fingerprint, its statements or its kin are new. As ``base.declared``, it is not delivered."""
JOB_KIND: Final = "events"
"""The kind of the fan-out jobs."""
NO_SPACE: Final = ""
"""The space of events of none, which no space is named: subscriptions to one get no such event."""
NO_SPACE_ID: Final = 0
"""The id of that space."""

_SUBSCRIBED_TYPES: Final = {
    SUPPORT_STORED: (SUPPORT_STORED, NEIGHBORS_CHANGED, LINEAGE_MISMATCH),
    DECLARED: (LINEAGE_MISMATCH,),
    CLUSTERING_COMPLETED: (CLUSTERING_COMPLETED,),
    MERGE_JOINING: (MERGE_JOINING,),
    MERGE_COMPLETED: (MERGE_COMPLETED,),
    MERGE_FAILED: (MERGE_FAILED,),
    LEARNGENE_PUBLISHED: (LEARNGENE_PUBLISHED,),
    MODEL_DUPLICATE: (MODEL_DUPLICATE,),
    ANATOMY_CHANGED: (ANATOMY_CHANGED,),
    LINES_CHANGED: (LINEAGE_MISMATCH,),
    FINGERPRINT_STORED: (FINGERPRINT_STORED,),
    FINGERPRINT_REMOVED: (FINGERPRINT_REMOVED,),
    REPORT_READY: (REPORT_READY,),
}
"""The subscribed types, by event type, that an event may lead to. Without one, none is written."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that an event is about, as it was at that time."""

    id: int
    name: str
    revision: int
    tags: Sequence[str]


class Outbox:
    """Writes events in the transaction of the change that they report.

    Args:
        jobs: the service that enqueues the fan-out of events; the kind is registered by then.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs

    def find_interested_tenant(
        self, session: Writer, space: OwnedSpace, event_type: str
    ) -> Tenant | None:
        """The tenant of a space, if a subscription asks for an event of this type; else None."""
        return subscriptions.find_interested_tenant(
            session, space.tenant_id, space.name, _SUBSCRIBED_TYPES[event_type]
        )

    def add(
        self,
        session: Writer,
        tenant: Tenant,
        space: OwnedSpace,
        event_type: str,
        events: Iterable[tuple[Subject | None, Mapping[str, Any]]],
    ) -> None:
        """Write events of one type, and enqueue their fan-out.

        Args:
            tenant: the space's tenant, from :meth:`find_interested_tenant`.
            events: pairs of a model, or None for the space itself, and a payload.
        """
        written = [_event(space, event_type, subject, payload) for subject, payload in events]
        event_repository.insert_events(session, written)
        key = dedup_key(space.id)
        self._jobs.enqueue(session, tenant, JOB_KIND, {}, space=space, dedup_key=key)

    def add_of_tenant(
        self,
        session: Writer,
        tenant: Tenant,
        event_type: str,
        events: Iterable[tuple[str | None, Mapping[str, Any]]],
    ) -> None:
        """Write events of no space, if a subscription to all spaces asks for them.

        What lines say may also be news of a model of a space, so any subscription may ask for that.

        Args:
            events: pairs of the name of a model, or None for the tenant itself, and a payload.
        """
        wanted = _SUBSCRIBED_TYPES[event_type]
        if event_type == LINES_CHANGED:
            is_wanted = subscriptions.any_interested(session, tenant, wanted)
        else:
            found = subscriptions.find_interested_tenant(session, tenant.id, NO_SPACE, wanted)
            is_wanted = found is not None
        if not is_wanted:
            return
        written = [
            _event_of(tenant.id, event_type, payload, model=name) for name, payload in events
        ]
        event_repository.insert_events(session, written)
        enqueue_of_tenant(session, self._jobs, tenant)


def enqueue_of_tenant(session: Writer, jobs: JobService, tenant: Tenant) -> None:
    """Enqueue the fan-out of a tenant's events of no space, which one job has for itself."""
    parameters = {"in_no_space": True}
    jobs.enqueue(session, tenant, JOB_KIND, parameters, dedup_key="no space")


def dedup_key(space_id: int | None) -> str:
    """The dedup key of a space's fan-out job. A job for each space avoids deadlocks between spaces.

    Args:
        space_id: None for all spaces of a tenant.
    """
    return "everywhere" if space_id is None else f"space {space_id}"


def _event(
    space: OwnedSpace, event_type: str, subject: Subject | None, payload: Mapping[str, Any]
) -> event_repository.Event:
    of = {"space_id": space.id, "space": space.name}
    if subject is None:
        return _event_of(space.tenant_id, event_type, payload, **of)
    of_model = {"model": subject.name, "model_id": subject.id, "revision": subject.revision}
    event = _event_of(space.tenant_id, event_type, payload, **of, **of_model)
    return replace(event, tags=list(subject.tags))


def _event_of(
    tenant_id: int, event_type: str, payload: Mapping[str, Any], **of: Any
) -> event_repository.Event:
    """An event of no model and no space, unless ``of`` names them."""
    now = datetime.now(UTC)
    nothing = {
        "space_id": NO_SPACE_ID,
        "space": NO_SPACE,
        "model": None,
        "model_id": None,
        "revision": None,
    }
    return event_repository.Event(
        id=new_id(now),
        tenant_id=tenant_id,
        type=event_type,
        tags=[],
        data=dict(payload),
        fanned_out=False,
        neighbors_compared=False,
        failures=0,
        due_at=None,
        created_at=now,
        **{**nothing, **of},
    )
