"""Events of merges, as they are written into the outbox."""

from __future__ import annotations

from app.infra.db.database import Writer
from app.merges.records import MergeRecord
from app.models.spaces.records import SpaceRecord
from app.webhooks.outbox import MERGE_COMPLETED, MERGE_FAILED, MERGE_JOINING, Outbox

__all__ = ["merge_changed"]

_TYPES = {"joining": MERGE_JOINING, "done": MERGE_COMPLETED, "failed": MERGE_FAILED}


def merge_changed(outbox: Outbox, session: Writer, space: SpaceRecord, merge: MergeRecord) -> None:
    """Write that a merge awaits its members, is done, or has failed."""
    event_type = _TYPES[merge.state]
    tenant = outbox.find_interested_tenant(session, space, event_type)
    if tenant is None:
        return
    payload = {
        "space": space.name,
        "merge": merge.name,
        "state": merge.state,
        "digest": merge.digest,
        "failure": merge.failure,
        "due_at": None if merge.due_at is None else merge.due_at.isoformat(),
        "url": f"/v1/spaces/{space.name}/merges/{merge.name}",
    }
    outbox.add(session, tenant, space, event_type, [(None, payload)])
