"""Webhook payloads of hubs, and the headers that authenticate them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import uuid4

__all__ = ["hf_headers", "hf_payload", "mlflow_payload", "signed"]


def hf_payload(
    name: str,
    *,
    sha: str | None = None,
    scope: str = "repo.content",
    action: str = "update",
    kind: str = "model",
    refs: list[Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A payload of version 3, as in the Hub's documentation."""
    repo = {
        "type": kind,
        "name": name,
        "id": "621ffdc036468d709f17434d",
        "private": False,
        "url": {"web": f"https://hub/{name}", "api": f"https://hub/api/models/{name}"},
        "owner": {"id": "628b753283ef59b5be89e937"},
    }
    payload = {
        "event": {"action": action, "scope": scope},
        "repo": repo if sha is None else {**repo, "headSha": sha, "tags": ["pytorch", "kin"]},
        "webhook": {"id": "6390e855e30d9209411de93b", "version": 3},
        **more,
    }
    if refs is not None:
        payload["updatedRefs"] = [{"ref": ref, "oldSha": None, "newSha": "f" * 40} for ref in refs]
    return payload


def hf_headers(secret: str, delivery_id: str | None = None) -> dict[str, str]:
    """The headers that a hub sends; each call is a new delivery unless an id is given."""
    return {"x-webhook-secret": secret, "webhook-id": delivery_id or str(uuid4())}


def mlflow_payload(event: str, data: dict[str, Any]) -> dict[str, Any]:
    """The payload of a registry's event."""
    entity, action = event.split(".")
    moment = "2025-07-31T08:27:32.080217+00:00"
    return {"entity": entity, "action": action, "timestamp": moment, "data": data}


def signed(
    secret: str,
    payload: dict[str, Any],
    *,
    delivery_id: str | None = None,
    timestamp: str | None = None,
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a registry's delivery, signed as MLflow documents it."""
    body = json.dumps(payload).encode()
    delivery_id = delivery_id or str(uuid4())
    timestamp = timestamp or str(int(time.time()))
    content = b".".join((delivery_id.encode(), timestamp.encode("latin-1", "replace"), body))
    digest = hmac.new(secret.encode(), content, hashlib.sha256).digest()
    headers = {
        "x-mlflow-delivery-id": delivery_id,
        "x-mlflow-timestamp": timestamp,
        "x-mlflow-signature": "v1," + base64.b64encode(digest).decode(),
    }
    return headers, body
