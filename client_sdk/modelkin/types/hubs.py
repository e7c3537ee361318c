"""What the client returns about sources: hubs whose models are followed, and what they delivered.

Frozen values like those of ``modelkin.types.spaces``, named and shaped as the service's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = ["Source", "HubEvent"]


@dataclass(frozen=True, slots=True)
class Source:
    """A hub whose models are followed; its secret and token are never told.

    Attributes:
        id: opaque.
        kind: ``"huggingface"`` or ``"mlflow"``.
        space: where its models go, as far as they have the space's layout.
        url: of the hub; None where deliveries are only recorded.
        has_token: whether there is one.
        importance: ``"delta"``, ``"weight"``, or None for whichever can be.
        base_model: the base of models that declare none.
        filters: ``repos``, ``owners`` and ``tags`` of the models that are followed.
        on_delete: ``"keep"`` or ``"remove"``: what becomes here of what is deleted there.
        poll_seconds: between two polls; None for never.
        hook: the path on the service where the hub is to deliver.
        last_refusal: ``{"at", "detail"}`` of the last delivery that nothing vouched for.
        last_error: ``{"at", "code", "detail"}`` of the last poll or look that failed.
        last_poll: what the last poll found: ``models``, ``new``, ``changed``, ``gone``.
    """

    id: str
    kind: str
    space: str
    url: str | None
    has_token: bool
    importance: str | None
    base_model: str | None
    filters: Mapping[str, Any] = field(hash=False)
    on_delete: str
    poll_seconds: int | None
    hook: str
    created_at: datetime
    updated_at: datetime
    last_delivery_at: datetime | None
    last_refusal: Mapping[str, Any] | None = field(hash=False)
    last_error: Mapping[str, Any] | None = field(hash=False)
    last_poll: Mapping[str, Any] | None = field(hash=False)
    last_poll_at: datetime | None
    next_poll_at: datetime | None


@dataclass(frozen=True, slots=True)
class HubEvent:
    """What a hub has delivered, and what became of it.

    Attributes:
        delivery_id: the hub's id of it, or a digest of its body.
        event: what it told, ``"repo.content.update"`` for one.
        model: whom it was about, by its name on the hub.
        revision: what it said the model is at.
        outcome: ``"enqueued"``, ``"ignored"`` or ``"recorded"``.
        reason: why nobody looks at the model; None if somebody does.
        job: the id of the job that does.
    """

    delivery_id: str
    event: str
    model: str | None
    revision: str | None
    outcome: str
    reason: str | None
    job: str | None
    received_at: datetime
