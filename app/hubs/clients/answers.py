"""Parts of a hub's answer as they are used: names are refused if they are no text, others dropped.

An answer is decoded field by field. What no client asks for makes no objects, and a part that is of
another type than expected counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

import httpx
from msgspec import ValidationError

from app.infra.errors import HubProtocolError
from modelkin.core.foreign_json import NULL, Raw, decode_json, without_half_pairs
from modelkin.core.quoting import quote

__all__ = [
    "escaped",
    "integer_of",
    "is_true",
    "items_of",
    "moment_of",
    "name_of",
    "part_of",
    "path_of",
    "read_answer",
    "shown",
    "text_of",
]

T = TypeVar("T")

_MAX_LENGTH: Final = 2000
_MAX_VALUES: Final = 1_000_000
"""The most values of one answer, counted by its commas: each may become an object here."""
_REPLACED: Final = "\ufffd"
"""The character in place of what was no text: half a surrogate pair."""


def read_answer(body: bytes | bytearray, form: type[T], who: str, path: str) -> T:
    """The value of a whole answer.

    Args:
        form: its type. Half a surrogate pair in a text of it becomes U+FFFD.
        who: the beginning of an error, which ends with the path.

    Raises:
        HubProtocolError: it is not JSON, of another type, or of too many values.
    """
    if body.count(b",") > _MAX_VALUES:
        raise HubProtocolError(f"{who} more than {_MAX_VALUES:,} values to {path}")
    try:
        return decode_json(without_half_pairs(body), form)
    except ValidationError:
        raise HubProtocolError(f"{who} something else than was asked for to {path}") from None
    except ValueError as error:
        raise HubProtocolError(f"{who} no JSON to {path}: {error}") from None


def part_of(part: Raw, form: type[T]) -> T | None:
    """A part of an answer; None where it is of another type."""
    try:
        return decode_json(part, form)
    except ValueError:
        return None


def items_of(part: Raw) -> Iterator[Raw]:
    """The items of a list; none where it is no list."""
    return iter(part_of(part, list[Raw]) or ())


def text_of(part: Raw, max_length: int = _MAX_LENGTH) -> str | None:
    """A text that only describes, as :func:`shown` cuts it; None where it is no text."""
    return shown(part_of(part, str), max_length)


def name_of(part: Raw, what: str, max_length: int = _MAX_LENGTH) -> str | None:
    """A text that names something; None where there is none.

    Args:
        what: the field, for the error.

    Raises:
        HubProtocolError: it cannot be a name.
    """
    if part == NULL:
        return None
    name = shown(part_of(part, str), max_length)
    if name is None:
        raise HubProtocolError(
            f"the hub answers {what} {quote(escaped(part))}: that is no name, which has printable "
            f"characters alone"
        )
    return name


def shown(text: str | None, max_length: int = _MAX_LENGTH) -> str | None:
    """A text that can be stored and shown, cut to a length; None for any other."""
    cut = (text or "")[:max_length]
    return cut if cut and cut.isprintable() and _REPLACED not in cut else None


def escaped(part: Raw) -> str:
    """The beginning of a part that is no text, with escapes, for people."""
    return bytes(memoryview(part)[:_MAX_LENGTH]).decode("ascii", "backslashreplace").strip('"')


def path_of(url: httpx.URL) -> str:
    """The path of an address as it is sent, in ASCII: a redirect may lead to any."""
    return url.raw_path.partition(b"?")[0].decode("ascii")


def integer_of(part: Raw) -> int | None:
    """A number that is not negative; None for anything else."""
    value = part_of(part, int)
    return value if value is not None and value >= 0 else None


def moment_of(part: Raw) -> datetime | None:
    """A moment, as ISO 8601 with its offset or as milliseconds since 1970; None for others."""
    with suppress(ValueError, OverflowError, OSError):
        text = part_of(part, str)
        if text is not None and not text.isdecimal():
            moment = datetime.fromisoformat(text)
            return None if moment.tzinfo is None else moment.astimezone(UTC)
        if (number := part_of(part, int) if text is None else int(text)) is not None:
            return datetime.fromtimestamp(number / 1000, UTC)
    return None


def is_true(part: Raw) -> bool:
    """Whether a part is ``true``."""
    return part_of(part, bool) is True
