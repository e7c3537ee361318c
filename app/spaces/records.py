"""Records of spaces: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import DEFAULT_BANDING, Banding, recall_at
from modelkin.types.spaces import FREE, SignatureSpec, SupportSizePolicy

__all__ = ["SpaceRecord", "StopList"]


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
    compacted_version: int = 0
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
