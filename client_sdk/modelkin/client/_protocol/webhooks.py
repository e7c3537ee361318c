"""Calls about webhook subscriptions and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import decode, decode_page, reader
from modelkin.client._transport.messages import Response
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page, Unchanged
from modelkin.types.webhooks import Delivery, Subscription
from modelkin.wire import JSON

__all__ = [
    "AnySubscription",
    "create",
    "delete",
    "deliveries",
    "delivery",
    "get",
    "list_all",
    "ping",
    "replay",
    "rotate_secret",
    "update",
]

AnySubscription: TypeAlias = str | Subscription
"""A subscription, or its id."""

_SUBSCRIPTIONS: Final = "/v1/subscriptions"


def create(fields: Mapping[str, Any]) -> Call[Subscription]:
    """Creates a subscription of the fields that are not None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return Call(requests.post_once(_SUBSCRIPTIONS, _check_fields(given)), _read)


def list_all() -> Call[Page[Subscription]]:
    """Lists all subscriptions."""
    return Call(requests.get(_SUBSCRIPTIONS, requests.PAGE_SIZE), _read_page)


def get(subscription: AnySubscription) -> Call[Subscription]:
    """Reads a subscription."""
    return Call(requests.get(_path(subscription)), _read)


def update(subscription: AnySubscription, fields: Mapping[str, Any]) -> Call[Subscription]:
    """Changes the fields of a subscription that are given."""
    given = {name: value for name, value in fields.items() if not isinstance(value, Unchanged)}
    content = requests.json_bytes(_check_fields(given))
    return Call(requests.write("PATCH", _path(subscription), content, JSON), _read)


def delete(subscription: AnySubscription) -> Call[None]:
    """Deletes a subscription."""
    return Call(requests.write("DELETE", _path(subscription)), read_nothing)


def rotate_secret(subscription: AnySubscription, overlap_seconds: int | None) -> Call[Subscription]:
    """Replaces the secret of a subscription."""
    params = () if overlap_seconds is None else (("overlap_seconds", str(overlap_seconds)),)
    path = f"{_path(subscription)}/rotate-secret"
    return Call(requests.post_once(path, params=params), _read)


def ping(subscription: AnySubscription) -> Call[Delivery]:
    """Creates a delivery of a ``ping`` event."""
    return Call(requests.send_once(f"{_path(subscription)}/ping"), reader(Delivery))


def deliveries(subscription: AnySubscription, state: str | None) -> Call[Page[Delivery]]:
    """Lists the deliveries of a subscription."""
    params = [*requests.PAGE_SIZE, *([] if state is None else [("state", state)])]
    request = requests.get(f"{_path(subscription)}/deliveries", params)
    return Call(request, reader(Page[Delivery]))


def delivery(delivery: Delivery) -> Call[Delivery]:
    """Reads a delivery again."""
    return Call(requests.get(_delivery_path(delivery)), reader(Delivery))


def replay(delivery: Delivery) -> Call[Delivery]:
    """Sends a delivery again."""
    return Call(requests.send_once(f"{_delivery_path(delivery)}/replay"), reader(Delivery))


def _check_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
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


def _path(subscription: AnySubscription) -> str:
    known = subscription.id if isinstance(subscription, Subscription) else subscription
    return f"{_SUBSCRIPTIONS}/{requests.check_id(known, 'subscription')}"


def _delivery_path(delivery: Delivery) -> str:
    if not isinstance(delivery, Delivery):
        raise requests.wrong_type("delivery", "a Delivery", delivery)
    return f"{_path(delivery.subscription)}/deliveries/{delivery.id}"


def _read(response: Response) -> Subscription:
    return decode(response, Subscription, _name_failure)


def _read_page(response: Response) -> Page[Subscription]:
    return decode_page(response, Page[Subscription], _name_failure)


def _name_failure(body: dict[str, Any]) -> None:
    """Replace the last failure, an object on the wire, by its detail."""
    failure = body.get("last_failure")
    if isinstance(failure, dict):
        body["last_failure"] = failure.get("detail", failure)
