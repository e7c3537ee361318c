"""Subscriptions of a service and their deliveries."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

__all__ = ["AppWebhooks"]


class AppWebhooks:
    """The requests of a subscriber.

    Args:
        http: the service's endpoints.
    """

    def __init__(self, http: TestClient) -> None:
        self._http = http

    def subscribe(self, url: str, *events: str, **fields: Any) -> dict[str, Any]:
        """Create a subscription."""
        body = {"url": url, "events": list(events) or ["support.stored"], **fields}
        made = self._http.post("/v1/subscriptions", json=body)
        assert 201 == made.status_code, made.text
        answer: dict[str, Any] = made.json()
        return answer

    def show(self, subscription: dict[str, Any]) -> dict[str, Any]:
        """The current state of a subscription."""
        answer: dict[str, Any] = self._http.get(f"/v1/subscriptions/{subscription['id']}").json()
        return answer

    def deliveries(self, subscription: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
        """The deliveries of a subscription, oldest first."""
        path = f"/v1/subscriptions/{subscription['id']}/deliveries"
        listed = self._http.get(path, params=params)
        assert 200 == listed.status_code, listed.text
        items: list[dict[str, Any]] = listed.json()["items"]
        return items[::-1]
