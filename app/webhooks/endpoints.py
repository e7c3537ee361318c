"""/v1/subscriptions: outgoing webhooks and their deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AuthenticatedJsonRoute,
    ReadingTenant,
    WritingTenant,
)
from app.errors import (
    Conflict,
    DeliveryNotFound,
    QuotaExceeded,
    SecretKeyMissing,
    StorageFull,
    SubscriptionDisabled,
    SubscriptionNotFound,
)
from app.idempotency.dependencies import SecretOnce
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.url_checks import UrlChecker
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

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/subscriptions",
    tags=["subscriptions"],
    route_class=AuthenticatedJsonRoute,
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


async def _new(
    urls: Service[UrlChecker], _: WritingTenant, body: Annotated[SubscriptionNew, Body()]
) -> SubscriptionNew:
    await urls.require(body.url)
    return body


async def _change(
    urls: Service[UrlChecker], _: WritingTenant, body: Annotated[SubscriptionChange, Body()]
) -> SubscriptionChange:
    await urls.require(body.url)
    return body


# Before `session` among an endpoint's parameters: a DNS lookup must not hold a connection.
New = Annotated[SubscriptionNew, Depends(_new)]
Changes = Annotated[SubscriptionChange, Depends(_change)]


@router.post(
    "",
    operation_id="create_subscription",
    summary="Subscribe a URL to events",
    responses=problems(
        *BODY_PROBLEMS,
        InvalidParameter,
        InvalidName,
        SecretKeyMissing,
        StorageFull,
        QuotaExceeded,
    ),
    status_code=201,
)
def create(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    body: New,
    session: Writing,
    once: SecretOnce,
    response: Response,
) -> SubscriptionCreated:
    """Subscribe a URL to events, signed by the rules of Standard Webhooks.

    Only this answer contains the signing secret.
    """
    del once
    made, secret = subscriptions.create(session, tenant, body.wanted())
    response.headers["Location"] = f"/v1/subscriptions/{made.id}"
    return SubscriptionCreated.with_secret(made, secret)


@router.get(
    "",
    operation_id="list_subscriptions",
    summary="List the subscribed URLs",
    responses=problems(InvalidParameter),
    response_model=SubscriptionPage,
)
def list_subscriptions(
    subscriptions: Service[SubscriptionService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The subscriptions, newest first."""
    page = subscriptions.list(session, tenant, limit=limit, cursor=cursor)
    return page_answer(map(SubscriptionOut.of, page.items), page.next_cursor)


@router.get(
    "/{subscription}",
    operation_id="get_subscription",
    summary="Show a subscription and its receiver's answers",
    responses=problems(SubscriptionNotFound, InvalidParameter),
)
def show(
    subscriptions: Service[SubscriptionService],
    tenant: ReadingTenant,
    session: Reading,
    subscription: SubscriptionId,
) -> SubscriptionOut:
    """One subscription, and how its receiver has answered."""
    return SubscriptionOut.of(subscriptions.get(session, tenant, subscription))


@router.patch(
    "/{subscription}",
    operation_id="update_subscription",
    summary="Change the settings of a subscription",
    responses=problems(
        *BODY_PROBLEMS, SubscriptionNotFound, InvalidParameter, InvalidName, StorageFull
    ),
)
def update(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    body: Changes,
    session: Writing,
    subscription: SubscriptionId,
) -> SubscriptionOut:
    """Change the given fields. `enabled: true` also sends the pending deliveries."""
    given = body.given()
    changed = subscriptions.update(session, tenant, subscription, given)
    return SubscriptionOut.of(changed)


@router.delete(
    "/{subscription}",
    operation_id="delete_subscription",
    summary="Delete a subscription with its pending deliveries",
    responses=problems(SubscriptionNotFound, InvalidParameter, StorageFull),
    status_code=204,
)
def delete(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    session: Writing,
    subscription: SubscriptionId,
) -> None:
    """Delete a subscription; its pending deliveries are not sent."""
    subscriptions.delete(session, tenant, subscription)


@router.post(
    "/{subscription}/rotate-secret",
    operation_id="rotate_secret",
    summary="Replace the secret that signs events",
    responses=problems(
        SubscriptionNotFound, Conflict, SecretKeyMissing, InvalidParameter, StorageFull
    ),
)
def rotate(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    session: Writing,
    once: SecretOnce,
    subscription: SubscriptionId,
    overlap_seconds: Overlap = 24 * 3600,
) -> SubscriptionCreated:
    """Create a new secret, shown only in this answer.

    The previous secret still signs for a day, or for `overlap_seconds`.
    """
    del once
    overlap = timedelta(seconds=overlap_seconds)
    changed, secret = subscriptions.rotate(session, tenant, subscription, overlap)
    return SubscriptionCreated.with_secret(changed, secret)


@router.post(
    "/{subscription}/ping",
    operation_id="ping_subscription",
    summary="Send a test event to a subscription",
    responses=problems(SubscriptionNotFound, InvalidParameter, SubscriptionDisabled, StorageFull),
    status_code=202,
)
def ping(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    session: Writing,
    subscription: SubscriptionId,
) -> DeliveryOut:
    """Send an event of type `ping`, like any other; its delivery shows the outcome."""
    return DeliveryOut.of(subscriptions.ping(session, tenant, subscription))


@router.get(
    "/{subscription}/deliveries",
    operation_id="list_deliveries",
    summary="List the deliveries of a subscription",
    responses=problems(SubscriptionNotFound, InvalidParameter),
    response_model=DeliveryPage,
)
def list_deliveries(
    subscriptions: Service[SubscriptionService],
    limit: PageLimit,
    tenant: ReadingTenant,
    session: Reading,
    subscription: SubscriptionId,
    state: State = None,
    cursor: Cursor = None,
) -> Response:
    """The deliveries, pending ones included, newest first, each with its attempts."""
    page = subscriptions.deliveries(
        session, tenant, subscription, limit=limit, cursor=cursor, state=state
    )
    return page_answer(map(DeliveryOut.of, page.items), page.next_cursor)


@router.get(
    "/{subscription}/deliveries/{delivery}",
    operation_id="get_delivery",
    summary="Show a delivery and its attempts",
    responses=problems(SubscriptionNotFound, DeliveryNotFound, InvalidParameter),
)
def show_delivery(
    subscriptions: Service[SubscriptionService],
    tenant: ReadingTenant,
    session: Reading,
    subscription: SubscriptionId,
    delivery: DeliveryId,
) -> DeliveryOut:
    """One delivery."""
    found = subscriptions.delivery(session, tenant, subscription, delivery)
    return DeliveryOut.of(found)


@router.post(
    "/{subscription}/deliveries/{delivery}/replay",
    operation_id="replay_delivery",
    summary="Send a delivery again",
    responses=problems(
        SubscriptionNotFound, DeliveryNotFound, InvalidParameter, SubscriptionDisabled, StorageFull
    ),
    status_code=202,
)
def replay(
    subscriptions: Service[SubscriptionService],
    tenant: WritingTenant,
    session: Writing,
    subscription: SubscriptionId,
    delivery: DeliveryId,
) -> DeliveryOut:
    """Send a delivery again, with the same `webhook-id` and payload."""
    again = subscriptions.replay(session, tenant, subscription, delivery)
    return DeliveryOut.of(again)
