"""Events of models, as features write them into the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from app.infra.db.database import Writer
from app.models.catalog.records import ModelRecord
from app.models.spaces.records import SpaceRecord
from app.webhooks.outbox import DECLARED, SUPPORT_STORED, Outbox, Subject

__all__ = ["base_declared", "bases_changed", "supports_stored"]


def supports_stored(
    outbox: Outbox, session: Writer, space: SpaceRecord, models: Sequence[ModelRecord]
) -> None:
    """Write that models have got new contents; signatures alone are not events."""
    supports = [model for model in models if model.shown_kind != "signature"]
    if supports:
        _add(outbox, session, space, SUPPORT_STORED, supports)


def base_declared(outbox: Outbox, session: Writer, space: SpaceRecord, model: ModelRecord) -> None:
    """Write that a model is said to be made from another base than before."""
    if model.bases and model.kind == "support":
        _add(outbox, session, space, DECLARED, [model])


def bases_changed(
    outbox: Outbox, session: Writer, space: SpaceRecord, models: Sequence[ModelRecord]
) -> None:
    """Write that the bases of models have other contents than before."""
    supports = [model for model in models if model.kind == "support"]
    if supports:
        _add(outbox, session, space, DECLARED, supports)


def _add(
    outbox: Outbox,
    session: Writer,
    space: SpaceRecord,
    event_type: str,
    models: Sequence[ModelRecord],
) -> None:
    tenant = outbox.find_interested_tenant(session, space, event_type)
    if tenant is not None:
        events = ((_subject(model), _payload(space, model)) for model in models)
        outbox.add(session, tenant, space, event_type, events)


def _subject(model: ModelRecord) -> Subject:
    return Subject(model.id, model.name, model.revision, model.tags)


def _payload(space: SpaceRecord, model: ModelRecord) -> dict[str, Any]:
    return {
        "space": space.name,
        "model": model.name,
        "revision": model.revision,
        "version": model.version,
        "support_size": model.support_size,
        "digest": model.digest,
        "url": f"/v1/spaces/{space.name}/models/{quote(model.name, safe='/')}",
    }
