"""``HubEvent``: a hub's webhook, parsed and validated, the same for every kind of hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

__all__ = ["HubEvent", "InvalidWebhookSignature", "WebhookReader", "part", "text"]

_MAX_TEXT_LENGTH = 200


class InvalidWebhookSignature(Exception):
    """The webhook's secret or signature is wrong; the message shows the source's owner why."""


@dataclass(frozen=True, slots=True)
class HubEvent:
    """A hub event: the parsed payload of a hub's webhook.

    Attributes:
        event: the kind of event, such as ``repo.content.update``.
        model: the model's present name on the hub.
        moved_from: its previous name.
        revision: the revision that the payload names.
        tags: the tags that the payload names; None if it names none.
        ignored: the reason why no sync is needed; None if a sync is needed.
        gone: whether the payload says that the model was deleted.
    """

    event: str
    model: str | None = None
    moved_from: str | None = None
    revision: str | None = None
    tags: tuple[str, ...] | None = None
    ignored: str | None = None
    gone: bool = False


class WebhookReader(Protocol):
    """Verifies and parses the webhooks of a kind of hub; a module can be one."""

    def verify(self, secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
        """Raise :class:`InvalidWebhookSignature` unless the sender knows the secret."""

    def event_id(self, headers: Mapping[str, str], body: bytes, document: Any) -> str:
        """The id under which an event is recorded once, however often it is sent."""

    def read(self, document: Any) -> HubEvent:
        """Parse a payload."""


def part(document: Any, *names: str) -> Any:
    """The value at a path of keys; None where the path does not exist."""
    for name in names:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text(document: Any, *names: str) -> str | None:
    """The text at a path of keys, if it can be stored and shown; None for everything else."""
    value = part(document, *names)
    if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT_LENGTH and value.isprintable():
        return value
    return None
