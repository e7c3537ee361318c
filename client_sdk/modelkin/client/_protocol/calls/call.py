"""``Call``: a request, and the reader of its answer.

Both clients send the same calls. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from modelkin._version import __version__
from modelkin.client._protocol.calls.decoding import UnknownFormError
from modelkin.client._transport.errors import api_error, foreign_answer
from modelkin.client._transport.messages import Request, Response
from modelkin.client._transport.messages import media_type as media_type_of
from modelkin.errors import InvalidInput, ModelkinError, SpaceMismatch
from modelkin.types.paging import Page

__all__ = ["Call", "answer", "content_of", "is_ready", "next_page", "read_nothing"]

T = TypeVar("T")

_NOT_READY = frozenset({502, 503, 504})
"""The statuses while a service starts; a gateway before it answers 502 or 504."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the reader of its answer."""

    request: Request
    parse: Callable[[Response], T]


def answer(call: Call[T], response: Response, url: str) -> T:
    """Read the result of a call.

    Args:
        call: the request, and how its answer is read.
        response: what the service answered, an error too.
        url: the service's address, for messages.

    Raises:
        ApiError: the service refused, or another program answers at its address.
        PayloadTooLarge: the answer decodes to more than it may.
        ModelkinError: this version cannot read the service's answer.
    """
    request = call.request
    if request.method == "DELETE" and response.repeated and response.status == 404:
        response = Response(204, {})  # the first attempt deleted it: its answer was lost
    if not 200 <= response.status < 300:
        raise api_error(response)
    try:
        return call.parse(response)
    except (UnknownFormError, InvalidInput, SpaceMismatch) as error:
        raise ModelkinError(
            f"the service at {url} answers {request.method} {request.path} in a form that modelkin "
            f"{__version__} does not know: {error}; upgrade modelkin, or the service"
        ) from error


def next_page(call: Call[Page[T]], page: Page[T], url: str) -> Call[Page[T]] | None:
    """The call for the page after the one that ``call`` gave, or None after the last page.

    Raises:
        ModelkinError: the service answered the cursor of the request, which would never end.
    """
    if page.next_cursor is None:
        return None
    here = ("cursor", page.next_cursor)
    if here in call.request.params:
        raise ModelkinError(f"the service at {url} answers the same page again")
    params = tuple(param for param in call.request.params if param[0] != "cursor")
    return replace(call, request=replace(call.request, params=(*params, here)))


def is_ready(response: Response) -> bool:
    """Whether a response to ``/readyz`` says that the service can answer.

    Raises:
        ApiError: the service refuses for another reason than that it is not ready.
    """
    if response.status in _NOT_READY:
        return False
    if not 200 <= response.status < 300:
        raise api_error(response)
    return True


def content_of(response: Response, media_type: str) -> bytes:
    """The body of a response of this media type.

    Raises:
        ApiError: the body is of another type.
    """
    if media_type_of(response) != media_type:
        raise foreign_answer(response)
    return response.content


def read_nothing(response: Response) -> None:
    """Read the answer to a deletion, which has no body."""
