"""The event that a model has the weights of another, as it is written into the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from app.infra.db.database import Writer
from app.models.catalog.records import ModelRecord
from app.models.spaces.records import SpaceRecord
from app.webhooks.outbox import MODEL_DUPLICATE, Outbox, Subject
from modelkin.types.models import DuplicateModel

__all__ = ["MAX_COPIES", "weights_repeated"]

MAX_COPIES: Final = 10
"""Models that an event names."""


def weights_repeated(
    outbox: Outbox,
    session: Writer,
    space: SpaceRecord,
    model: ModelRecord,
    digest: str,
    others: Sequence[DuplicateModel],
) -> None:
    """Write that a model has the weights of others, if a subscription asks for it."""
    tenant = outbox.find_interested_tenant(session, space, MODEL_DUPLICATE)
    if tenant is None:
        return
    payload = {
        "space": space.name,
        "model": model.name,
        "revision": model.revision,
        "weights": digest,
        "same_as": [{"space": o.space, "model": o.model} for o in others[:MAX_COPIES]],
        "more": len(others) > MAX_COPIES,
        "url": f"/v1/duplicates?space={quote(space.name)}&model={quote(model.name, safe='/')}",
    }
    subject = Subject(model.id, model.name, model.revision, model.tags)
    outbox.add(session, tenant, space, MODEL_DUPLICATE, [(subject, payload)])
