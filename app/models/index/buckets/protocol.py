"""The contract of a store of LSH buckets, and the records that it passes.

Records are plain frozen values: no session, no lazy loading, safe to hand to any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["BANDING_VERSION", "BucketCandidates", "BucketSizes", "BucketState", "Buckets"]

BANDING_VERSION: Final = 0
"""The banding of all buckets. Buckets of another banding are lost: version 0.1.0 had one for each
stop-list, with keys of parts of supports.
"""


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of a space's buckets according to their store; only the database knows the truth.

    Attributes:
        epoch: the name of the build. A build of another epoch than the database's is lost.
        version: the version of the space that the buckets have reached.
        banding_version: the version of the keys; the buckets are lost unless it is
            ``BANDING_VERSION``.
    """

    epoch: int
    version: int
    banding_version: int


@dataclass(frozen=True, slots=True)
class BucketCandidates:
    """The models that share a bucket with a query, and the state of the buckets they came from.

    Attributes:
        ids: distinct, ascending, int64, shape ``(n,)``.
        truncated: a bucket was left out, because it was too large or the limit was reached.
        state: the state at the same moment; None if the store does not know the space.
    """

    ids: npt.NDArray[np.int64]
    truncated: bool
    state: BucketState | None


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """The sizes of a space's buckets.

    Attributes:
        models: the models that are in any bucket.
        entries: the entries of all buckets; None where a store cannot count them.
        state: the state at the same moment.
    """

    models: int
    entries: int | None
    state: BucketState


class Buckets(Protocol):
    """The LSH buckets of all spaces (Algorithm 2 of the paper): derived data, never the truth.

    The buckets of a space follow its database row by version, one ``apply`` after another. A caller
    that finds them lost (``state`` None, or of another epoch or banding than the database says)
    drops them and applies from version 0. Keys are opaque: 64 bits, the band mixed into them.

    Every method raises :class:`app.infra.errors.BackendUnavailable` soon, rather than wait, where
    the store cannot serve.

    Attributes:
        max_step_size: the most models in one step; ``split_into_steps`` of
            ``app.models.index.buckets.batching`` splits a long history into such steps.
    """

    @property
    def max_step_size(self) -> int: ...

    def state(self, space_id: int) -> BucketState | None:
        """The state of the space's buckets; None if the store does not know the space."""

    def apply(
        self,
        space_id: int,
        epoch: int,
        since: int,
        until: int,
        upserts: Iterable[tuple[int, npt.NDArray[np.uint64]]],
        removals: Iterable[int],
    ) -> bool:
        """Take the space from version ``since`` to ``until``, whole or not at all.

        An unknown space is at version 0 of any epoch. The call may be repeated: an applied step is
        not applied again.

        Args:
            upserts: ids and keys, uint64, shape ``(bands,)``, of the models that are new or
                changed; their old keys are forgotten.
            removals: ids of the models that are gone, or in no bucket any more; an id in both
                counts as a removal.

        Returns:
            False, without any change, if the space is not at ``since`` of this epoch and
            banding: another process was faster, or the buckets are lost.

        Raises:
            ValueError: more than ``max_step_size`` models, or invalid keys.
        """

    def candidates(
        self, space_id: int, keys: npt.NDArray[np.uint64], limit: int
    ) -> BucketCandidates:
        """The models in the buckets ``keys``.

        The smallest buckets are read first and whole, until the next one would make more than
        ``limit`` entries; buckets over the store's cap are never read. So what a query costs is
        bounded whatever others have put into the buckets.

        Args:
            keys: uint64, shape ``(bands,)``.
            limit: entries read at most; an entry counts once for every bucket it is in.
        """

    def members(self, space_id: int, ids: Sequence[int]) -> dict[int, bytes]:
        """The keys of the buckets that some models are in, for a verification.

        Args:
            ids: ``max_step_size`` at most.

        Returns:
            By id the keys, distinct, ascending, big-endian uint64; without the models that are in
            no bucket. A key that is noted with a model whose bucket lacks it is left out.
        """

    def sizes(self, space_id: int) -> BucketSizes | None:
        """Return the sizes of the space's buckets; None if the store does not know the space."""

    def drop(self, space_id: int) -> None:
        """Forget the space at once; ``sweep`` frees its memory."""

    def sweep(self, models: int = 200) -> int:
        """Free memory of dropped spaces, ``models`` at most; return how many were freed.

        Call it until it returns 0.
        """

    def ping(self) -> None:
        """Raise unless the store answers."""

    def close(self) -> None:
        """Release connections."""
