"""The web's *origin* of a URL: scheme, host and port, which decide where a credential may go."""

from __future__ import annotations

import httpx

from app.infra.egress.addresses import PORTS

__all__ = ["WebOrigin", "web_origin"]

WebOrigin = tuple[str, bytes, int | None]
"""A scheme, a host as DNS is asked for it, and a port; None where the scheme has no default."""


def web_origin(url: str) -> WebOrigin:
    """The origin of a valid URL, as the client that sends the credential reads the URL.

    A dot at the end makes another host of a name: only without it are search domains tried.

    Raises:
        httpx.InvalidURL: this is no URL.

    Source: RFC 6454, section 4.
    """
    parsed = httpx.URL(url)
    port = PORTS.get(parsed.scheme) if parsed.port is None else parsed.port
    return parsed.scheme, parsed.raw_host, port
