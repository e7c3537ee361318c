"""The headers of every answer for browsers: load, run, frame and pass on nothing.

A page sets its own ``Content-Security-Policy``, which names its sources; all other answers have
:data:`NOTHING`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HEADERS", "NOTHING", "POLICY", "page_policy"]

POLICY: Final = "Content-Security-Policy"


def page_policy(**sources: str) -> str:
    """The policy of a page that is made of these sources alone.

    Args:
        sources: the source of a kind of resource, or the target of forms: ``style_src="'self'"``.
    """
    closed = {"base_uri": "'none'", "form_action": "'none'", "frame_ancestors": "'none'"}
    given = {kind: source for kind, source in sources.items() if kind not in closed}
    whole = {"default_src": "'none'", **given, **closed, **sources}
    return "; ".join(f"{kind.replace('_', '-')} {source}" for kind, source in whole.items())


NOTHING: Final = page_policy()
"""The policy of all answers but pages."""

HEADERS: Final[Mapping[str, str]] = {
    POLICY: NOTHING,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer, unless it sets them itself."""
