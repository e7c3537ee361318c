"""What a refusal becomes: problem documents, foreign pages, redirects, silence."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import httpx
import pytest

from modelkin.core.support import Support
from modelkin.errors import ApiError, ConnectionFailed

PROBLEM = {
    "type": "about:blank",
    "title": "Unprocessable Content",
    "status": 422,
    "code": "invalid_parameter",
    "detail": "k must be 1 to 1000",
    "request_id": "req-1",
    "errors": [{"field": "k", "message": "0 is below 1"}],
}
MEDIA = {"content-type": "application/problem+json"}


def refusal(wire: Any, answer: httpx.Response) -> ApiError:
    """The ApiError that this answer becomes."""
    with pytest.raises(ApiError) as caught:
        wire.client(answer).spaces.get("digits")
    return caught.value


def test_a_problem_document_is_told(wire: Any) -> None:
    """Status, code, detail, fields and request id are attributes and stand in the message."""
    error = refusal(wire, httpx.Response(422, json=PROBLEM, headers=MEDIA))
    assert (422, "invalid_parameter", "req-1") == (
        error.status,
        error.problem_code,
        error.request_id,
    )
    assert ({"field": "k", "message": "0 is below 1"},) == error.errors
    assert ("422 invalid_parameter: k must be 1 to 1000 (k: 0 is below 1) [request req-1]") == str(
        error
    )


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        ({"title": "Not Found"}, "http_404", "Not Found"),
        ({"detail": "no such thing", "errors": "many"}, "http_404", "no such thing"),
        ({"code": "gone"}, "gone", "Not Found"),
        ({"title": None}, "http_404", "Not Found"),
        ({"code": 7, "detail": {"a": 1}, "errors": [1, {"field": 2}]}, "7", "{'a': 1}"),
    ],
)
def test_poorer_problems_are_told_as_far_as_they_go(
    body: dict[str, Any], code: str, detail: str, wire: Any
) -> None:
    """A problem document without this service's fields still makes a readable error."""
    error = refusal(wire, httpx.Response(404, json=body, headers={"X-Request-Id": "req-9"}))
    assert (code, detail, "req-9") == (error.problem_code, error.detail, error.request_id)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            httpx.Response(502, html="<html>\r\n<h1>Bad\x1b[31m  Gateway</h1>" + "x" * 9999),
            "<html>",
        ),
        (httpx.Response(500, content=b"\xff\x00\xfe"), "of no media type"),
        (httpx.Response(500), "it begins with: nothing"),
        (httpx.Response(404, json=["not", "ours"]), "application/json"),
        (httpx.Response(500, content=b"[" * 100_000), "[[["),
    ],
)
def test_foreign_answers_show_their_beginning(
    answer: httpx.Response, shown: str, wire: Any
) -> None:
    """A proxy's page is an ApiError of one short, printable line."""
    error = refusal(wire, answer)
    assert (answer.status_code, "unexpected_answer") == (error.status, error.problem_code)
    assert shown in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 400


def test_redirects_are_not_followed(wire: Any) -> None:
    """A redirect is an error that says where it leads, so that no key goes there unasked."""
    error = refusal(wire, httpx.Response(307, headers={"location": "https://other.test/v1"}))
    assert "redirects to https://other.test/v1" in error.detail
    assert 1 == len(wire.requests)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "connection refused"),
        (httpx.ConnectTimeout("timed out"), "no connection within the timeout"),
        (httpx.ConnectError(""), "ConnectError"),
    ],
)
def test_a_service_that_is_down(failure: Exception, reason: str, wire: Any) -> None:
    """An address without a service is one line with the address, the reason and what to do."""
    with pytest.raises(ConnectionFailed) as caught:
        wire.client(failure, retries=0).spaces.get("digits")
    assert (
        f"no modelkin service answers at http://kin.test ({reason}): start one with "
        f"`modelkin serve`, or set MODELKIN_URL"
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "the host name is not known"),
        (ssl.SSLError(1, "wrong version number"), "wrong version number"),
    ],
)
def test_the_systems_reason_is_found_in_the_chain(cause: OSError, reason: str, wire: Any) -> None:
    """Where the transport hides the cause, the operating system's own words are shown."""
    failure = httpx.ConnectError("All connection attempts failed")
    failure.__cause__ = cause
    with pytest.raises(ConnectionFailed, match=rf"\({reason}\)"):
        wire.client(failure, retries=0).spaces.get("digits")


def test_a_service_without_tls_is_guessed(wire: Any) -> None:
    """Where the other side answers in no TLS, the address with http:// may be the one."""
    failure = httpx.ConnectError("tls")
    failure.__cause__ = ssl.SSLError(1, "wrong version number")
    with pytest.raises(ConnectionFailed, match=r"if it speaks no TLS, try http://kin\.test"):
        wire.client(failure, retries=0).spaces.get("digits")


def test_a_proxy_that_refuses_is_named(wire: Any) -> None:
    """A proxy in between is not taken for the service."""
    with pytest.raises(ConnectionFailed, match=r"the proxy on the way .* \(407 Proxy"):
        wire.client(httpx.ProxyError("407 Proxy Authentication Required")).spaces.get("digits")


def test_a_certificate_is_not_tried_twice(wire: Any) -> None:
    """A certificate that is not trusted will not be at the next try either."""
    failure = httpx.ConnectError("tls")
    failure.__cause__ = ssl.SSLCertVerificationError(1, "certificate verify failed")
    with pytest.raises(ConnectionFailed, match="certificate that is not trusted"):
        wire.client(failure).spaces.get("digits")
    assert 1 == len(wire.requests)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (httpx.ReadTimeout(""), "silent for 30 s; give the client a longer idle_timeout"),
        (httpx.RemoteProtocolError("Server disconnected"), "no whole answer (Server disconnected)"),
        (httpx.DecodingError("bad gzip"), "no whole answer (bad gzip)"),
    ],
)
def test_a_broken_exchange_leaves_doubt(failure: Exception, said: str, wire: Any) -> None:
    """A write whose answer was lost says that its effect is not known; a read has none."""
    client = wire.client(failure, retries=0)
    with pytest.raises(ConnectionFailed) as written:
        client.put_support("digits", "a", Support.from_indices([2, 5], 100))
    with pytest.raises(ConnectionFailed) as read:
        client.spaces.get("digits")
    assert said in str(written.value)
    assert str(written.value).endswith("whether it took effect is not known")
    assert "took effect" not in str(read.value)


def test_indices_are_never_shown(wire: Any) -> None:
    """Neither an error nor its chain repeats what was uploaded."""
    support = Support.from_indices([123456789, 987654321], 10**9)
    with pytest.raises(ConnectionFailed) as caught:
        wire.client(httpx.ReadError(""), retries=0).put_support("digits", "a", support)
    assert "123456789" not in repr(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (httpx.Response(200, json={"status": "ready"}), True),
        (httpx.Response(503, json=PROBLEM), False),
        (httpx.Response(502, html="<h1>Bad Gateway"), False),
        (httpx.ConnectError("refused"), False),
        (httpx.ReadTimeout(""), False),
    ],
)
def test_ready_answers_at_once(answer: Any, ready: bool, wire: Any) -> None:
    """ready() is one try, true only where the service says so, no error where none answers."""
    assert ready == wire.client(answer).ready()
    assert (1, []) == (len(wire.requests), wire.pauses)


def test_ready_is_not_asked_of_strangers(wire: Any) -> None:
    """An address where something else answers is an error rather than an endless wait."""
    with pytest.raises(ApiError, match="404"):
        wire.client(httpx.Response(404, html="<h1>Not Found")).ready()
