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

from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import DEFAULT_BANDING, Banding, recall_at
from modelkin.types.spaces import FREE, SignatureSpec, SupportSizePolicy

__all__ = [
    "BlobStore",
    "BucketState",
    "Buckets",
    "Candidates",
    "JobRecord",
    "JobState",
    "KeyRecord",
    "Kind",
    "ModelRecord",
    "RevisionRecord",
    "SelfOverlap",
    "SpaceRecord",
    "StopList",
    "Tenant",
]

Kind = Literal["support", "signature"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


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
class StopList:
    """What is known of the stop-list of a space, besides its indices.

    Attributes:
        version: 1 for the first one of its space; never given out twice.
        size: how many indices it holds.
        share: of the supports that were counted, how many hold each of them at least.
        models: how many supports were counted.
        computed_at: when.
        recall: what buckets made with it find, measured: ``recall[i]`` of the models at ``S = i /
            20`` or beyond, i from 0 to 20; None where nobody was found near that S.
    """

    version: int
    size: int
    share: float
    models: int
    computed_at: datetime
    recall: tuple[float | None, ...]

    def recall_at(self, similarity: float) -> float | None:
        """The measured recall at the next smaller S that was measured; None where none was."""
        # Of .3 and .7 the products are a little below 6 and 14.
        return self.recall[int(similarity * (len(self.recall) - 1) + 1e-9)]


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
    stop_list: StopList | None = None
    """The indices that are left out of what is banded; None where that is nothing."""
    removal_horizon: int = 0
    """Removals up to this version are told no more: who saw the space earlier begins anew."""
    support_size: SupportSizePolicy = FREE
    """What it asks of the sizes of its supports, for as long as it exists."""

    @property
    def models(self) -> int:
        """How many models the space holds, of both kinds."""
        return self.supports + self.signatures

    @property
    def banding_version(self) -> int:
        """What its buckets are made by: the version of the stop-list in force, 0 without one."""
        return 0 if self.stop_list is None else self.stop_list.version

    def recall_at(self, similarity: float) -> float | None:
        """The share of the models of this S or more that its buckets find, at least.

        By the collision curve or, where a stop-list makes the Jaccard of what is banded no function
        of S, as measured; None where that tells nothing.
        """
        if self.stop_list is not None:
            return self.stop_list.recall_at(similarity)
        return recall_at(similarity, self.banding)


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
    content_id: int = 0
    """Drawn anew with every content; 0 where that is a signature and nothing more."""
    tags: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the database knows it.

    Attributes:
        id: opaque; ids of later jobs sort after those of earlier ones.
        space_id: of the space it is about, which may have been deleted since; ``space`` its name.
        progress: ``{"done", "total", "stage"}`` as last told; None before the first time.
        result: what the handler answered, once it has succeeded.
        error: ``{"code", "detail"}``, once it has failed or was cancelled.
        attempts: times that it was begun.
        cancelling: somebody asked to cancel it.
        revision: grows with every change of what is shown of it.
        turn: times that it was offered to the workers.
        worker: who carries it out, or did last.
    """

    id: str
    tenant: Tenant
    kind: str
    space_id: int | None
    space: str | None
    parameters: dict[str, Any]
    state: JobState
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    attempts: int
    cancelling: bool
    revision: int
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    turn: int
    worker: str | None

    @property
    def finished(self) -> bool:
        """Whether it has ended, however that was."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class SelfOverlap:
    """How near two contents of one model are.

    Attributes:
        jaccard: the temporal self-overlap (paper, section 4.3).
        exact: counted; else estimated from signatures, since of one side there is no support.
    """

    jaccard: float
    exact: bool


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A content that a model has or had; its support lies in ``blob_key`` while it is kept.

    Attributes:
        previous: how near it is to the content before; None of the first that is known.
        first: to the first that is known.
    """

    revision: int
    kind: Kind
    support_size: int
    digest: str | None
    blob_key: str | None
    previous: SelfOverlap | None
    first: SelfOverlap
    created_at: datetime


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
        at_once: models in one step at most; ``app.index.buckets.batching.in_steps`` cuts a long
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
            removals: ids of the models that are gone, or in no bucket any more; one that is in
                both is gone.

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
