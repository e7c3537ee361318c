"""Records of spaces: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelkin.core.importance import UNSTATED, Importance
from modelkin.core.sketching.banding import DEFAULT_BANDING, Banding, recall_at
from modelkin.types.spaces import FREE, SignatureSpec, SubspaceSpec, SupportSizePolicy
from modelkin.types.vocabulary import SpaceKind

__all__ = ["SpaceRecord"]

_UNSTATED_NOTE: Final = (
    "the space does not state what its supports were selected by, so a similarity may compare "
    "different kinds of importance"
)


_BLINDED_NOTE: Final = (
    "the space is blinded, so expected and kappa take all parameters alike, whatever their tensor"
)


@dataclass(frozen=True, slots=True)
class SpaceRecord:
    """An index space: the properties that supports must share to be compared.

    ``version`` grows by one with every change inside the space; it is the clock that the in-process
    index follows. Its layout is read where it is needed: ``repositories.layouts``.

    Attributes:
        layout_digest: the digest of the names and shapes of its tensors; None if it has no layout.
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
    """The division of its signatures into bands; fixed when the space is created."""
    compacted_version: int = 0
    """Tombstones up to this version are deleted: an index of an earlier one starts again."""
    support_size: SupportSizePolicy = FREE
    """The policy for the sizes of its supports; fixed when the space is created."""
    importance: Importance = UNSTATED
    """The kind of importance that its supports are selected by."""
    exclude: tuple[str, ...] = ()
    """Patterns of tensor names that are left out: its layout is without these tensors."""
    subspaces: SubspaceSpec | None = None
    """The specification that its data subspaces share; None in a space of supports."""
    blinding: str | None = None
    """The check value of the key that its supports are blinded under; None where they are not."""
    ordered: bool = False
    """Whether its supports have the octaves of their ranks; fixed when the space is created."""
    source_key: str | None = None
    """By what a source finds it, that made it under another name; None where its name is that."""

    @property
    def key(self) -> str:
        """By what a source finds it."""
        return self.source_key or self.name

    @property
    def kind(self) -> SpaceKind:
        """The kind of data that the space holds of each model."""
        return "supports" if self.subspaces is None else "subspaces"

    @property
    def models(self) -> int:
        """The number of models in the space, of both kinds."""
        return self.supports + self.signatures

    @property
    def note(self) -> str | None:
        """Caveats for the answers about its models; None where there is none."""
        stated = self.importance.is_stated or self.subspaces is not None
        notes = (
            None if stated else _UNSTATED_NOTE,
            self.blinding and _BLINDED_NOTE,
            self._excluded,
        )
        return "; ".join(filter(None, notes)) or None

    @property
    def _excluded(self) -> str | None:
        """What the space leaves out, in ASCII as headers need it."""
        if not self.exclude:
            return None
        more = f" and {len(self.exclude) - 1} more" if len(self.exclude) > 1 else ""
        return f"the space leaves out the tensors called {self.exclude[0]!a}{more}"

    def recall_at(self, similarity: float) -> float:
        """The least share of the models of this S or more that its buckets find: from the curve."""
        return recall_at(similarity, self.banding)
