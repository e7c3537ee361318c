"""What the transport errors of httpx mean to a caller: which may be retried, and the one line said.

Shared by the synchronous and the asynchronous client. It never sends anything.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator

import httpx

from modelkin.client._transport.messages import Request
from modelkin.errors import ConnectionFailed

__all__ = ["connection_failed", "may_have_arrived", "may_retry"]

_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError)


def may_retry(error: httpx.RequestError) -> bool:
    """Whether another try could fare better: refused or broken connections, not slow answers.

    A read timeout is not retried: the service is working, and more of the same makes it slower.
    """
    return isinstance(error, _NOT_CONNECTED + _BROKEN) and not _is_certificate(error)


def may_have_arrived(error: httpx.RequestError) -> bool:
    """Whether the service may have acted on the request although no answer came."""
    return not isinstance(error, _NOT_CONNECTED)


def connection_failed(error: httpx.RequestError, request: Request, url: str) -> ConnectionFailed:
    """The error to raise, in one line: what happened and what to do."""
    reason = _reason(error)
    if isinstance(error, httpx.ProxyError):
        return ConnectionFailed(f"the proxy on the way to {url} refused ({reason})")
    if _is_certificate(error):
        return ConnectionFailed(
            f"{url} shows a certificate that is not trusted here ({reason}): set SSL_CERT_FILE to "
            f"its authority's, or correct MODELKIN_URL"
        )
    if not may_have_arrived(error):
        return ConnectionFailed(
            f"no modelkin service answers at {url} ({reason}): start one with `python -m app`, "
            f"or set MODELKIN_URL"
        )
    if isinstance(error, httpx.TimeoutException):
        what = "did not finish in time; give the client a longer timeout"
    else:
        what = f"got no whole answer ({reason})"
    doubt = "" if request.method == "GET" else "; whether it took effect is not known"
    return ConnectionFailed(f"{request.method} {request.path} at {url} {what}{doubt}")


def _reason(error: BaseException) -> str:
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return "the host name is not known"
        if isinstance(cause, ssl.SSLError):
            return getattr(cause, "verify_message", "") or cause.strerror or str(cause)
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
    if isinstance(error, httpx.TimeoutException):
        return "no connection within the timeout"
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
