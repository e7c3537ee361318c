"""The event that an anatomy says something else than before, as it is written into the outbox."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from app.anatomy.records import ModelAnatomy, Summary
from app.fingerprints.events import lines_changed
from app.fingerprints.records import FingerprintRecord
from app.infra.db.database import Writer
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import ANATOMY_CHANGED, Outbox

__all__ = ["anatomy_changed"]

_MOST_NAMED: Final = 10
"""Models that an event names of each sort."""


def anatomy_changed(
    outbox: Outbox,
    session: Writer,
    tenant: Tenant,
    record: FingerprintRecord,
    found: ModelAnatomy,
    before: Summary | None,
    now: Summary,
    *,
    is_of_kin: bool,
) -> None:
    """Write that a model has another verdict or first parent, if a subscription asks for it.

    Further relatives are no news: a popular base gets some every day.

    Args:
        is_of_kin: whether another fingerprint has changed, and not its own: then its lineage may
            say something else, too.
    """
    if _says(before) == _says(now):
        return
    if is_of_kin:
        lines_changed(outbox, session, tenant, [record], are_bases=False)
    parents = found.anatomy.parents
    copies = [each.model for each in parents if each.verdict == "copy"]
    payload: dict[str, Any] = {
        "model": record.name,
        "revision": record.revision,
        "verdict": now.verdict,
        "previous_verdict": None if before is None else before.verdict,
        "parents": [
            {
                "model": each.model,
                "verdict": each.verdict,
                "share_of_lines": round(each.share_of_lines, 6),
                "stated_by": found.records[each.model].stated_by,
            }
            for each in parents[:_MOST_NAMED]
        ],
        "copies": copies[:_MOST_NAMED],
        "more": max(0, len(parents) - _MOST_NAMED),
        "sentences": list(found.anatomy.sentences),
        "url": f"/v1/fingerprints/{quote(record.name, safe='/')}/anatomy",
    }
    outbox.add_of_tenant(session, tenant, ANATOMY_CHANGED, [(record.name, payload)])


def _says(summary: Summary | None) -> tuple[str, tuple[int, ...]]:
    """What is said of a model: the same of one without an anatomy as of one of no parents."""
    if summary is None:
        return "unknown", ()
    return str(summary.verdict), summary.parents[:1]
