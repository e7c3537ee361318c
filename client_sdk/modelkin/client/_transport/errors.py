"""The errors of a call: refusals as :class:`ApiError`, and failed connections.

The status selects the class of a refusal only here. Both clients use this module, which never sends
anything.
"""

from __future__ import annotations

import http
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import httpx

from modelkin._http_dates import retry_after
from modelkin._server_folder import operator_command
from modelkin._terminal_text import one_line
from modelkin.client._transport.deadline import Deadline
from modelkin.client._transport.messages import Request, Response, excerpt, media_type, printable
from modelkin.core.quoting import quote
from modelkin.errors import (
    ApiError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    ConnectionFailed,
    MediaTypeError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitError,
    RequestTooLargeError,
    ServerError,
    UnprocessableEntityError,
)

__all__ = [
    "api_error",
    "connection_failure",
    "foreign_answer",
    "may_have_arrived",
    "may_retry",
]

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    406: MediaTypeError,
    409: ConflictError,
    412: PreconditionError,
    413: RequestTooLargeError,
    415: MediaTypeError,
    422: UnprocessableEntityError,
    428: PreconditionError,
}
"""The classes by status, beside 429 and from 500 on; any other is a plain ``ApiError``."""

_MOST_CHARACTERS: Final = 4_000
_MOST_ERRORS: Final = 100
_MOST_FIELDS: Final = 10
"""The most of a refusal that an error repeats."""

_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError)


def api_error(response: Response) -> ApiError:
    """The error for a response of a status other than 2xx."""
    if 300 <= response.status < 400:
        location = printable(response.headers.get("location", "nowhere"))
        detail = f"it redirects to {location}; redirects are not followed, give that address as url"
        return _error(response, "redirected", detail)
    try:
        problem = json.loads(response.content)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict) or not {"code", "title", "detail"} & problem.keys():
        return foreign_answer(response)
    return _from_problem(response, problem)


def foreign_answer(response: Response) -> ApiError:
    """The error for an answer that is not the service's own: a proxy's page, another program."""
    what = media_type(response) or "of no media type"
    shown = excerpt(response.content) or "nothing"
    detail = f"the answer is {what}, not from a modelkin service; it begins with: {shown}"
    return _error(response, "unexpected_answer", detail)


def may_retry(error: httpx.RequestError) -> bool:
    """Whether another try could fare better: refused or broken connections, not slow answers.

    A read timeout is not retried: the service is working, and a second request makes it slower.
    """
    return isinstance(error, _NOT_CONNECTED + _BROKEN) and not _is_certificate(error)


def may_have_arrived(error: httpx.RequestError) -> bool:
    """Whether the service may have acted on the request although no answer came."""
    return not isinstance(error, _NOT_CONNECTED)


def connection_failure(
    error: httpx.RequestError,
    request: Request,
    url: str,
    deadline: Deadline,
    proxy: str | None = None,
) -> ConnectionFailed:
    """The error to raise, with a message in one line: the cause and the remedy.

    Args:
        error: the transport's own error.
        request: the request that failed.
        url: the service's address.
        deadline: the time of the call.
        proxy: the address of the proxy on the way; None without one.
    """
    reason = _reason(error)
    if isinstance(error, httpx.ProxyError):
        return ConnectionFailed(f"the proxy on the way to {url} refused ({reason})")
    if _is_certificate(error):
        return ConnectionFailed(
            f"{url} shows a certificate that is not trusted here ({reason}): set SSL_CERT_FILE to "
            f"its authority's, or correct MODELKIN_URL"
        )
    if not may_have_arrived(error):
        if proxy is not None and not any(isinstance(e, ssl.SSLError) for e in _chain(error)):
            variable = f"{url.partition(':')[0].upper()}_PROXY"
            return ConnectionFailed(
                f"the proxy {proxy} on the way to {url} does not answer ({reason}): correct "
                f"{variable} or ALL_PROXY, or name the service's host in NO_PROXY"
            )
        remedy = f"start one with `{operator_command()}`, or set MODELKIN_URL"
        if any(isinstance(each, ssl.SSLError) for each in _chain(error)):
            remedy = f"if it speaks no TLS, try http://{url.partition('://')[2]}"
        return ConnectionFailed(f"no modelkin service answers at {url} ({reason}): {remedy}")
    if isinstance(error, httpx.TimeoutException):
        what = f"did not finish in time: {_time_limit(deadline)}"
    else:
        what = f"got no whole answer ({reason})"
    doubt = "" if request.method == "GET" else "; whether it took effect is not known"
    return ConnectionFailed(f"{request.method} {request.path} at {url} {what}{doubt}")


def _time_limit(deadline: Deadline) -> str:
    """The limit that ended a call, and the argument that sets it."""
    if deadline.left <= 0 or deadline.idle >= deadline.seconds:
        return f"it took {deadline.seconds:g} s; give the client a longer timeout"
    return f"it was silent for {deadline.idle:g} s; give the client a longer idle_timeout"


def _from_problem(response: Response, problem: dict[str, Any]) -> ApiError:
    """Read a problem document (RFC 9457) with ``code``, ``request_id`` and ``errors``."""
    detail = problem.get("detail") or problem.get("title") or _phrase(response.status)
    listed = problem.get("errors")
    errors = tuple(
        {_said(key): _said(value) for key, value in islice(item.items(), _MOST_FIELDS)}
        for item in (listed[:_MOST_ERRORS] if isinstance(listed, list) else ())
        if isinstance(item, dict)
    )
    code = problem.get("code") or f"http_{response.status}"
    return _error(response, _said(code), _said(detail), problem.get("request_id"), errors)


def _said(value: Any) -> str:
    """A text of a refusal on one line, and no longer than one can read."""
    text = value if isinstance(value, str) else quote(value)
    return one_line(text[:_MOST_CHARACTERS])


def _error(
    response: Response,
    code: str,
    detail: str,
    request_id: Any = None,
    errors: tuple[dict[str, str], ...] = (),
) -> ApiError:
    given = request_id if isinstance(request_id, str) else response.headers.get("x-request-id")
    known = None if given is None else _said(given)
    if response.status == 429:
        pause = retry_after(response.headers)
        return RateLimitError(429, code, detail, request_id=known, errors=errors, retry_after=pause)
    kind = ServerError if response.status >= 500 else _BY_STATUS.get(response.status, ApiError)
    return kind(response.status, code, detail, request_id=known, errors=errors)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _reason(error: BaseException) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no connection within the timeout"
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return "the host name is not known"
        if isinstance(cause, ssl.SSLError):
            return getattr(cause, "verify_message", "") or cause.strerror or str(cause)
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
    # httpcore keeps the system's error only as text: "[Errno 111] Connection refused".
    text = " ".join(str(error).split())
    return text.partition("] ")[2].lower() or text or type(error).__name__


def _is_certificate(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
