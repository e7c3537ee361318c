"""A request and a response as plain values, and what a refusal says.

Owns the passage from a response that is no success to an :class:`ApiError`. It never does I/O.
"""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from modelkin.errors import ApiError

__all__ = ["Request", "Response", "api_error", "excerpt", "media_type", "parse_json", "printable"]

_EXCERPT = 200
"""Characters of a foreign answer that an error shows."""


@dataclass(frozen=True, slots=True)
class Request:
    """What goes out.

    Attributes:
        path: from ``/v1`` on, percent-encoded.
        params: the query, not encoded yet; names may repeat.
        idempotent: sent twice it does the same as sent once, so it may be retried.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    idempotent: bool = False

    @property
    def target(self) -> str:
        """Path and query, encoded: ``quote`` and not ``quote_plus``, for + is a letter of names."""
        query = urlencode(self.params, quote_via=quote, safe="")
        return f"{self.path}?{query}" if query else self.path

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers with the length of the body, which is known however it is sent."""
        length = {"Content-Length": str(len(self.content))} if self.content else {}
        return {**self.headers, **length}


@dataclass(frozen=True, slots=True)
class Response:
    """What came back.

    Attributes:
        headers: by lower-case name.
        repeated: an earlier try of the same request may already have taken effect.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes = field(default=b"", repr=False)
    repeated: bool = False


def media_type(response: Response) -> str:
    """The media type without its parameters, in lower case; ``""`` where none is given."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(response: Response) -> Any:
    """The body as JSON.

    Raises:
        ApiError: it is not JSON; shows its first characters.
    """
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        raise foreign_answer(response) from None


def api_error(response: Response) -> ApiError:
    """The error that a response of a status other than 2xx is."""
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


def excerpt(content: bytes) -> str:
    """The first characters of a body on one line, without what does not print."""
    return printable(content[: 4 * _EXCERPT].decode("utf-8", errors="replace"))


def _from_problem(response: Response, problem: dict[str, Any]) -> ApiError:
    """RFC 9457, with this service's ``code``, ``request_id`` and ``errors`` beside it."""
    detail = problem.get("detail") or problem.get("title") or _phrase(response.status)
    listed = problem.get("errors")
    errors = tuple(
        {str(key): str(value) for key, value in item.items()}
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict)
    )
    code = problem.get("code") or f"http_{response.status}"
    return _error(response, str(code), str(detail), problem.get("request_id"), errors)


def _error(
    response: Response,
    code: str,
    detail: str,
    request_id: Any = None,
    errors: tuple[dict[str, str], ...] = (),
) -> ApiError:
    known = request_id if isinstance(request_id, str) else response.headers.get("x-request-id")
    return ApiError(response.status, code, detail, request_id=known, errors=errors)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def printable(text: str) -> str:
    """The first characters of foreign text on one line, without what does not print."""
    words = " ".join(text.split())
    return "".join(c for c in words if c.isprintable())[:_EXCERPT]
