"""Decode JSON answers into ``modelkin.types`` with msgspec.

Decoding is strict: a field of another type, or a required one that is missing, is an
:class:`UnknownFormError` with its path. Unknown fields of newer services are ignored, and optional
fields that an older service leaves out take their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from modelkin.client._transport.errors import foreign_answer
from modelkin.client._transport.messages import Response
from modelkin.core.foreign_json import decoder_of

__all__ = ["Prepare", "UnknownFormError", "decode", "decode_page", "reader"]

T = TypeVar("T")

Prepare: TypeAlias = Callable[[dict[str, Any]], None]
"""A function that changes a JSON object in place, where its form differs from its type."""


class UnknownFormError(Exception):
    """An answer whose form differs from its type; the message has the path."""


def reader(form: type[T]) -> Callable[[Response], T]:
    """A function that decodes the body of a response as this type."""
    return lambda response: decode(response, form)


def decode(response: Response, form: type[T], prepare: Prepare | None = None) -> T:
    """Decode the body of a response as a value of a type.

    Args:
        response: an answer with a body of JSON.
        form: a type of ``modelkin.types``.
        prepare: a function that is applied to the body first, if the body is an object.

    Raises:
        ApiError: the body is not JSON, and so not from a modelkin service.
        UnknownFormError: the body is JSON of another form.
    """
    decoder = decoder_of(form)
    try:
        if prepare is None:
            return decoder.decode(response.content)
        body = msgspec.json.decode(response.content)
        _prepare(body, prepare)
        return msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        raise UnknownFormError(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise foreign_answer(response) from None


def decode_page(response: Response, form: type[T], prepare: Prepare) -> T:
    """Decode a page, whose items are each prepared; see :func:`decode`."""

    def prepare_items(body: dict[str, Any]) -> None:
        items = body.get("items")
        for item in items if isinstance(items, list) else ():
            _prepare(item, prepare)

    return decode(response, form, prepare_items)


def _prepare(body: Any, prepare: Prepare) -> None:
    if isinstance(body, dict):
        prepare(body)
