"""Records of sources, hub events and the models of a hub: plain frozen values.

Secrets stay encrypted in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from app.tenancy.auth.records import Tenant

__all__ = [
    "UNREAD",
    "FingerprintCounts",
    "HubEventRecord",
    "ImportanceName",
    "OnDelete",
    "Outcome",
    "Place",
    "SeenModel",
    "SourceRecord",
]

ImportanceName = Literal["delta", "weight"]
UNREAD: Final = "unread"
"""The code of a model without a file that is read, such as one of pickles alone."""
OnDelete = Literal["keep", "remove"]
Outcome = Literal["enqueued", "ignored", "recorded"]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source as the database knows it.

    Attributes:
        id: an opaque id; ids sort in the order of creation.
        kind: a name of :data:`app.hubs.kinds.HUB_KINDS`.
        space: the space of its models whose layout is that of the space.
        url: the URL of the hub; None where hub events are only recorded.
        secret: the secret that verifies hub events, encrypted.
        token: the access token for the hub, encrypted.
        importance: ``weight`` or ``delta`` alone; None for the weights of every model, and also for
            its difference if a base is known.
        base_model: the name on the hub of the base of ``delta``, for models that declare none.
        exclude: patterns of the tensors that are left out of supports; None for none.
        filters: the JSON of :class:`app.hubs.filters.Filters`.
        on_delete: whether a model deleted on the hub is deleted here, too.
        poll_seconds: the interval of comparing the hub's listing; None for never.
        last_refusal: the last event with a wrong secret, as ``{"at", "detail"}``.
        last_error: the last failure of a poll or ingestion, as ``{"at", "code", "detail"}``.
        last_poll: the findings of the last poll, ``{"models", "enqueued", ...}``.
        fingerprints: whether the models get fingerprints.
        backfill_per_hour: how many models an hour are read again that have none; None for no limit.
        next_backfill_at: when the next of these may be; None for never.
    """

    id: str
    tenant: Tenant
    kind: str
    space: str
    url: str | None
    secret: bytes = field(repr=False)
    token: bytes | None = field(repr=False)
    importance: ImportanceName | None
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
    fingerprints: bool = True
    backfill_per_hour: int | None = None
    next_backfill_at: datetime | None = None

    @property
    def has_failed(self) -> bool:
        """Whether there was an error since the last poll that ended."""
        last = self.last_poll_at or self.created_at
        return self.last_error is not None and datetime.fromisoformat(self.last_error["at"]) > last


@dataclass(frozen=True, slots=True)
class HubEventRecord:
    """A hub event: an incoming webhook whose signature or secret was valid.

    Attributes:
        event_id: the hub's id of the event; if the hub sent none, a digest of the body.
        event: the kind of event, ``repo.content.update`` or ``model_version.created``.
        model: the model's name; None if the event named none.
        revision: the revision that the event named, for people: ingestion asks the hub.
        outcome: whether it was enqueued, ignored or recorded; ``reason`` says why.
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
    """The place of a hub's model here: its weights, its difference, or both, under one name.

    Attributes:
        model: the name in both spaces.
        space: the space of the support of its weights; None without one.
        delta_space: the space of the support of its difference from its base; None without one.
    """

    model: str
    space: str | None = None
    delta_space: str | None = None


@dataclass(frozen=True, slots=True)
class SeenModel:
    """The last known state of a model on a source's hub.

    Attributes:
        revision: the revision seen last; "" to sync it again; None if the model is gone or was
            never seen.
        listed: whether it was in the last listing, or is newer than that.
        placed: whether it is stored here.
        tags: the digest of its tags; None if they were not seen.
        changed_at: when it was changed last on the hub; None if the hub has not said so.
    """

    name: str
    revision: str | None
    listed: bool
    placed: bool
    tags: str | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FingerprintCounts:
    """How many models of a source's hub were read for their fingerprints.

    Attributes:
        read: those that have one.
        without: those that can have none, such as adapters.
        waiting: those that are to be read.
        unread: those among all that have no file that is read, such as pickles alone.
    """

    read: int = 0
    without: int = 0
    waiting: int = 0
    unread: int = 0
