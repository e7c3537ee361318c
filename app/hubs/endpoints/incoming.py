"""/v1/hooks: receives hub events. They need no API key: the secret of the source verifies them.

The operation takes no query parameter and ignores those that come: a hub may append its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from app.hubs.endpoints.schemas import ReceiptOut
from app.hubs.incoming.service import HubEventService
from app.infra.db.visibility import every_tenant
from app.infra.errors import BodyTimeout, RateLimited, StorageFull, Unauthorized, Unavailable
from app.infra.http.answers import Answer
from app.infra.http.request_context import OpenContext
from app.infra.http.requests.bodies import BodyLimits, read_body
from app.infra.http.requests.json_bodies import DECODED_BYTES_PER_BYTE
from app.infra.http.requests.memory_budget import Budgets
from app.infra.http.routes import Routes
from app.infra.http.routing import HOOKS
from app.infra.http.services import Service, services_of
from app.infra.http.turns import Turns, tenant_of
from modelkin import wire
from modelkin.errors import InvalidParameter, PayloadTooLarge

__all__ = ["routes"]

routes = Routes(prefix=HOOKS.rstrip("/"), tags=["sources"])

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


async def _body(request: Request) -> AsyncIterator[bytes]:
    services = services_of(request)
    with services[Budgets].holding(tenant_of(request)) as (bodies, decoded):
        body = await read_body(request, services[BodyLimits], wire.JSON, bodies)
        await decoded.take_in_turn(DECODED_BYTES_PER_BYTE * len(body))
        yield bytes(body)


@routes.post(
    "/{source}",
    operation_id="receive_delivery",
    summary="Receive an event of a hub",
    status_code=202,
    refuses=(
        StorageFull,
        Unauthorized,
        RateLimited,
        BodyTimeout,
        PayloadTooLarge,
        InvalidParameter,
        Unavailable,
    ),
    responses={200: {"model": ReceiptOut, "description": "The same event came before"}},
    openapi_extra=_BODY,
    turn="hooks",
)
def receive(
    context: OpenContext,
    hub_events: Service[HubEventService],
    turns: Service[Turns],
    body: Annotated[bytes, Depends(_body)],
    source: Annotated[str, Path(description="the id of the source")],
) -> Answer[ReceiptOut]:
    """Receive a hub event. The answer comes once the event and its job are stored durably.

    `X-Webhook-Secret` (and `Webhook-Id`) of Hugging Face, or `X-MLflow-Signature`,
    `X-MLflow-Delivery-Id` and `X-MLflow-Timestamp` of MLflow. A repeated event is answered 200; one
    with a wrong secret or signature, or for an unknown source, 401.
    """
    with every_tenant():  # whose the source is shows in its row
        receipt = hub_events.receive(source, context.request.headers, body)
    turns.note_verified(source)
    return Answer(ReceiptOut.of(receipt), 200 if receipt.duplicate else 202)
