"""Requests and responses as plain values, and excerpts of foreign answers.

Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

__all__ = ["Request", "Response", "excerpt", "media_type", "printable"]

_EXCERPT_LENGTH = 200
"""The most characters of a foreign answer that an error shows."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        path: the path from ``/v1`` on, percent-encoded.
        params: the query, not encoded yet; names may repeat.
        idempotent: whether a second one changes nothing, so that the request may be retried.
        most: the most bytes of its answer; None for the most of the media type that it asks for.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    idempotent: bool = False
    most: int | None = None

    @property
    def target(self) -> str:
        """The path and query, encoded with ``quote``: ``quote_plus`` would change a + in a name."""
        query = urlencode(self.params, quote_via=quote, safe="")
        return f"{self.path}?{query}" if query else self.path

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers, with the length of the body."""
        length = {"Content-Length": str(len(self.content))} if self.content else {}
        return {**self.headers, **length}


@dataclass(frozen=True, slots=True)
class Response:
    """A response.

    Attributes:
        headers: the headers, by lower-case name.
        repeated: whether an earlier attempt of the same request may have taken effect.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes = field(default=b"", repr=False)
    repeated: bool = False


def media_type(response: Response) -> str:
    """The media type without its parameters, in lower case; ``""`` if there is none."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def excerpt(content: bytes) -> str:
    """The first printable characters of a body, on one line."""
    return printable(content[: 4 * _EXCERPT_LENGTH].decode("utf-8", errors="replace"))


def printable(text: str) -> str:
    """The first printable characters of a text, on one line."""
    words = " ".join(text.split())
    return "".join(c for c in words if c.isprintable())[:_EXCERPT_LENGTH]
