"""The contracts between services and stores: the records that pass, and what a blob store promises.

Records are plain frozen values: no session, no lazy loading, safe to hand to any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from modelkin.core.layout import Layout
from modelkin.types import SignatureSpec

__all__ = ["BlobStore", "KeyRecord", "Kind", "ModelRecord", "SpaceRecord", "Tenant"]

Kind = Literal["support", "signature"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose data it is. Everything stored belongs to exactly one tenant."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """An API key as it is stored: its hash, and never itself.

    ``prefix`` is the part of the key by which people tell it from others.
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


@dataclass(frozen=True, slots=True)
class SpaceRecord:
    """An index space: what supports must have in common to be compared.

    ``version`` grows by one with every change inside the space; it is the clock that the in-process
    index follows.
    """

    id: int
    tenant_id: int
    name: str
    num_parameters: int
    layout: Layout | None
    signature: SignatureSpec
    version: int
    supports: int
    signatures: int
    created_at: datetime

    @property
    def models(self) -> int:
        """How many models the space holds, of both kinds."""
        return self.supports + self.signatures


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model as the database knows it; its support lies in the blob ``blob_key``."""

    id: int
    space_id: int
    name: str
    kind: Kind
    support_size: int
    digest: str | None
    blob_key: str | None
    revision: int
    version: int
    attributes: dict[str, Any]
    source: str | None
    base_model: str | None
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...] = field(default=())


class BlobStore(Protocol):
    """Immutable bytes under opaque keys. A key never holds anything a user wrote."""

    def put(self, prefix: str, data: bytes) -> str:
        """Store ``data`` and answer its new key; once this returns it survives power loss."""

    def open(self, key: str) -> memoryview:
        """The bytes, mapped where that is possible; ``KeyError`` if there is no such blob."""

    def delete(self, key: str) -> None:
        """Forget one blob; deleting what is not there is no error."""

    def delete_prefix(self, prefix: str) -> None:
        """Forget every blob stored under ``prefix``."""

    def sweep(self, wanted: Callable[[Sequence[str]], set[str]], *, older_than: float) -> int:
        """Forget the blobs older than ``older_than`` seconds that nobody wants; how many.

        Args:
            wanted: those of some keys that must stay.
        """
