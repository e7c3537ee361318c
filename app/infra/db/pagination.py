"""Cursors of listings: the last name of a page, opaque so that clients do not depend on it."""

from __future__ import annotations

import base64
import binascii

from modelkin.errors import InvalidParameter

__all__ = ["decode_cursor", "encode_cursor"]


def encode_cursor(name: str) -> str:
    """The cursor of the page that begins after ``name``."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The name that a page begins after; :class:`InvalidParameter` for any other text."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        name = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        name = ""
    if not name or "\0" in name:
        raise InvalidParameter(
            "this cursor was not given out by this listing: start again without one", field="cursor"
        )
    return name
