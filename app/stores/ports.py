"""The contracts between services and stores: the records that pass, and what a blob store promises.

Records are plain frozen values: no session, no lazy loading, safe to hand to any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.banding import DEFAULT_BANDING, Banding
from modelkin.core.layout import Layout
from modelkin.types import SignatureSpec

__all__ = [
    "BlobStore",
    "BucketState",
    "Buckets",
    "Candidates",
    "KeyRecord",
    "Kind",
    "ModelRecord",
    "SpaceRecord",
    "Tenant",
]

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
    bucket_epoch: int | None = None
    """Which build of the space's LSH buckets is the right one; None before the first."""
    banding: Banding = DEFAULT_BANDING
    """How its signatures are cut into bands, for as long as it exists."""

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


@dataclass(frozen=True, slots=True)
class BucketState:
    """What a bucket store believes of a space; the database decides whether it is right.

    Attributes:
        epoch: names the build. Another epoch than the database's is a build that is lost.
        version: the space's version that the buckets have followed it to.
        banding_version: which banding, and which stop-list, the keys were made with.
    """

    epoch: int
    version: int
    banding_version: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The models that share a bucket with a query, and the state of the buckets they came from.

    Attributes:
        ids: distinct, ascending, int64, shape ``(n,)``.
        truncated: a bucket was left out, because it was too large or the limit was reached.
        state: as of the same moment; None where nothing is known of the space.
    """

    ids: npt.NDArray[np.int64]
    truncated: bool
    state: BucketState | None


class Buckets(Protocol):
    """The LSH buckets of all spaces (Algorithm 2 of the paper): derived data, never the truth.

    The buckets of a space follow its database row by version, one ``apply`` after another. Whoever
    finds them lost (``state`` None, or of another epoch or banding than the database says) drops
    them and applies from version 0. Keys are opaque: 64 bits, the band mixed into them.

    Every method raises :class:`modelkin.errors.BackendUnavailable` soon, rather than wait, where
    the store cannot serve.

    Attributes:
        at_once: models in one step at most; ``app.stores.buckets.steps.in_steps`` cuts a long
            history into such steps.
    """

    @property
    def at_once(self) -> int: ...

    def state(self, space_id: int) -> BucketState | None:
        """How far the space's buckets are; None where nothing is known of them."""

    def apply(
        self,
        space_id: int,
        epoch: int,
        since: int,
        until: int,
        upserts: Iterable[tuple[int, npt.NDArray[np.uint64]]],
        removals: Iterable[int],
        *,
        banding_version: int = 0,
    ) -> bool:
        """Take the space from version ``since`` to ``until``, whole or not at all.

        A space of which nothing is known is at version 0 of any epoch. May be repeated: what was
        applied before is not applied again.

        Args:
            upserts: ids and keys, uint64, shape ``(bands,)``, of the models that are new or
                changed; their old keys are forgotten.
            removals: ids of the models that are gone; a model in both is gone.

        Returns:
            False, and nothing is changed, where the space is not at ``since`` of this epoch and
            banding: another process was faster, or the buckets are lost.

        Raises:
            ValueError: more than ``at_once`` models, or keys that are none.
        """

    def candidates(self, space_id: int, keys: npt.NDArray[np.uint64], limit: int) -> Candidates:
        """The models in the buckets ``keys``.

        The smallest buckets are read first and whole, until the next one would make more than
        ``limit`` entries; buckets over the store's cap are never read. So what a query costs is
        bounded whatever others have put into the buckets.

        Args:
            keys: uint64, shape ``(bands,)``.
            limit: entries read at most; an entry counts once for every bucket it is in.
        """

    def drop(self, space_id: int) -> None:
        """Forget the space at once; ``sweep`` frees its memory."""

    def sweep(self, models: int = 200) -> int:
        """Free what dropped spaces still occupy, at most so many models; answers how many.

        Call it until it answers 0.
        """

    def ping(self) -> None:
        """Raise unless the store answers."""

    def close(self) -> None:
        """Let connections go."""
