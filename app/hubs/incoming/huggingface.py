"""Webhooks of a Hugging Face hub: a shared secret in a header, payloads of version 3.

https://huggingface.co/docs/hub/webhooks. Payloads grow: unknown fields are ignored, and an unknown
narrower scope counts as the broader one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from app.hubs.incoming.events import HubEvent, InvalidWebhookSignature, part, text

__all__ = ["event_id", "read", "verify"]

HEADER: Final = "x-webhook-secret"
ID: Final = "webhook-id"
_BLANKS: Final = " \t"
_MAIN: Final = "refs/heads/main"
_MAX_ID_LENGTH = 200


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Raise :class:`InvalidWebhookSignature` unless the sender knows the secret."""
    del body, now
    given = headers.get(HEADER)
    if given is None:
        raise InvalidWebhookSignature(
            "it has no X-Webhook-Secret: is a secret set in the webhook's settings?"
        )
    # HTTP drops the blanks at a value's ends. Digests have equal lengths, so the time of the
    # comparison does not reveal the secret's.
    known = hashlib.sha256(secret.strip(_BLANKS).encode()).digest()
    sent = hashlib.sha256(given.strip(_BLANKS).encode("latin-1")).digest()
    if not hmac.compare_digest(known, sent):
        raise InvalidWebhookSignature("its X-Webhook-Secret is not that of the source")


def event_id(headers: Mapping[str, str], body: bytes, document: Any) -> str:
    """The hub's id of an event; a digest of the body where the hub sent no id.

    The id of the webhook itself does not count: all its events have it.
    """
    given = headers.get(ID, "")
    if given and given.isprintable() and given != text(document, "webhook", "id"):
        if len(given) <= _MAX_ID_LENGTH:
            return given
        return "sha256:" + hashlib.sha256(given.encode("latin-1")).hexdigest()
    return "sha256:" + hashlib.sha256(body).hexdigest()


def read(document: Any) -> HubEvent:
    """Parse a payload."""
    action = text(document, "event", "action") or "?"
    scope = text(document, "event", "scope") or "?"
    event = f"{scope}.{action}"[:_MAX_ID_LENGTH]
    name = text(document, "repo", "name")
    if name is None:
        return HubEvent(event, ignored="it names no repository")
    if (kind := text(document, "repo", "type")) != "model":
        return HubEvent(event, name, ignored=f"{name} is a {kind or 'repository'}, not a model")
    if scope.partition(".")[0] != "repo":
        return HubEvent(event, name, ignored=f"{scope} does not concern a model's files")
    revision, tags = text(document, "repo", "headSha"), _tags(document)
    if action == "delete" and scope == "repo":
        return HubEvent(event, name, gone=True)
    moved_to = text(document, "movedTo", "name")
    if action == "move" and moved_to is not None and moved_to != name:
        return HubEvent(event, moved_to, moved_from=name, revision=revision, tags=tags)
    return HubEvent(event, name, revision=revision, tags=tags, ignored=_beside_main(document))


def _beside_main(document: Any) -> str | None:
    """Why a change of refs does not concern the model: only other branches or pull requests."""
    updated = part(document, "updatedRefs")
    if not isinstance(updated, list) or not updated:
        return None
    refs = [text(entry, "ref") for entry in updated]
    if None in refs or _MAIN in refs:
        return None
    shown = ", ".join(str(ref) for ref in refs[:3])
    return f"main did not change, but {shown}"


def _tags(document: Any) -> tuple[str, ...] | None:
    tags = part(document, "repo", "tags")
    if not isinstance(tags, list):
        return None
    return tuple(tag for tag in tags if isinstance(tag, str))
