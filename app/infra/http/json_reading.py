"""JSON bodies read strictly: parsed and validated in one step, by whichever process.

The process that reads long bodies imports this, and nothing of HTTP.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from modelkin.errors import InvalidParameter
from modelkin.wire.json import parse_json

__all__ = ["Validation", "parse_strictly", "validated"]

_MAX_NAMES: Final = 256
"""Names in an object. No operation takes more, and each unknown one is a mistake to list."""
_MAX_ERRORS: Final = 100
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

Validation: TypeAlias = tuple[Any, list[Any]]
"""The model, or what is wrong with it by pydantic."""


def parse_strictly(body: bytes) -> Any:
    """Parse JSON; ValueError says why it is invalid, or why it is refused."""
    document = parse_json(body, InvalidParameter, max_names=_MAX_NAMES)
    if b"\\" in body and _SURROGATE.search(body):  # most are pairs, and make a character
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidParameter("this is not valid JSON: half a surrogate pair") from None
    return document


def validated(kind: Any, body: bytes) -> Validation:
    """The body of an operation, parsed and then validated.

    Args:
        kind: the type that the operation declares.
        body: as it was sent.

    Raises:
        InvalidParameter: it is not JSON, or beyond the bounds on JSON.
    """
    document = parse_strictly(body)
    try:
        return _adapter(kind).validate_python(document), []
    except ValidationError as error:
        return None, _listed(error)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _listed(error: ValidationError) -> list[Any]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{**entry, "loc": ("body", *entry["loc"])} for entry in found[:_MAX_ERRORS]]
