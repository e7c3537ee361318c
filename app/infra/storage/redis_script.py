"""Lua scripts for Redis; this module does not import its client."""

from __future__ import annotations

import hashlib

__all__ = ["Script"]


class Script:
    """A Lua script and the name under which Redis keeps it."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Redis names scripts by SHA-1; nothing is kept secret by it.
        self.sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
