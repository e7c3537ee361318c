"""The operations of a client: its public methods, and those of its namespaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def operations(client: Any, prefix: str = "") -> dict[str, Callable[..., Any]]:
    """The public methods of a client and of its namespaces, by their paths."""
    found: dict[str, Callable[..., Any]] = {}
    for name in dir(client):
        if name.startswith("_"):
            continue
        value = getattr(client, name)
        if callable(value):
            found[prefix + name] = value
        elif type(value).__module__.startswith("modelkin.client."):
            found |= operations(value, f"{prefix}{name}.")
    return found
