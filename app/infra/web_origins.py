"""The web's *origin* of a URL: scheme, host and port, which decide where a credential may go."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

__all__ = ["WebOrigin", "web_origin"]

WebOrigin = tuple[str, str, int | None]
"""A scheme, a host without a dot at its end, and a port; None where the scheme has no default."""
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


def web_origin(url: str) -> WebOrigin:
    """The origin of a valid URL, the same for every spelling of it.

    Raises:
        ValueError: the URL has no valid host or port.

    Source: RFC 6454, section 4.
    """
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").rstrip("."), port
