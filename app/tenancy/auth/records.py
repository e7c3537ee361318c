"""Records of tenants and API keys: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from modelkin.types.vocabulary import KeyState

__all__ = ["KEY_MARK", "KEY_PREFIX_LENGTH", "Identity", "KeyRecord", "OwnedSpace", "Tenant"]

KEY_MARK: Final = "mk_"
"""The text that every key begins with."""
KEY_PREFIX_LENGTH: Final = len(KEY_MARK) + 8
"""Characters of a key that are stored, and by which it is named."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The owner of data. Everything stored belongs to exactly one tenant."""

    id: int
    name: str


class OwnedSpace(Protocol):
    """A space as jobs and events name it: both lie below ``app.models``, which has the spaces."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def tenant_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """A tenant, and what it may do.

    Attributes:
        key_id: the id of the key of the request; None where keys are not required.
        prefix: the first characters of that key.
        session_id: the id of the visitor's session that stood for the key; else None.
    """

    tenant: Tenant
    scopes: frozenset[str]
    key_id: int | None = None
    prefix: str | None = None
    session_id: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """An API key as it is stored: its hash, and never itself.

    Attributes:
        prefix: the part of the key by which people recognize it.
        last_used_at: the hour of its last use, or its creation in that hour; written down some
            seconds later.
    """

    id: int
    tenant: Tenant
    prefix: str
    sha256: bytes
    label: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = None

    def state_at(self, now: datetime) -> KeyState:
        """Whether it opens anything at this time."""
        if self.revoked_at is not None:
            return "revoked"
        expired = self.expires_at is not None and self.expires_at <= now
        return "expired" if expired else "valid"
