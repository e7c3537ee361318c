"""The names of declared bases: as the hub calls them now, whatever their publishers wrote.

The hub knows which model an old name, another case or an address leads to. A name that it has once
resolved for a model stays what it was, since another model may take an old name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.hubs.clients.protocol import Hub, HubRevision
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError, HubUnavailable
from modelkin.errors import InvalidCheckpoint, ModelkinError, PayloadTooLarge

__all__ = ["LACKING", "BaseNames", "NamedBase"]

LACKING: Final = (HubNotFound, HubForbidden, HubProtocolError, InvalidCheckpoint, PayloadTooLarge)
"""The errors after which a base is permanently not available."""

_KEPT_S: Final = 60.0
"""Seconds for which a name is not asked again: about as long as the syncs of a listing follow."""
_MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class NamedBase:
    """A base that is declared, and what the hub says of it.

    Attributes:
        written: its name as the publisher wrote it, without a revision.
        name: its name on the hub now; where the hub does not have it, the name that is known.
        pin: the pinned revision as the hub resolves it, else as it is written; None without one.
        revision: its revision on the hub; None where it was not asked for, or there is none.
        error: the reason why there is none.
        former: the name that the hub was asked for, where that is not its name now.
    """

    written: str
    name: str
    pin: str | None = None
    revision: HubRevision | None = None
    error: ModelkinError | None = None
    former: str | None = None


class BaseNames:
    """Asks hubs for declared bases.

    Args:
        now: a clock of seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[tuple[str, str], tuple[float, str]] = {}
        self._lock = threading.Lock()

    def revision(self, hub: Hub, text: str, known: Mapping[str, str]) -> NamedBase:
        """The base that a text names, with its revision on the hub.

        Args:
            known: names on the hub by the names that the model's publisher wrote, as an earlier
                sync found them.

        Raises:
            HubUnavailable: the hub cannot be asked now.
        """
        written, pin = text.strip(), None
        try:
            written, pin = hub.reference(text)
            found = hub.look_up(known.get(written, written), pin)
        except LACKING as error:
            return NamedBase(written, self._name(hub, written, pin, known), pin, error=error)
        asked = known.get(written, written)
        former = None if asked == found.name else asked
        pin = None if pin is None else found.revision
        return NamedBase(written, found.name, pin, found, former=former)

    def names(
        self, hub: Hub, source: str, texts: Sequence[str], known: Mapping[str, str]
    ) -> list[NamedBase]:
        """The bases that texts name, without their revisions, unless a text pins one.

        A name is asked once for many models. While the hub is away, the names that are known count.

        Args:
            source: the id of the source, whose answers are kept apart from those of others.
        """
        return [self._named(hub, source, text, known) for text in texts]

    def forget(self, source: str) -> None:
        """Ask again for the names of a source: a model of its hub has another name now."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == source]:
                del self._kept[key]

    def _named(self, hub: Hub, source: str, text: str, known: Mapping[str, str]) -> NamedBase:
        written, pin = text.strip(), None
        try:
            written, pin = hub.reference(text)
            if pin is not None:
                return self.revision(hub, text, known)
            asked = known.get(written, written)
            name = self._find_kept(source, asked)
            if name is None:
                name = hub.look_up(asked).name
                self._keep(source, asked, name)
        except (HubUnavailable, *LACKING):
            asked = name = known.get(written, written)
        return NamedBase(written, name, pin, former=None if asked == name else asked)

    def _name(self, hub: Hub, written: str, pin: str | None, known: Mapping[str, str]) -> str:
        """The name of a base that lacks the pinned revision; the known one of any other base."""
        name = known.get(written, written)
        if pin is None:
            return name
        try:
            return hub.look_up(name).name
        except LACKING:
            return name

    def _find_kept(self, source: str, name: str) -> str | None:
        with self._lock:
            until, found = self._kept.get((source, name), (0.0, ""))
        return found if until > self._now() else None

    def _keep(self, source: str, name: str, found: str) -> None:
        with self._lock:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[source, name] = (self._now() + _KEPT_S, found)
