"""What a case of the table is: the bytes that a client sends, and all that it may be answered."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CLOSED", "HOST", "KEPT", "NEXT", "READ", "SMUGGLED", "Case", "chunked", "get", "post"]

HOST: Final = "Host: localhost"
SMUGGLED: Final = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that lies in the bytes of another one, and must never be answered."""
NEXT: Final = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""The request of another client, which a proxy sends behind each case on the same connection."""

CLOSED: Final = (400,)
"""The request is refused and its connection closed, so that nothing behind it is answered."""
KEPT: Final = (200, 200)
"""A question is answered, and then the next request."""
READ: Final = (401, 200)
"""The body is read, which is no key, and then the next request is answered."""


class Case(NamedTuple):
    """Bytes of a client and the statuses of all answers, that to ``NEXT`` included.

    Attributes:
        ends: whether the client sends nothing more after these bytes, not even ``NEXT``.
    """

    sent: str
    answered: tuple[int, ...]
    ends: bool = False


def get(*fields: str, target: str = "/livez", method: str = "GET", version: str = "1.1") -> str:
    """The head of a request with these lines of fields."""
    return "\r\n".join([f"{method} {target} HTTP/{version}", *fields, "", ""])


def post(*fields: str, body: str = SMUGGLED, method: str = "POST", version: str = "1.1") -> str:
    """A request whose body is read as a form, behind the ``Host`` and these lines of fields."""
    return get(HOST, *fields, target="/sign-in", method=method, version=version) + body


def chunked(body: str, *fields: str) -> str:
    """A request whose body comes in chunks."""
    return post("Transfer-Encoding: chunked", *fields, body=body)
