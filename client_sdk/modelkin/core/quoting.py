"""Values of strangers in messages: in ASCII, and never long, whatever a file or a body holds."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

__all__ = ["quote"]

_MAX_LENGTH: Final = 80
_MAX_DIGITS: Final = 40


def quote(value: Any) -> str:
    """Quote a value for a message, in at most 80 characters of printable ASCII.

    Text is escaped, lone surrogates too. Of a long text or list, no more is read than the message
    shows. Python refuses to print an integer of thousands of digits, so a large one is described.

    Args:
        value: what JSON can hold, or a tuple; another value is written as ``ascii`` does.
    """
    if type(value) is int and abs(value) >= 10**_MAX_DIGITS:
        return f"an integer of over {_MAX_DIGITS} digits"
    try:
        text = ascii(_beginning(value))
    except (ValueError, RecursionError):  # a large integer inside, or a thousand levels
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


def _beginning(value: Any) -> Any:
    """Return what of a value may fit into a message; a longer one stays too long for it."""
    if isinstance(value, str | list | tuple):
        return value[:_MAX_LENGTH]
    if isinstance(value, dict):
        return dict(islice(value.items(), _MAX_LENGTH))
    return value
