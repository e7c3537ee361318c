"""``/subscriptions`` and ``/subscriptions/{subscription}``: webhooks to others, and their log."""

from __future__ import annotations

import json
from typing import Annotated, Final, get_args

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.rendering import PageRoutes, render
from app.webhooks.repositories.deliveries import Delivery
from app.webhooks.schemas import EventType, SubscriptionOut
from app.webhooks.service import DEFAULT_THRESHOLD, SubscriptionService

__all__ = ["routes"]

routes = PageRoutes()

_PAGE_SIZE: Final = 30
_MAX_SPACES: Final = 200
"""Spaces that a form suggests."""
_STATES: Final = ("pending", "succeeded", "failed")
_EVENTS: Final = {
    "support.stored": "a model was stored",
    "neighbors.changed": "two models have come near, or drifted apart",
    "clustering.completed": "a clustering is done",
    "lineage.mismatch": "a model is not of the base that it declares",
    "merge.joining": "a merge waits for its parties",
    "merge.completed": "a merge is done",
    "merge.failed": "a merge has failed",
    "learngene.published": "a cluster has new weights to start from",
    "model.duplicate": "a model has the very weights of another",
    "anatomy.changed": "a model shares weights with another than before",
    "fingerprint.stored": "the lines of a model are known, or others than before",
    "fingerprint.removed": "the lines of a model are not known any more",
    "report.ready": "a report of all models is done",
}
assert set(get_args(EventType)) == set(_EVENTS)


@routes.get("/subscriptions")
def subscriptions(
    context: ReadingContext,
    service: Service[SubscriptionService],
    spaces: Service[SpaceService],
    request: Request,
    cursor: Cursor = None,
) -> HTMLResponse:
    """Every subscription, newest first, and the form for a new one."""
    with context.reading() as session:
        page = service.list(session, context.tenant, limit=_PAGE_SIZE, cursor=cursor)
        known = spaces.list(session, context.tenant, limit=_MAX_SPACES, cursor=None)
    return render(
        request,
        "subscriptions.html",
        items=[SubscriptionOut.of(each) for each in page.items],
        next_cursor=page.next_cursor,
        cursor=cursor,
        spaces=[each.name for each in known.items],
        events=_EVENTS,
        threshold=DEFAULT_THRESHOLD,
    )


@routes.get("/subscriptions/{subscription}")
def subscription(
    context: ReadingContext,
    service: Service[SubscriptionService],
    spaces: Service[SpaceService],
    request: Request,
    subscription: str,
    state: Annotated[str, Query(max_length=20)] = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """One subscription: its receiver's answers, its deliveries, and the actions on it."""
    with context.reading() as session:
        shown = service.get(session, context.tenant, subscription)
        wanted = state if state in _STATES else ""
        deliveries = service.deliveries(
            session, context.tenant, shown.id, limit=_PAGE_SIZE, cursor=cursor, state=wanted or None
        )
        known = spaces.list(session, context.tenant, limit=_MAX_SPACES, cursor=None)
    return render(
        request,
        "subscription.html",
        subscription=SubscriptionOut.of(shown),
        deliveries=deliveries,
        payload=_payload,
        states=_STATES,
        state=wanted,
        cursor=cursor,
        spaces=[each.name for each in known.items],
        events=_EVENTS,
        threshold=DEFAULT_THRESHOLD,
    )


def _payload(delivery: Delivery) -> str:
    """The body of a delivery, on several lines."""
    return json.dumps(json.loads(delivery.body), indent=1, ensure_ascii=False)
