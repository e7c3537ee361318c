"""What the client says of subscriptions to events, and of what was sent to their receivers.

What a receiver does with an event is in :mod:`modelkin.webhooks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["Delivery", "DeliveryAttempt", "Subscription"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """Who is told of which events.

    Attributes:
        id: what the service calls it.
        url: where events are sent.
        events: their types.
        space: of which they are; None for all. ``model`` and ``tag`` likewise.
        threshold: the similarity that a pair has to cross, of ``neighbors.changed``.
        enabled: events are sent; ``disabled_reason`` says why not, where the service decided so.
        previous_secret_until: until when any secret from before a rotation signs as well.
        failures: attempts that failed since one did not; ``failing_since`` is of the first.
        paused_until: nothing is sent before: its receiver asked for that, or did not answer.
        last_failure: what was wrong then.
        secret: ``whsec_...``, in the answer that made it and never again; it is not shown.
    """

    id: str
    url: str
    events: tuple[str, ...]
    space: str | None
    model: str | None
    tag: str | None
    threshold: float | None
    description: str | None
    enabled: bool
    disabled_reason: str | None
    previous_secret_until: datetime | None
    failures: int
    failing_since: datetime | None
    paused_until: datetime | None
    last_success_at: datetime | None
    last_failure: str | None
    created_at: datetime
    updated_at: datetime
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One try to deliver.

    Attributes:
        at: when.
        seconds: that it took.
        status: of the answer; None where there was none.
        detail: what the receiver said, or why there is nothing that it said.
    """

    at: datetime
    seconds: float
    status: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one subscription.

    Attributes:
        id: the ``webhook-id``, the same for every attempt and replay.
        type: of the event.
        event: its id, the same for all who are told of it.
        state: ``"pending"``, ``"succeeded"`` or ``"failed"``.
        attempts: since it began, or was last replayed.
        next_attempt_at: when it is tried again.
        log: the last attempts, the oldest first.
        payload: the body that is sent and signed.
    """

    id: str
    subscription: str
    type: str
    event: str
    state: str
    attempts: int
    next_attempt_at: datetime | None
    log: tuple[DeliveryAttempt, ...]
    payload: str
    created_at: datetime
    finished_at: datetime | None
