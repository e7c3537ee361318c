"""Events: what subscribers can be told of, written down in the transaction that it comes with.

:class:`Outbox` is what the use cases that change something know of subscribers: without any, one
small question a change. Who hears of an event, and what else follows from it, is ``telling``'s
business; sending is ``deliveries``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from app.auth.records import Tenant
from app.catalog.records import ModelRecord
from app.clustering.records import ClusteringRecord
from app.infra.db.database import Writer
from app.infra.db.ids import new_id
from app.jobs.service import JobService
from app.spaces.records import SpaceRecord
from app.webhooks import event_repository, repository

__all__ = [
    "CLUSTERING_COMPLETED",
    "DECLARED",
    "KIND",
    "LINEAGE_MISMATCH",
    "NEIGHBORS_CHANGED",
    "SUPPORT_STORED",
    "TYPES",
    "Outbox",
    "dedup_key",
    "model_url",
]

SUPPORT_STORED: Final = "support.stored"
NEIGHBORS_CHANGED: Final = "neighbors.changed"
CLUSTERING_COMPLETED: Final = "clustering.completed"
LINEAGE_MISMATCH: Final = "lineage.mismatch"
TYPES: Final = (SUPPORT_STORED, NEIGHBORS_CHANGED, CLUSTERING_COMPLETED, LINEAGE_MISMATCH)
"""What can be subscribed to."""
DECLARED: Final = "base.declared"
"""Another base of a model was declared: nobody is told, but its lineage is looked at."""
KIND: Final = "events"
"""The kind of the jobs that find out who hears of what."""


class Outbox:
    """Where changes write down what they are, for whoever has subscribed to it.

    Args:
        jobs: where it is enqueued that there is something to tell; the kind is registered by then.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs

    def stored(self, session: Writer, space: SpaceRecord, models: Sequence[ModelRecord]) -> None:
        """Models have got new contents; those that are supports are told of."""
        supports = [model for model in models if model.kind == "support"]
        types = (SUPPORT_STORED, NEIGHBORS_CHANGED, LINEAGE_MISMATCH)
        tenant = self._listening(session, space, *types) if supports else None
        if tenant is None:
            return
        happened = [
            _event(space, SUPPORT_STORED, _told_of(space, model), model) for model in supports
        ]
        self._write(session, tenant, space, happened)

    def declared(self, session: Writer, space: SpaceRecord, model: ModelRecord) -> None:
        """A model is said to be made from another base than before."""
        if model.base_model is None or model.kind != "support":
            return
        tenant = self._listening(session, space, LINEAGE_MISMATCH)
        if tenant is not None:
            told = _told_of(space, model)
            self._write(session, tenant, space, [_event(space, DECLARED, told, model)])

    def clustered(self, session: Writer, space: SpaceRecord, clustering: ClusteringRecord) -> None:
        """A clustering was recorded."""
        tenant = self._listening(session, space, CLUSTERING_COMPLETED)
        if tenant is None:
            return
        told = {
            "space": space.name,
            "clustering": clustering.id,
            "number": clustering.number,
            "version": clustering.version,
            "algorithm": clustering.algorithm,
            "models": clustering.models,
            "clusters": clustering.clusters,
            "noise": clustering.noise,
            "previous": clustering.previous,
            "agreement": clustering.agreement,
            "url": f"/v1/spaces/{space.name}/clusterings/{clustering.id}",
        }
        self._write(session, tenant, space, [_event(space, CLUSTERING_COMPLETED, told)])

    def _listening(self, session: Writer, space: SpaceRecord, *types: str) -> Tenant | None:
        """The tenant, if it has asked for any of these types."""
        return repository.who_listens(session, space.tenant_id, space.name, types)

    def _write(
        self,
        session: Writer,
        tenant: Tenant,
        space: SpaceRecord,
        happened: Sequence[event_repository.Event],
    ) -> None:
        event_repository.insert_events(session, happened)
        key = dedup_key(space.id)
        self._jobs.enqueue(session, tenant, KIND, {}, space=space, dedup_key=key)


def dedup_key(space_id: int | None, *, again: bool = False) -> str:
    """A job for each space: whoever holds its lock waits for nobody who holds another's.

    Args:
        space_id: None for all of a tenant.
        again: the key of a job that goes on where the one with the other key ends.
    """
    where = "everywhere" if space_id is None else f"space {space_id}"
    return f"{where}, again" if again else where


def model_url(space: str, model: str) -> str:
    """Where a model is read, below the address of the service."""
    return f"/v1/spaces/{space}/models/{quote(model, safe='/')}"


def _told_of(space: SpaceRecord, model: ModelRecord) -> dict[str, Any]:
    return {
        "space": space.name,
        "model": model.name,
        "revision": model.revision,
        "version": model.version,
        "support_size": model.support_size,
        "digest": model.digest,
        "url": model_url(space.name, model.name),
    }


def _event(
    space: SpaceRecord, kind: str, data: Mapping[str, Any], model: ModelRecord | None = None
) -> event_repository.Event:
    now = datetime.now(UTC)
    return event_repository.Event(
        id=new_id(now),
        tenant_id=space.tenant_id,
        type=kind,
        space_id=space.id,
        space=space.name,
        model=None if model is None else model.name,
        model_id=None if model is None else model.id,
        revision=None if model is None else model.revision,
        tags=[] if model is None else list(model.tags),
        data=dict(data),
        fanned_out=False,
        neighbors_compared=False,
        failures=0,
        due_at=None,
        created_at=now,
    )
