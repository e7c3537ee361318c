"""What is wrong with a value, in the words of the service where pydantic has its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelkin.core.quoting import quote

__all__ = ["text_of"]

_WHOLE: Final = "it must be a whole number"
_NUMBER: Final = "it must be a number"
_BOOLEAN: Final = "it must be true or false"
_LIST: Final = "it must be a list"
_OBJECT: Final = "it must be an object"
_TIME: Final = "it must be a time, such as 2026-12-01T09:30:00Z"
_TEXTS: Final[Mapping[str, str]] = {
    "missing": "it is missing",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), _WHOLE),
    "int_parsing_size": "it must be a number of fewer digits",
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    "finite_number": "it must be a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), _BOOLEAN),
    "string_type": "it must be a text",
    "string_too_short": "it must have at least {min_length} characters",
    "string_too_long": "it must have at most {max_length} characters",
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be at most {le}",
    **dict.fromkeys(("literal_error", "enum"), "it must be {expected}"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), _OBJECT),
    "too_short": "it must have at least {min_length} entries",
    "too_long": "it must have at most {max_length} entries",
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "datetime_type"), _TIME),
}
"""By pydantic's types of errors; those of our own validators are sentences already."""
_LONG: Final = frozenset({"string_too_long", "too_long", "too_short"})
"""The errors whose message does not repeat the value."""


def text_of(error: Mapping[str, Any]) -> str:
    """The message of one of pydantic's errors, with the value where that is one of a few words."""
    kind, given = error["type"], error.get("input")
    words = _TEXTS.get(kind)
    if words is None or ("{" in words and "ctx" not in error):
        return str(error["msg"]).removeprefix("Value error, ")
    text = words.format_map(error.get("ctx", {}))
    text = text.replace(" 1 characters", " 1 character").replace(" 1 entries", " 1 entry")
    is_shown = kind not in _LONG and isinstance(given, str | int | float)
    return f"{text}, not {quote(given)}" if is_shown and kind != "missing" else text
