"""Webhooks of an MLflow registry: id, time and body are signed with the shared secret.

https://mlflow.org/docs/latest/ml/webhooks. The signature is base64(HMAC-SHA256(secret,
"{id}.{timestamp}.{body}")), over the body as received.
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
TOLERANCE_S: Final = 300
"""Seconds that a webhook may be late, or the clocks of registry and service apart."""
_MAX_ID_LENGTH = 200
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
        raise InvalidWebhookSignature("its X-MLflow-Timestamp is not a number of seconds")
    late = now.timestamp() - int(timestamp)
    if abs(late) > TOLERANCE_S:
        when = f"{late:.0f} s ago" if late > 0 else f"in {-late:.0f} s"
        raise InvalidWebhookSignature(
            f"it was signed {when}, {TOLERANCE_S} s are tolerated: is every clock right?"
        )


def event_id(headers: Mapping[str, str], body: bytes, document: Any) -> str:
    """The registry's id of an event; the signature covers it."""
    del body, document
    given = headers[ID]
    if len(given) <= _MAX_ID_LENGTH and given.isprintable():
        return given
    return "sha256:" + hashlib.sha256(_bytes(given)).hexdigest()


def read(document: Any) -> HubEvent:
    """Parse a payload."""
    entity = text(document, "entity") or "?"
    action = text(document, "action") or "?"
    event = f"{entity}.{action}"[:_MAX_ID_LENGTH]
    name = text(document, "data", "name")
    if entity not in _ENTITIES:
        return HubEvent(event, name, ignored=f"{entity} does not concern a model")
    if name is None:
        return HubEvent(event, ignored="it names no model")
    if entity == "registered_model" and action == "created":
        return HubEvent(event, name, ignored="a new model of a registry has no version yet")
    return HubEvent(event, name, revision=text(document, "data", "version"))


def _bytes(header: str | None) -> bytes:
    """The bytes of a header: HTTP libraries decode them as Latin-1."""
    return (header or "").encode("latin-1")
