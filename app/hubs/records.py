"""Records of sources, hub events and the models of a hub: plain frozen values.

Secrets stay encrypted in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.tenancy.auth.records import Tenant

__all__ = [
    "HubEventRecord",
    "HubKind",
    "Importance",
    "OnDelete",
    "Outcome",
    "Place",
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
        id: opaque; ids sort in the order of creation.
        space: the space of its models, as far as their layout is that of the space.
        url: of the hub; None where hub events are only recorded.
        secret: verifies hub events, encrypted.
        token: the access token for the hub, encrypted.
        importance: ``weight`` or ``delta`` alone; None for the weights of every model, and for its
            delta too where a base is known.
        base_model: the base of ``delta`` for models that declare none; its name on the hub.
        exclude: patterns of the tensors that are left out of supports; None for none.
        filters: the JSON of :class:`app.hubs.filters.Filters`.
        on_delete: whether a model deleted on the hub is deleted here, too.
        poll_seconds: how often the hub's listing is compared; None for never.
        last_refusal: ``{"at", "detail"}`` of the last event with a wrong secret.
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
    exclude: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class HubEventRecord:
    """A hub event: an incoming webhook whose signature or secret was valid.

    Attributes:
        event_id: the hub's id of it; where the hub sent none, a digest of the body.
        event: its kind, ``repo.content.update`` or ``model_version.created``.
        model: whose; None where it named none.
        revision: the revision that it named, for people: ingestion asks the hub.
        outcome: whether it was enqueued, ignored or recorded, and ``reason`` why.
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
class Place:
    """Where a hub's model is stored: its weights, its delta, or both, under one name.

    Attributes:
        model: the name in both spaces.
        space: of the support of its weights; None without one.
        delta_space: of the support of its difference from its base; None without one.
    """

    model: str
    space: str | None = None
    delta_space: str | None = None


@dataclass(frozen=True, slots=True)
class SeenModel:
    """The last known state of a model on a source's hub.

    Attributes:
        revision: the revision seen last; "" to sync it again; None where the model is gone or
            was never seen.
        listed: it was in the last listing, or is newer than that.
        placed: it is stored here.
        tags: the digest of its tags; None where they were not seen.
    """

    name: str
    revision: str | None
    listed: bool
    placed: bool
    tags: str | None = None
