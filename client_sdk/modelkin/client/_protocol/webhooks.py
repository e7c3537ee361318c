"""The calls about subscriptions: who is told of what, and what was sent.

What is sent and how answers are read is decided here once for both clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.client._protocol import decoding, requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.spaces import Call
from modelkin.client._sync.listing import AsyncListing, Listing
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import parse_json
from modelkin.client._transport.messages import Request, Response
from modelkin.errors import InvalidParameter
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.types.webhooks import Delivery, DeliveryAttempt, Subscription
from modelkin.wire import JSON

__all__ = ["AsyncSubscriptionCalls", "SubscriptionCalls"]

_ROOT = "/v1/subscriptions"
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")

Which = str | Subscription


class SubscriptionCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def create_subscription(
        self,
        url: str,
        events: Iterable[str],
        *,
        space: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        threshold: float | None = None,
        description: str | None = None,
    ) -> Subscription:
        """Has events sent to a URL.

            made = client.create_subscription("https://receiver.example/", ["support.stored"])
            keep(made.secret)   # what modelkin.webhooks.verify needs; it is never answered again

        Args:
            url: of the receiver, out on the public internet, or where the service is told to allow.
            events: ``"support.stored"``, ``"neighbors.changed"``, ``"clustering.completed"``,
                ``"lineage.mismatch"``.
            space: only of this space.
            model: only about this model.
            tag: only about models that carry this tag.
            threshold: the similarity that a pair has to cross, of ``neighbors.changed``.
            description: for people.
        """
        narrowed = (space, model, tag, threshold, description)
        return self._run(_create(url, events, *narrowed))

    def subscriptions(self) -> Listing[Subscription]:
        """All subscriptions, newest first."""
        return Listing(self._rows(_list()), Subscription)

    def subscription(self, subscription: Which) -> Subscription:
        """A subscription as it is now; ``subscription_not_found`` where there is none."""
        return self._run(_show(subscription))

    def update_subscription(
        self,
        subscription: Which,
        *,
        url: str | Unchanged = UNCHANGED,
        events: Iterable[str] | Unchanged = UNCHANGED,
        space: str | Unchanged | None = UNCHANGED,
        model: str | Unchanged | None = UNCHANGED,
        tag: str | Unchanged | None = UNCHANGED,
        threshold: float | Unchanged | None = UNCHANGED,
        description: str | Unchanged | None = UNCHANGED,
        enabled: bool | Unchanged = UNCHANGED,
    ) -> Subscription:
        """Replaces what is given; None clears.

        Args:
            subscription: it, or its id.
            url: as for :meth:`create_subscription`, and so what follows it.
            events: likewise.
            space: likewise.
            model: likewise.
            tag: likewise.
            threshold: likewise.
            description: likewise.
            enabled: True forgets what has failed as well, and sends what waits.
        """
        fields = {
            "url": url,
            "events": events,
            "space": space,
            "model": model,
            "tag": tag,
            "threshold": threshold,
            "description": description,
            "enabled": enabled,
        }
        return self._run(_update(subscription, fields))

    def delete_subscription(self, subscription: Which) -> None:
        """Deletes a subscription; what was still to be sent is not."""
        self._run(_delete(subscription))

    def rotate_secret(
        self, subscription: Which, *, overlap_seconds: int | None = None
    ) -> Subscription:
        """Makes a new secret, which is in this answer and never again.

        Args:
            subscription: it, or its id.
            overlap_seconds: for how long the one before signs as well; a day by default.
        """
        return self._run(_rotate(subscription, overlap_seconds))

    def ping(self, subscription: Which) -> Delivery:
        """Sends an event of type ``ping``; the delivery, which tells later what came of it."""
        return self._run(_ping(subscription))

    def deliveries(self, subscription: Which, *, state: str | None = None) -> Listing[Delivery]:
        """What was sent and is to be sent, newest first; only in one ``state`` if it is given."""
        return Listing(self._rows(_deliveries(subscription, state)), Delivery)

    def delivery(self, delivery: Delivery) -> Delivery:
        """A delivery as it is now."""
        return self._run(_delivery(delivery))

    def replay(self, delivery: Delivery) -> Delivery:
        """Sends a delivery once more, with the same ``webhook-id`` and payload."""
        return self._run(_replay(delivery))


class AsyncSubscriptionCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def create_subscription(
        self,
        url: str,
        events: Iterable[str],
        *,
        space: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        threshold: float | None = None,
        description: str | None = None,
    ) -> Subscription:
        """Has events sent to a URL."""
        narrowed = (space, model, tag, threshold, description)
        return await self._run(_create(url, events, *narrowed))

    def subscriptions(self) -> AsyncListing[Subscription]:
        """All subscriptions, newest first."""
        return AsyncListing(self._rows(_list()), Subscription)

    async def subscription(self, subscription: Which) -> Subscription:
        """A subscription as it is now; ``subscription_not_found`` where there is none."""
        return await self._run(_show(subscription))

    async def update_subscription(
        self,
        subscription: Which,
        *,
        url: str | Unchanged = UNCHANGED,
        events: Iterable[str] | Unchanged = UNCHANGED,
        space: str | Unchanged | None = UNCHANGED,
        model: str | Unchanged | None = UNCHANGED,
        tag: str | Unchanged | None = UNCHANGED,
        threshold: float | Unchanged | None = UNCHANGED,
        description: str | Unchanged | None = UNCHANGED,
        enabled: bool | Unchanged = UNCHANGED,
    ) -> Subscription:
        """Replaces what is given; None clears."""
        fields = {
            "url": url,
            "events": events,
            "space": space,
            "model": model,
            "tag": tag,
            "threshold": threshold,
            "description": description,
            "enabled": enabled,
        }
        return await self._run(_update(subscription, fields))

    async def delete_subscription(self, subscription: Which) -> None:
        """Deletes a subscription; what was still to be sent is not."""
        await self._run(_delete(subscription))

    async def rotate_secret(
        self, subscription: Which, *, overlap_seconds: int | None = None
    ) -> Subscription:
        """Makes a new secret, which is in this answer and never again."""
        return await self._run(_rotate(subscription, overlap_seconds))

    async def ping(self, subscription: Which) -> Delivery:
        """Sends an event of type ``ping``; the delivery, which tells later what came of it."""
        return await self._run(_ping(subscription))

    def deliveries(
        self, subscription: Which, *, state: str | None = None
    ) -> AsyncListing[Delivery]:
        """What was sent and is to be sent, newest first; only in one ``state`` if it is given."""
        return AsyncListing(self._rows(_deliveries(subscription, state)), Delivery)

    async def delivery(self, delivery: Delivery) -> Delivery:
        """A delivery as it is now."""
        return await self._run(_delivery(delivery))

    async def replay(self, delivery: Delivery) -> Delivery:
        """Sends a delivery once more, with the same ``webhook-id`` and payload."""
        return await self._run(_replay(delivery))


# --- what is sent ---------------------------------------------------------------------------------


def _create(
    url: str,
    events: Iterable[str],
    space: str | None,
    model: str | None,
    tag: str | None,
    threshold: float | None,
    description: str | None,
) -> Call[Subscription]:
    fields = {
        "url": url,
        "events": events,
        "space": space,
        "model": model,
        "tag": tag,
        "threshold": threshold,
        "description": description,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return Call(_once("POST", _ROOT, _checked(given)), _read)


def _list() -> Call[Page[Subscription]]:
    request = requests.get(_ROOT, [("limit", "100")])
    return Call(request, lambda r: decoding.read_page(_fields(r), _read_fields))


def _show(subscription: Which) -> Call[Subscription]:
    return Call(requests.get(_path(subscription)), _read)


def _update(subscription: Which, fields: Mapping[str, Any]) -> Call[Subscription]:
    given = {name: value for name, value in fields.items() if value is not UNCHANGED}
    content = requests.json_bytes(_checked(given))
    return Call(requests.write("PATCH", _path(subscription), content, JSON), _read)


def _delete(subscription: Which) -> Call[None]:
    return Call(requests.write("DELETE", _path(subscription)), lambda _: None)


def _rotate(subscription: Which, overlap_seconds: int | None) -> Call[Subscription]:
    params = () if overlap_seconds is None else (("overlap_seconds", str(overlap_seconds)),)
    path = f"{_path(subscription)}/rotate-secret"
    # Sent again it would rotate again, and the secret of the first answer would be lost.
    return Call(Request("POST", path, params, {"Accept": JSON}), _read)


def _ping(subscription: Which) -> Call[Delivery]:
    return Call(_once("POST", f"{_path(subscription)}/ping"), _read_delivery)


def _deliveries(subscription: Which, state: str | None) -> Call[Page[Delivery]]:
    params = [("limit", "100"), *([] if state is None else [("state", state)])]
    request = requests.get(f"{_path(subscription)}/deliveries", params)
    return Call(request, lambda r: decoding.read_page(_fields(r), _delivery_fields))


def _delivery(delivery: Delivery) -> Call[Delivery]:
    return Call(requests.get(_delivery_path(delivery)), _read_delivery)


def _replay(delivery: Delivery) -> Call[Delivery]:
    return Call(_once("POST", f"{_delivery_path(delivery)}/replay"), _read_delivery)


def _once(method: str, path: str, body: Mapping[str, Any] | None = None) -> Request:
    """A request that is not sent again by itself: it would be done twice."""
    if body is None:
        return Request(method, path, (), {"Accept": JSON})
    headers = {"Accept": JSON, "Content-Type": JSON}
    return Request(method, path, (), headers, requests.json_bytes(body))


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(fields)
    if isinstance(body.get("events"), str):
        raise InvalidParameter("events is one string; give a list of types", field="events")
    if "events" in body:
        body["events"] = list(body["events"])
    if body.get("space") is not None:
        body["space"] = check_space_name(body["space"])
    if body.get("model") is not None:
        body["model"] = check_model_name(body["model"], field="model")
    if body.get("tag") is not None:
        [body["tag"]] = check_tags([body["tag"]], field="tag")
    return body


def _path(subscription: Which) -> str:
    known = subscription.id if isinstance(subscription, Subscription) else subscription
    if not isinstance(known, str) or not _ID.fullmatch(known):
        raise InvalidParameter(f"{known!r} is no subscription's id", field="subscription")
    return f"{_ROOT}/{known}"


def _delivery_path(delivery: Delivery) -> str:
    if not isinstance(delivery, Delivery):
        raise requests.wrong_type("delivery", "a Delivery", delivery)
    return f"{_path(delivery.subscription)}/deliveries/{delivery.id}"


# --- what is answered -----------------------------------------------------------------------------


def _fields(response: Response) -> Fields:
    return Fields(parse_json(response))


def _read(response: Response) -> Subscription:
    return _read_fields(_fields(response))


def _read_fields(body: Fields) -> Subscription:
    return Subscription(
        id=body.text("id"),
        url=body.text("url"),
        events=body.texts("events"),
        space=body.optional("space", body.text),
        model=body.optional("model", body.text),
        tag=body.optional("tag", body.text),
        threshold=body.optional("threshold", body.number),
        description=body.optional("description", body.text),
        enabled=body.flag("enabled"),
        disabled_reason=body.optional("disabled_reason", body.text),
        previous_secret_until=body.optional("previous_secret_until", body.moment),
        failures=body.integer("failures"),
        failing_since=body.optional("failing_since", body.moment),
        paused_until=body.optional("paused_until", body.moment),
        last_success_at=body.optional("last_success_at", body.moment),
        last_failure=body.optional("last_failure", lambda name: body.inner(name).text("detail")),
        created_at=body.moment("created_at"),
        updated_at=body.moment("updated_at"),
        secret=body.optional("secret", body.text),
    )


def _read_delivery(response: Response) -> Delivery:
    return _delivery_fields(_fields(response))


def _delivery_fields(body: Fields) -> Delivery:
    return Delivery(
        id=body.text("id"),
        subscription=body.text("subscription"),
        type=body.text("type"),
        event=body.text("event"),
        state=body.text("state"),
        attempts=body.integer("attempts"),
        next_attempt_at=body.optional("next_attempt_at", body.moment),
        log=body.rows("log", _read_attempt),
        payload=body.text("payload"),
        created_at=body.moment("created_at"),
        finished_at=body.optional("finished_at", body.moment),
    )


def _read_attempt(body: Fields) -> DeliveryAttempt:
    return DeliveryAttempt(
        at=body.moment("at"),
        seconds=body.number("seconds"),
        status=body.optional("status", body.integer),
        detail=body.text("detail"),
    )
