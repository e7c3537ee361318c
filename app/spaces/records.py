"""Records of spaces: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelkin.core.importance import UNSTATED, Importance
from modelkin.core.sketching.banding import DEFAULT_BANDING, Banding, recall_at
from modelkin.types.spaces import FREE, SignatureSpec, SubspaceSpec, SupportSizePolicy
from modelkin.types.vocabulary import SpaceKind

__all__ = ["SpaceRecord", "StopList"]

_UNSTATED_NOTE: Final = (
    "the space does not state what its supports were selected by, so a similarity may compare "
    "different kinds of importance"
)


_BLINDED_NOTE: Final = (
    "the space is blinded, so expected and kappa take all parameters alike, whatever their tensor"
)


@dataclass(frozen=True, slots=True)
class StopList:
    """The figures of a space's stop-list, without its indices.

    Attributes:
        version: 1 for the first one of its space; never used twice.
        size: how many indices it holds.
        share: the least share of the counted supports that hold each of them.
        models: how many supports were counted.
        computed_at: when.
        recall: the measured recall of buckets made with it: ``recall[i]`` of the models at ``S = i
            / 20`` or beyond, i from 0 to 20; None for an S without enough pairs.
    """

    version: int
    size: int
    share: float
    models: int
    computed_at: datetime
    recall: tuple[float | None, ...]

    def recall_at(self, similarity: float) -> float | None:
        """The recall at the next smaller S of the curve; None if that was not measured."""
        # The products for .3 and .7 are a little below 6 and 14.
        return self.recall[int(similarity * (len(self.recall) - 1) + 1e-9)]


@dataclass(frozen=True, slots=True)
class SpaceRecord:
    """An index space: the properties that supports must share to be compared.

    ``version`` grows by one with every change inside the space; it is the clock that the in-process
    index follows. Its layout is read where it is needed: ``app.spaces.layout_repository``.

    Attributes:
        layout_digest: of the names and shapes of its tensors; None if it has no layout.
    """

    id: int
    tenant_id: int
    name: str
    num_parameters: int
    layout_digest: str | None
    signature: SignatureSpec
    version: int
    supports: int
    signatures: int
    created_at: datetime
    bucket_epoch: int | None = None
    """The valid build of the space's LSH buckets; None before the first."""
    banding: Banding = DEFAULT_BANDING
    """How its signatures are cut into bands; fixed when the space is created."""
    stop_list: StopList | None = None
    """The indices that buckets ignore; None without a stop-list."""
    compacted_version: int = 0
    """Tombstones up to this version are deleted: an index of an earlier one starts again."""
    support_size: SupportSizePolicy = FREE
    """The policy for the sizes of its supports; fixed when the space is created."""
    importance: Importance = UNSTATED
    """The kind of importance that its supports are selected by."""
    exclude: tuple[str, ...] = ()
    """Patterns of tensor names that are left out: its layout is without these tensors."""
    subspaces: SubspaceSpec | None = None
    """What its data subspaces share; None in a space of supports."""
    blinding: str | None = None
    """The check value of the key that its supports are blinded under; None where they are not."""
    ordered: bool = False
    """Whether its supports have the octaves of their ranks; fixed when the space is created."""

    @property
    def kind(self) -> SpaceKind:
        """What it holds of each model."""
        return "supports" if self.subspaces is None else "subspaces"

    @property
    def models(self) -> int:
        """How many models the space holds, of both kinds."""
        return self.supports + self.signatures

    @property
    def note(self) -> str | None:
        """Caveats for the answers about its models; None where there is none."""
        stated = self.importance.is_stated or self.subspaces is not None
        notes = (None if stated else _UNSTATED_NOTE, self.blinding and _BLINDED_NOTE)
        return "; ".join(filter(None, notes)) or None

    @property
    def banding_version(self) -> int:
        """The version of the active stop-list, 0 without one."""
        return 0 if self.stop_list is None else self.stop_list.version

    def recall_at(self, similarity: float) -> float | None:
        """The least share of the models of this S or more that its buckets find.

        It comes from the collision curve. With a stop-list, where the Jaccard of filtered supports
        is not a function of S, it is measured; None if there is no measurement.
        """
        if self.stop_list is not None:
            return self.stop_list.recall_at(similarity)
        return recall_at(similarity, self.banding)
