"""Signatures of webhooks by the Standard Webhooks specification, made and verified.

    from modelkin import webhooks

    event = webhooks.verify(request.body, request.headers, "whsec_...")

Nothing here does I/O. https://www.standardwebhooks.com
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from modelkin.errors import InvalidParameter, InvalidWebhook

__all__ = ["TOLERANCE_S", "new_secret", "sign", "verify"]

TOLERANCE_S: Final = 300
"""Seconds that a webhook may be old, or come early by the receiver's clock."""
_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32
_VERSION: Final = "v1"


def new_secret() -> str:
    """A new secret: ``whsec_`` and 256 random bits in base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, timestamp: int, payload: bytes) -> str:
    """The signature of one secret: ``v1,`` and an HMAC-SHA256 in base64.

    Args:
        secret: ``whsec_...``.
        message_id: the header ``webhook-id``.
        timestamp: the header ``webhook-timestamp``, in whole seconds.
        payload: the body, byte by byte as it is sent.

    Raises:
        InvalidParameter: the secret is malformed.
    """
    signed = b".".join((message_id.encode(), str(timestamp).encode(), payload))
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def verify(
    payload: bytes | str,
    headers: Mapping[str, str],
    secret: str,
    *,
    tolerance: float = TOLERANCE_S,
    now: float | None = None,
) -> Any:
    """Verify the sender and the age of a webhook, and return its content.

    Args:
        payload: the body, byte by byte as it came.
        headers: the headers of the request, with names in upper or lower case.
        secret: ``whsec_...``, from the answer that created the subscription.
        tolerance: seconds that it may be old.
        now: the time in seconds since 1970; that of this machine by default.

    Returns:
        The JSON of the body: ``{"type", "timestamp", "data"}``. The same ``webhook-id`` may come
        more than once.

    Raises:
        InvalidWebhook: a header is missing, it is too old, or it was not signed with this secret.
        InvalidParameter: the secret is malformed.
    """
    body = _encode(payload, "its body") if isinstance(payload, str) else bytes(payload)
    given = {name.lower(): value for name, value in headers.items()}
    missing = [
        name for name in ("id", "timestamp", "signature") if not given.get(f"webhook-{name}")
    ]
    if missing:
        raise InvalidWebhook(f"there is no header webhook-{missing[0]}")
    sent = given["webhook-timestamp"]
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 12):
        raise InvalidWebhook("webhook-timestamp is not a whole number of seconds since 1970")
    age = (time.time() if now is None else now) - int(sent)
    if abs(age) > tolerance:
        raise InvalidWebhook(
            f"it was sent {age:.0f} s ago by this machine's clock: {tolerance:g} s are allowed"
        )
    _encode(given["webhook-id"], "webhook-id")
    expected = sign(secret, given["webhook-id"], int(sent), body).encode()
    offered = _encode(given["webhook-signature"], "webhook-signature").split(b" ")
    if not any(hmac.compare_digest(expected, one) for one in offered):
        raise InvalidWebhook("none of its signatures was made with this secret")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidWebhook(f"its body is not JSON: {error}") from None


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidWebhook(f"{what} is not Unicode text: it holds half a character") from None


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if not key:
        raise InvalidParameter(
            f"a secret is {_PREFIX} and base64, as it was answered with the subscription",
            field="secret",
        )
    return key
