"""When the client tries again, how long it waits, and when it must not."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from modelkin._http_dates import retry_after
from modelkin.client import Client
from modelkin.client._transport.messages import Request
from modelkin.client._transport.retry import Backoff
from modelkin.core.support import Support
from modelkin.errors import ApiError, ConnectionFailed

SUPPORT = Support.from_indices([2, 5, 7], 100)
GET = Request("GET", "/v1/spaces", idempotent=True)

KEYED: dict[str, Callable[[Client], object]] = {
    "subscribe": lambda client: client.webhooks.create("https://a.example", ["support.stored"]),
    "rotate": lambda client: client.webhooks.rotate_secret("a-subscription"),
    "follow a hub": lambda c: c.sources.create("huggingface", "digits", secret="a-secret-of-16-b"),
    "job": lambda client: client.jobs.create("digits", "rebuild_buckets"),
    "cluster": lambda client: client.clusterings.create("digits"),
}
REPEATABLE: dict[str, Callable[[Client], object]] = {
    "space": lambda client: client.spaces.get("digits"),
    "ensure_space": lambda client: client.ensure_space("digits", num_parameters=100),
    "delete_space": lambda client: client.spaces.delete("digits"),
    "put_support": lambda client: client.put_support("digits", "a", SUPPORT),
    "get_support": lambda client: client.supports.get("digits", "a"),
    "models": lambda client: list(client.models.list("digits")),
    "neighbors": lambda client: client.neighbors("digits", "a"),
    "neighbors of a support": lambda client: client.neighbors("digits", SUPPORT),
    "donors of a support": lambda client: client.donors("digits", SUPPORT),
    "similarity": lambda client: client.similarity("digits", ["a", "b"]),
    **KEYED,
}
ONCE: dict[str, Callable[[Client], object]] = {
    "update_model": lambda client: client.models.update("digits", "a", tags=["x"]),
    "put if": lambda client: client.put_support("digits", "a", SUPPORT, if_match='"1"'),
    "put new": lambda client: client.put_support("digits", "a", SUPPORT, create_only=True),
    "delete if": lambda client: client.models.delete("digits", "a", if_match='"1"'),
}
TRANSIENT = {
    "refused": httpx.ConnectError("refused"),
    "connect timeout": httpx.ConnectTimeout(""),
    "reset": httpx.ReadError("reset"),
    "cut": httpx.RemoteProtocolError("cut"),
    "429": httpx.Response(429, json={"code": "too_many_requests"}),
    "503": httpx.Response(503, json={"code": "unavailable"}),
}
LASTING = {
    "slow": httpx.ReadTimeout(""),
    "400": httpx.Response(400, json={"code": "no"}),
    "409": httpx.Response(409, json={"code": "no"}),
    "500": httpx.Response(500, json={"code": "no"}),
    "too much": httpx.Response(503, json={"code": "too_much"}),
    "502": httpx.Response(502, html="<h1>"),
}


@pytest.mark.parametrize("failure", TRANSIENT.values(), ids=TRANSIENT.keys())
@pytest.mark.parametrize("operation", REPEATABLE.values(), ids=REPEATABLE.keys())
def test_repeatable_requests_are_repeated(
    operation: Callable[[Client], object], failure: Any, wire: Any
) -> None:
    """A request that may be sent twice is tried four times, after pauses that double."""
    with pytest.raises((ApiError, ConnectionFailed)):
        operation(wire.client(failure))
    assert (4, [0.25, 0.5, 1.0]) == (len(wire.requests), wire.pauses)
    assert 1 == len({(r.method, str(r.url), r.content) for r in wire.requests})
    assert 1 == len({request.headers.get("idempotency-key") for request in wire.requests})


@pytest.mark.parametrize("operation", KEYED.values(), ids=KEYED.keys())
def test_each_call_has_a_key_of_its_own(operation: Callable[[Client], object], wire: Any) -> None:
    """What makes something carries an idempotency key, another one in each call."""
    client = wire.client(httpx.Response(409, json={"code": "no"}))
    for _ in range(2):
        with pytest.raises(ApiError):
            operation(client)
    first, second = (request.headers["idempotency-key"] for request in wire.requests)
    assert first != second


@pytest.mark.parametrize("failure", TRANSIENT.values(), ids=TRANSIENT.keys())
@pytest.mark.parametrize("operation", ONCE.values(), ids=ONCE.keys())
def test_other_requests_are_sent_once(
    operation: Callable[[Client], object], failure: Any, wire: Any
) -> None:
    """An update or a conditional write could meet its own first effect, so it is not repeated."""
    with pytest.raises((ApiError, ConnectionFailed)):
        operation(wire.client(failure))
    assert (1, []) == (len(wire.requests), wire.pauses)


@pytest.mark.parametrize("failure", LASTING.values(), ids=LASTING.keys())
def test_lasting_failures_are_not_repeated(failure: Any, wire: Any) -> None:
    """Refusals and slow answers would not be better the second time."""
    with pytest.raises((ApiError, ConnectionFailed)):
        wire.client(failure).spaces.get("digits")
    assert 1 == len(wire.requests)


def test_success_ends_the_tries(wire: Any, space_json: dict[str, Any]) -> None:
    """Two failures of different kinds and a success are a success."""
    client = wire.client(
        httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(200, json=space_json)
    )
    assert "digits" == client.spaces.get("digits").name
    assert [0.25, 0.5] == wire.pauses


def test_no_pause_outlasts_the_call(wire: Any) -> None:
    """A service that asks for more than is left of the call is not waited for."""
    busy = httpx.Response(503, headers={"Retry-After": "30"}, json={"code": "unavailable"})
    with pytest.raises(ApiError, match="503"):
        wire.client(busy, timeout=20.0).spaces.get("digits")
    assert (1, []) == (len(wire.requests), wire.pauses)


def test_retries_may_be_switched_off(wire: Any) -> None:
    """retries=0 is one try."""
    with pytest.raises(ApiError):
        wire.client(httpx.Response(503), retries=0).spaces.get("digits")
    assert (1, []) == (len(wire.requests), wire.pauses)


def test_the_service_may_ask_for_a_pause(wire: Any, space_json: dict[str, Any]) -> None:
    """Retry-After is waited in full, and the client's own pause on top."""
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    wire.client(busy, httpx.Response(200, json=space_json)).spaces.get("digits")
    assert [7.25] == wire.pauses


def test_a_long_pause_is_not_waited(wire: Any) -> None:
    """A service that asks for an hour gets no retry, and its refusal is raised at once."""
    busy = httpx.Response(503, json={"code": "unavailable"}, headers={"Retry-After": "3600"})
    with pytest.raises(ApiError, match="503 unavailable"):
        wire.client(busy).spaces.get("digits")
    assert (1, []) == (len(wire.requests), wire.pauses)


SENT = "Sun, 06 Nov 1994 08:49:07 GMT"


@pytest.mark.parametrize(
    ("after", "date", "seconds"),
    [
        ("12", None, 12.0),
        ("9" * 400, None, math.inf),
        ("Sun, 06 Nov 1994 08:49:37 GMT", SENT, 30.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 09:49:07 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None, None),
        ("Sun, 06 Nov 1994 08:49:37 -0000", SENT, None),
        ("Mon, 20 Nov 99999999999999999999 19:12:08 GMT", SENT, None),
        ("-5", None, None),
        ("soon", None, None),
        ("٣", None, None),
        ("", None, None),
    ],
)
def test_retry_after(after: str, date: str | None, seconds: float | None) -> None:
    """Seconds or a date against the answer's own clock; anything else asks for nothing."""
    headers = {"retry-after": after} | ({"date": date} if date else {})
    assert seconds == retry_after(headers)


def test_retry_after_by_our_clock() -> None:
    """Where an answer has no clock, the caller may bring one."""
    headers = {"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}
    now = datetime(1994, 11, 6, 8, 49, 30, tzinfo=UTC)
    assert 7.0 == retry_after(headers, now)
    assert 30.0 == retry_after(headers | {"date": SENT}, now)


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_pauses_are_bounded_and_spread(jitter: float) -> None:
    """A pause is the drawn share of one that doubles up to its bound, and the last try is last."""
    backoff = Backoff(retries=9)
    pauses = [backoff.after_failure(GET, attempt, jitter) for attempt in range(10)]
    assert [jitter * min(8.0, 0.25 * 2**n) for n in range(9)] == pauses[:9]
    assert pauses[9] is None


def test_a_deletion_whose_answer_was_lost_is_done(wire: Any) -> None:
    """Where the first try may have deleted it, a 404 at the second means that it is gone."""
    gone = httpx.Response(404, json={"code": "model_not_found"})
    wire.client(httpx.ReadError("reset"), gone).models.delete("digits", "a")
    assert 2 == len(wire.requests)


@pytest.mark.parametrize("first", [httpx.ConnectError("refused"), httpx.Response(503)])
def test_a_deletion_that_never_arrived_is_not_done(first: Any, wire: Any) -> None:
    """Where no try can have deleted it, a 404 says that there was no such model."""
    gone = httpx.Response(404, json={"code": "model_not_found"})
    with pytest.raises(ApiError, match="model_not_found"):
        wire.client(first, gone).models.delete("digits", "a")
