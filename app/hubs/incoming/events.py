"""What a delivery tells, whichever hub it comes from, and how little is taken for granted in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["InvalidWebhookSignature", "HubEvent", "part", "text"]

_LONGEST = 200


class InvalidWebhookSignature(Exception):
    """Nothing vouches for a delivery; says why, for whoever owns its source."""


@dataclass(frozen=True, slots=True)
class HubEvent:
    """A delivery, understood as far as it can be.

    Attributes:
        event: what happened, ``repo.content.update``.
        model: whom it is about, by its name on the hub now.
        moved_from: the name it had before.
        revision: what it is said to be at.
        tags: those it is said to carry; None where that is not said.
        ignored: why nobody has to look; None if somebody has to.
        gone: it is said to have been deleted.
    """

    event: str
    model: str | None = None
    moved_from: str | None = None
    revision: str | None = None
    tags: tuple[str, ...] | None = None
    ignored: str | None = None
    gone: bool = False


def part(document: Any, *names: str) -> Any:
    """What stands under some names, one inside the other; None where that leads nowhere."""
    for name in names:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text(document: Any, *names: str) -> str | None:
    """The same, where it is a text that can be stored and shown; None for everything else."""
    value = part(document, *names)
    if isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable():
        return value
    return None
