"""Events of learngenes, as they are written into the outbox."""

from __future__ import annotations

from app.infra.db.database import Writer
from app.models.learngenes.records import LearngeneRecord, shown_cluster
from app.models.spaces.records import SpaceRecord
from app.webhooks.outbox import LEARNGENE_PUBLISHED, Outbox

__all__ = ["learngene_published"]


def learngene_published(
    outbox: Outbox, session: Writer, space: SpaceRecord, learngene: LearngeneRecord
) -> None:
    """Write that a cluster has a new version of its learngene."""
    tenant = outbox.find_interested_tenant(session, space, LEARNGENE_PUBLISHED)
    if tenant is None:
        return
    cluster = shown_cluster(learngene.cluster)
    payload = {
        "space": space.name,
        "cluster": cluster,
        "version": learngene.version,
        "clustering": learngene.clustering,
        "digest": learngene.digest,
        "bytes": learngene.size,
        "kept": learngene.kept,
        "members": learngene.members,
        "rounds": learngene.rounds,
        "url": f"/v1/spaces/{space.name}/clusters/{cluster}/learngene?version={learngene.version}",
    }
    outbox.add(session, tenant, space, LEARNGENE_PUBLISHED, [(None, payload)])
