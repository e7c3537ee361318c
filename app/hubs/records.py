"""The records of sources: the hub that is followed, what it delivered, what was seen there.

Plain frozen values, as those of ``ports``. What is encrypted stays so in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.auth.records import Tenant

__all__ = [
    "HubEventRecord",
    "HubKind",
    "Importance",
    "OnDelete",
    "Outcome",
    "SeenModel",
    "SourceRecord",
]

HubKind = Literal["huggingface", "mlflow"]
Importance = Literal["delta", "weight"]
OnDelete = Literal["keep", "remove"]
Outcome = Literal["enqueued", "ignored", "recorded"]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source as the database knows it.

    Attributes:
        id: opaque; ids of later ones sort after those of earlier ones.
        space: where its models go, as far as their layout is that of the space.
        url: of the hub; None where deliveries are only recorded.
        secret: that deliveries are vouched for with, encrypted; ``token`` that the hub lets in by.
        importance: how importance is made of a checkpoint; None leaves it to what is known of it.
        base_model: what ``delta`` is taken against where a model declares nothing; on the hub.
        filters: which of the hub's models are followed, as ``services.filters`` has them.
        on_delete: whether a model that is gone on the hub goes here, too.
        poll_seconds: how often the hub is held against what is known; None for never.
        last_refusal: ``{"at", "detail"}`` of the last delivery that nothing vouched for.
        last_error: ``{"at", "code", "detail"}`` of the last poll or ingestion that failed.
        last_poll: what the last poll found, ``{"models", "enqueued", ...}``.
    """

    id: str
    tenant: Tenant
    kind: HubKind
    space: str
    url: str | None
    secret: bytes = field(repr=False)
    token: bytes | None = field(repr=False)
    importance: Importance | None
    base_model: str | None
    filters: Mapping[str, Any]
    on_delete: OnDelete
    poll_seconds: int | None
    created_at: datetime
    updated_at: datetime
    last_event_at: datetime | None = None
    last_refusal: Mapping[str, Any] | None = None
    last_error: Mapping[str, Any] | None = None
    last_poll: Mapping[str, Any] | None = None
    last_poll_at: datetime | None = None
    next_poll_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HubEventRecord:
    """A hub event: an incoming webhook whose signature or secret was valid.

    Attributes:
        event_id: the hub's id of it; where the hub sent none, a digest of the body.
        event: its kind, ``repo.content.update`` or ``model_version.created``.
        model: whose; None where it named none.
        revision: what it said the model is at, for people: ingestion asks the hub.
        outcome: what became of it, and ``reason`` why.
        job: the id of the job that synchronizes the model.
    """

    source_id: str
    event_id: str
    event: str
    model: str | None
    revision: str | None
    outcome: Outcome
    reason: str | None
    job: str | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class SeenModel:
    """What was last seen of a model on a source's hub.

    Attributes:
        revision: what it was at; "" to have it looked at again; None where it is gone, or was
            never seen.
        listed: it was in the last listing that was read, or is newer than that.
        placed: it is stored here.
    """

    name: str
    revision: str | None
    listed: bool
    placed: bool
