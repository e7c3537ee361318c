"""JSON bodies read strictly: parsed and validated in one step, by whichever process.

The process that reads long bodies imports this, and nothing of HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from app.near_names import did_you_mean
from modelkin.errors import InvalidParameter
from modelkin.wire.json import parse_json

__all__ = ["Validation", "parse_strictly", "validate_body"]

_MAX_NAMES: Final = 256
"""Names in an object. No operation takes more, and each unknown one is a mistake to list."""
_MAX_ERRORS: Final = 100
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

Validation: TypeAlias = tuple[Any, list[Any]]
"""The model, or the errors that pydantic found."""


def parse_strictly(body: bytes) -> Any:
    """Parse JSON; ValueError says why it is invalid, or why it is refused."""
    document = parse_json(body, InvalidParameter, max_names=_MAX_NAMES)
    if b"\\" in body and _SURROGATE.search(body):  # most are pairs, and make a character
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidParameter("this is not valid JSON: half a surrogate pair") from None
    return document


def validate_body(body_type: Any, body: bytes) -> Validation:
    """Return the body of an operation, parsed and then validated.

    Args:
        body_type: the type that the operation declares.
        body: the body as it was sent.

    Raises:
        InvalidParameter: the body is not JSON, or beyond the bounds on JSON.
    """
    document = parse_strictly(body)
    try:
        return _adapter(body_type).validate_python(document), []
    except ValidationError as error:
        return None, _error_entries(body_type, error)


@cache
def _adapter(body_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(body_type)


def _error_entries(body_type: Any, error: ValidationError) -> list[Any]:
    found = error.errors(include_url=False, include_context=True, include_input=False)
    return [
        {**_explain(body_type, entry), "loc": ("body", *entry["loc"])}
        for entry in found[:_MAX_ERRORS]
    ]


def _explain(body_type: Any, entry: Any) -> Any:
    """Explain the error of a field; for an unknown field, name a near known one, or all of them."""
    if entry["type"] != "extra_forbidden":
        return entry
    *place, name = entry["loc"]
    known = _known_fields(body_type, place)
    hint = did_you_mean(str(name), known) or f" (known: {', '.join(known)})"
    return {**entry, "msg": f"unknown field{hint}"}


def _known_fields(body_type: Any, place: Sequence[Any]) -> list[str]:
    """The fields of the objects at a place of a body.

    Args:
        place: names of fields, positions in lists, and what pydantic calls the parts of a union.
    """
    types = list(_object_types(body_type))
    for part in place:
        inner = [_fields(each)[part] for each in types if part in _fields(each)]
        types = [each for field in inner for each in _object_types(field)] or types
    return sorted({name for each in types for name in _fields(each)})


def _object_types(declared: Any) -> Iterator[Any]:
    """The types of objects that a type is, holds in a list, or may be."""
    if _fields(declared):
        yield declared
    for part in get_args(declared):
        yield from _object_types(part)


def _fields(declared: Any) -> dict[str, Any]:
    """The types of a model's or typed dictionary's fields, by name; empty for any other type."""
    if is_typeddict(declared):
        return get_type_hints(declared)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return {name: field.annotation for name, field in declared.model_fields.items()}
    return {}
