"""/v1/hooks: receives hub events. They need no API key: the secret of the source verifies them.

The operation takes no query parameter and ignores those that come: a hub may append its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from app.errors import BodyTimeout, RateLimited, StorageFull, Unauthorized, Unavailable
from app.hubs.endpoints.schemas import ReceiptOut
from app.hubs.incoming.service import HubEventService
from app.infra.db.visibility import every_tenant
from app.infra.http.bodies import BodyLimits, read_body
from app.infra.http.dependencies import Turn
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.json_bodies import DECODED_BYTES_PER_BYTE
from app.infra.http.memory_budget import Budgets
from app.infra.http.openapi import problems
from app.infra.http.routing import HOOKS
from app.infra.http.services import Service
from app.infra.http.turns import Turns, counts_as, tenant_of
from modelkin import wire
from modelkin.errors import InvalidParameter, PayloadTooLarge

__all__ = ["router"]

router = APIRouter(prefix=HOOKS.rstrip("/"), tags=["sources"], route_class=ThreadRoute)

_EXAMPLE = {
    "event": {"action": "update", "scope": "repo.content"},
    "repo": {"type": "model", "name": "org/model", "headSha": "1b2f6f1c…", "tags": ["kin"]},
    "updatedRefs": [{"ref": "refs/heads/main", "oldSha": "9f0a…", "newSha": "1b2f6f1c…"}],
    "webhook": {"id": "6390e855e30d9209411de93b", "version": 3},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "the body as the hub sends it; some hubs sign its exact bytes",
        "content": {wire.JSON: {"schema": {"type": "object"}, "example": _EXAMPLE}},
    }
}


async def _body(
    request: Request, limits: Service[BodyLimits], budgets: Service[Budgets]
) -> AsyncIterator[bytes]:
    with budgets.holding(tenant_of(request)) as (bodies, decoded):
        body = await read_body(request, limits, wire.JSON, bodies)
        await decoded.take_in_turn(DECODED_BYTES_PER_BYTE * len(body))
        yield bytes(body)


@router.post(
    "/{source}",
    operation_id="receive_delivery",
    summary="Receive an event of a hub",
    status_code=202,
    responses={
        200: {"model": ReceiptOut, "description": "The same event came before"},
        **problems(
            Unauthorized,
            RateLimited,
            BodyTimeout,
            PayloadTooLarge,
            InvalidParameter,
            Unavailable,
            StorageFull,
        ),
    },
    openapi_extra=_BODY,
)
@counts_as("hooks")
def receive(
    request: Request,
    hub_events: Service[HubEventService],
    body: Annotated[bytes, Depends(_body)],
    turn: Turn,
    turns: Service[Turns],
    source: Annotated[str, Path(description="the id of the source")],
    response: Response,
) -> ReceiptOut:
    """Receive a hub event. The answer comes once the event and its job are stored durably.

    `X-Webhook-Secret` (and `Webhook-Id`) of Hugging Face, or `X-MLflow-Signature`,
    `X-MLflow-Delivery-Id` and `X-MLflow-Timestamp` of MLflow. A repeated event is answered 200; one
    with a wrong secret or signature, or for an unknown source, 401.
    """
    del turn
    with every_tenant():  # whose the source is shows in its row
        receipt = hub_events.receive(source, request.headers, body)
    turns.verified(source)
    if receipt.duplicate:
        response.status_code = 200
    return ReceiptOut.of(receipt)
