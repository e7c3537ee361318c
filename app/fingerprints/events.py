"""Events of fingerprints, as they are written into the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.fingerprints.records import FingerprintRecord
from app.infra.db.database import Writer
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import FINGERPRINT_REMOVED, FINGERPRINT_STORED, LINES_CHANGED, Outbox
from modelkin._validation import quote_whole_name

__all__ = ["fingerprint_removed", "fingerprints_stored", "lines_changed"]


def fingerprints_stored(
    outbox: Outbox, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
) -> None:
    """Write that models have new fingerprints; other statements about one are no event."""
    told = [(record.name, _payload(record)) for record in records]
    if told:
        outbox.add_of_tenant(session, tenant, FINGERPRINT_STORED, told)


def lines_changed(
    outbox: Outbox,
    session: Writer,
    tenant: Tenant,
    records: Sequence[FingerprintRecord],
    *,
    are_bases: bool = True,
) -> None:
    """Write that lineages may say something else than before.

    Args:
        are_bases: whether those of the models that declare these may, too.
    """
    told = [(record.name, {"model": record.name, "is_base": are_bases}) for record in records]
    if told:
        outbox.add_of_tenant(session, tenant, LINES_CHANGED, told)


def fingerprint_removed(
    outbox: Outbox, session: Writer, tenant: Tenant, record: FingerprintRecord
) -> None:
    """Write that a model has no fingerprint any more."""
    told = [(record.name, _payload(record))]
    outbox.add_of_tenant(session, tenant, FINGERPRINT_REMOVED, told)


def _payload(record: FingerprintRecord) -> dict[str, Any]:
    return {
        "model": record.name,
        "revision": record.revision,
        "digest": record.digest,
        "stated_by": record.stated_by,
        "url": f"/v1/fingerprints/{quote_whole_name(record.name)}",
    }
