"""What every answer says to a browser: load, run, frame and pass on nothing.

A page sets a ``Content-Security-Policy`` of its own, which names what it is made of; all else has
:data:`NOTHING`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Final

__all__ = ["HEADERS", "NOTHING", "POLICY", "page_policy", "sha256_source"]

POLICY: Final = "Content-Security-Policy"


def page_policy(**sources: str) -> str:
    """The policy of a page that is made of these sources alone.

    Args:
        sources: where a kind of resource may come from: ``style_src="'self'"``.
    """
    allowed = [f"{kind.replace('_', '-')} {source}" for kind, source in sources.items()]
    closed = ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(["default-src 'none'", *allowed, *closed])


def sha256_source(text: str) -> str:
    """The source that allows exactly this text between the tags of a style or a script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


NOTHING: Final = page_policy()
"""The policy of all answers but pages."""

HEADERS: Final[Mapping[str, str]] = {
    POLICY: NOTHING,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer, unless it sets them itself."""
