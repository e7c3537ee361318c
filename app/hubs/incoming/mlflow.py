"""Deliveries of an MLflow registry: signed with the shared secret, together with id and time.

https://mlflow.org/docs/latest/ml/webhooks. The signature is base64(HMAC-SHA256(secret,
"{id}.{timestamp}.{body}")), over the body as it came.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from app.hubs.incoming.events import HubEvent, InvalidWebhookSignature, text

__all__ = ["event_id", "read", "verify"]

SIGNATURE: Final = "x-mlflow-signature"
ID: Final = "x-mlflow-delivery-id"
TIMESTAMP: Final = "x-mlflow-timestamp"
TOLERANCE: Final = 300
"""Seconds that the clocks of a registry and of this service may be apart, and a delivery late."""
_LONGEST = 200
_ENTITIES = frozenset(
    {"registered_model", "model_version", "model_version_tag", "model_version_alias"}
)


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Raise :class:`InvalidWebhookSignature` unless this was signed with the secret, just now."""
    given = {name: headers.get(name) for name in (SIGNATURE, ID, TIMESTAMP)}
    for name, value in given.items():
        if not value:
            raise InvalidWebhookSignature(f"it has no {name}: is a secret set in the webhook?")
    signed = b".".join((_bytes(given[ID]), _bytes(given[TIMESTAMP]), body))
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    known = b"v1," + base64.b64encode(digest)
    if not any(hmac.compare_digest(known, one) for one in _bytes(given[SIGNATURE]).split(b" ")):
        raise InvalidWebhookSignature(
            "its X-MLflow-Signature is not made of this body with the source's secret"
        )
    timestamp = str(given[TIMESTAMP])
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        raise InvalidWebhookSignature("its X-MLflow-Timestamp is no number of seconds")
    late = now.timestamp() - int(timestamp)
    if abs(late) > TOLERANCE:
        when = f"{late:.0f} s ago" if late > 0 else f"in {-late:.0f} s"
        raise InvalidWebhookSignature(
            f"it was signed {when}, {TOLERANCE} s are tolerated: is every clock right?"
        )


def event_id(headers: Mapping[str, str], body: bytes, document: Any) -> str:
    """The registry's id of a delivery, which is signed with it."""
    del body, document
    given = headers[ID]
    if len(given) <= _LONGEST and given.isprintable():
        return given
    return "sha256:" + hashlib.sha256(_bytes(given)).hexdigest()


def read(document: Any) -> HubEvent:
    """What a delivery tells."""
    entity = text(document, "entity") or "?"
    action = text(document, "action") or "?"
    event = f"{entity}.{action}"[:_LONGEST]
    name = text(document, "data", "name")
    if entity not in _ENTITIES:
        return HubEvent(event, name, ignored=f"{entity} says nothing of a model")
    if name is None:
        return HubEvent(event, ignored="it names no model")
    if entity == "registered_model" and action == "created":
        return HubEvent(event, name, ignored="a model that is new in a registry has no version yet")
    return HubEvent(event, name, revision=text(document, "data", "version"))


def _bytes(header: str | None) -> bytes:
    """A header as it was sent; HTTP gives it out as Latin-1."""
    return (header or "").encode("latin-1")
