"""Events of clusterings, as they are written into the outbox."""

from __future__ import annotations

from app.infra.db.database import Writer
from app.kinship.clustering.records import ClusteringRecord
from app.models.spaces.records import SpaceRecord
from app.webhooks.outbox import CLUSTERING_COMPLETED, Outbox

__all__ = ["clustering_completed"]


def clustering_completed(
    outbox: Outbox, session: Writer, space: SpaceRecord, clustering: ClusteringRecord
) -> None:
    """Write that a clustering was recorded."""
    tenant = outbox.find_interested_tenant(session, space, CLUSTERING_COMPLETED)
    if tenant is None:
        return
    payload = {
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
        "note": clustering.note,
        "url": f"/v1/spaces/{space.name}/clusterings/{clustering.id}",
    }
    outbox.add(session, tenant, space, CLUSTERING_COMPLETED, [(None, payload)])
