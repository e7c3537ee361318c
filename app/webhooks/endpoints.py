"""/v1/subscriptions: outgoing webhooks and their deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import Path, Query, Response

from app.infra.errors import (
    Conflict,
    DeliveryNotFound,
    QuotaExceeded,
    SecretKeyMissing,
    SubscriptionDisabled,
    SubscriptionNotFound,
)
from app.infra.http.answers import Answer, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.url_checks import UrlBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)
from app.tenancy.idempotency.dependencies import SecretOnce
from app.webhooks.schemas import (
    DeliveryOut,
    DeliveryPage,
    SubscriptionChange,
    SubscriptionCreated,
    SubscriptionNew,
    SubscriptionOut,
    SubscriptionPage,
)
from app.webhooks.service import SubscriptionService
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/subscriptions",
    tags=["subscriptions"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

SubscriptionId = Annotated[str, Path(description="the id of the subscription")]
DeliveryId = Annotated[str, Path(description="the id of the delivery")]
Overlap = Annotated[
    int,
    Query(
        ge=0, le=366 * 24 * 3600, description="seconds for which the previous secret still signs"
    ),
]
State = Annotated[
    Literal["pending", "succeeded", "failed"] | None,
    Query(description="only deliveries in this state"),
]


@routes.post(
    "",
    operation_id="create_subscription",
    summary="Subscribe a URL to events",
    refuses=(InvalidName, SecretKeyMissing, QuotaExceeded),
    status_code=201,
)
def create(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    received: UrlBody[SubscriptionNew],
    once: SecretOnce,
) -> Answer[SubscriptionCreated] | Response:
    """Subscribe a URL to events, signed by the rules of Standard Webhooks.

    Only this answer contains the signing secret.
    """
    body = received.read()
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        made, secret = subscriptions.create(session, context.tenant, body.to_subscription())
        created = SubscriptionCreated.with_secret(made, secret)
        location = {"Location": f"/v1/subscriptions/{made.id}"}
        return once.keep(session, Answer(created, 201, location))


@routes.get(
    "",
    operation_id="list_subscriptions",
    summary="List the subscribed URLs",
    refuses=(InvalidParameter,),
    response_model=SubscriptionPage,
)
def list_subscriptions(
    context: ReadingContext,
    subscriptions: Service[SubscriptionService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The subscriptions, newest first."""
    with context.reading() as session:
        page = subscriptions.list(session, context.tenant, limit=limit, cursor=cursor)
    return page_answer(map(SubscriptionOut.of, page.items), page.next_cursor)


@routes.get(
    "/{subscription}",
    operation_id="get_subscription",
    summary="Show a subscription and its receiver's answers",
    refuses=(SubscriptionNotFound, InvalidParameter),
)
def show(
    context: ReadingContext,
    subscriptions: Service[SubscriptionService],
    subscription: SubscriptionId,
) -> SubscriptionOut:
    """One subscription, and how its receiver has answered."""
    with context.reading() as session:
        return SubscriptionOut.of(subscriptions.get(session, context.tenant, subscription))


@routes.patch(
    "/{subscription}",
    operation_id="update_subscription",
    summary="Change the settings of a subscription",
    refuses=(SubscriptionNotFound, InvalidName),
)
def update(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    received: UrlBody[SubscriptionChange],
    subscription: SubscriptionId,
) -> SubscriptionOut:
    """Change the given fields. `enabled: true` also sends the pending deliveries."""
    given = received.read().to_fields()
    with context.writing() as session:
        changed = subscriptions.update(session, context.tenant, subscription, given)
    return SubscriptionOut.of(changed)


@routes.delete(
    "/{subscription}",
    operation_id="delete_subscription",
    summary="Delete a subscription with its pending deliveries",
    refuses=(SubscriptionNotFound, InvalidParameter),
    status_code=204,
)
def delete(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    subscription: SubscriptionId,
) -> None:
    """Delete a subscription; its pending deliveries are not sent."""
    with context.writing() as session:
        subscriptions.delete(session, context.tenant, subscription)


@routes.post(
    "/{subscription}/rotate-secret",
    operation_id="rotate_secret",
    summary="Replace the secret that signs events",
    refuses=(SubscriptionNotFound, Conflict, SecretKeyMissing, InvalidParameter),
)
def rotate(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    once: SecretOnce,
    subscription: SubscriptionId,
    overlap_seconds: Overlap = 24 * 3600,
) -> Answer[SubscriptionCreated] | Response:
    """Create a new secret, shown only in this answer.

    The previous secret still signs for a day, or for `overlap_seconds`.
    """
    overlap = timedelta(seconds=overlap_seconds)
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        changed, secret = subscriptions.rotate(session, context.tenant, subscription, overlap)
        return once.keep(session, Answer(SubscriptionCreated.with_secret(changed, secret)))


@routes.post(
    "/{subscription}/ping",
    operation_id="ping_subscription",
    summary="Send a test event to a subscription",
    refuses=(SubscriptionNotFound, InvalidParameter, SubscriptionDisabled),
    status_code=202,
)
def ping(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    subscription: SubscriptionId,
) -> DeliveryOut:
    """Send an event of type `ping`, like any other; its delivery shows the outcome."""
    with context.writing() as session:
        return DeliveryOut.of(subscriptions.ping(session, context.tenant, subscription))


@routes.get(
    "/{subscription}/deliveries",
    operation_id="list_deliveries",
    summary="List the deliveries of a subscription",
    refuses=(SubscriptionNotFound, InvalidParameter),
    response_model=DeliveryPage,
)
def list_deliveries(
    context: ReadingContext,
    subscriptions: Service[SubscriptionService],
    limit: PageLimit,
    subscription: SubscriptionId,
    state: State = None,
    cursor: Cursor = None,
) -> Response:
    """The deliveries, pending ones included, newest first, each with its attempts."""
    with context.reading() as session:
        page = subscriptions.deliveries(
            session, context.tenant, subscription, limit=limit, cursor=cursor, state=state
        )
    return page_answer(map(DeliveryOut.of, page.items), page.next_cursor)


@routes.get(
    "/{subscription}/deliveries/{delivery}",
    operation_id="get_delivery",
    summary="Show a delivery and its attempts",
    refuses=(SubscriptionNotFound, DeliveryNotFound, InvalidParameter),
)
def show_delivery(
    context: ReadingContext,
    subscriptions: Service[SubscriptionService],
    subscription: SubscriptionId,
    delivery: DeliveryId,
) -> DeliveryOut:
    """One delivery."""
    with context.reading() as session:
        found = subscriptions.delivery(session, context.tenant, subscription, delivery)
    return DeliveryOut.of(found)


@routes.post(
    "/{subscription}/deliveries/{delivery}/replay",
    operation_id="replay_delivery",
    summary="Send a delivery again",
    refuses=(SubscriptionNotFound, DeliveryNotFound, InvalidParameter, SubscriptionDisabled),
    status_code=202,
)
def replay(
    context: WritingContext,
    subscriptions: Service[SubscriptionService],
    subscription: SubscriptionId,
    delivery: DeliveryId,
) -> DeliveryOut:
    """Send a delivery again, with the same `webhook-id` and payload."""
    with context.writing() as session:
        again = subscriptions.replay(session, context.tenant, subscription, delivery)
    return DeliveryOut.of(again)
