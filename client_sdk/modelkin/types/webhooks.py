"""Webhook subscriptions and deliveries. Receivers verify events with :mod:`modelkin.webhooks`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.vocabulary import DeliveryState, EventType

__all__ = ["Delivery", "DeliveryAttempt", "Subscription"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Subscription(Printed):
    """The events that the service sends to one URL.

    Attributes:
        id: opaque.
        url: where the receiver takes events.
        events: their types.
        space: only events of this space; None for all.
        model: only events about this model, and pairs of ``neighbors.changed`` that it is in;
            None for all. ``tag`` likewise, of models that carry it.
        threshold: for ``neighbors.changed``, the similarity that a pair has to cross.
        enabled: whether events are sent; ``disabled_reason`` says why the service stopped.
        previous_secret_until: the time until which the secret before a rotation signs as well.
        failures: failed attempts since the last success; the first was at ``failing_since``.
        paused_until: the service sends nothing before, because the receiver asked for a pause or
            did not answer.
        last_failure: the reason of the last failed attempt.
        secret: ``whsec_...``, only in the answer that created it; ``repr`` leaves it out.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("id", "url", "events", "space", "enabled", "last_success_at", "last_failure"),
    )
    id: str
    url: str
    events: tuple[EventType, ...]
    space: str | None = None
    model: str | None = None
    tag: str | None = None
    threshold: float | None = None
    description: str | None = None
    enabled: bool
    disabled_reason: str | None = None
    previous_secret_until: Moment | None = None
    failures: int
    failing_since: Moment | None = None
    paused_until: Moment | None = None
    last_success_at: Moment | None = None
    last_failure: str | None = None
    created_at: Moment
    updated_at: Moment
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """One attempt to send a delivery.

    Attributes:
        at: when it started.
        seconds: how many seconds it took.
        status: the status of the answer; None where none came.
        detail: the receiver's answer, or why none came.
    """

    at: Moment
    seconds: float
    status: int | None = None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Delivery(Printed):
    """One event for one subscription.

    Attributes:
        id: the ``webhook-id``, the same for every attempt and replay.
        type: ``"support.stored"`` or another type of event.
        event: the id of the event, the same for all subscriptions.
        model: the model that it is about; None for an event of a space, and for a ping.
        state: ``"pending"``, ``"succeeded"`` or ``"failed"``.
        attempts: since it was created or last replayed.
        next_attempt_at: the time of the next attempt.
        log: the last attempts, the oldest first.
        payload: the body that is sent and signed.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("id", "type", "model", "state", "attempts", "created_at", "next_attempt_at"),
    )
    id: str
    subscription: str
    type: EventType
    event: str
    model: str | None = None
    state: DeliveryState
    attempts: int
    next_attempt_at: Moment | None = None
    log: tuple[DeliveryAttempt, ...]
    payload: str
    created_at: Moment
    finished_at: Moment | None = None
