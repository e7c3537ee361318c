"""The terms of a space: the properties that are fixed when it is created."""

from __future__ import annotations

from dataclasses import dataclass

from app.infra.errors import SpaceExists
from app.models.spaces.records import SpaceRecord
from app.models.spaces.stored_layouts import StoredLayout
from modelkin.core.importance import Importance
from modelkin.core.sketching.banding import Banding
from modelkin.types.spaces import FREE, SignatureSpec, SubspaceSpec, SupportSizePolicy

__all__ = ["SpaceTerms"]


@dataclass(frozen=True, slots=True)
class SpaceTerms:
    """The terms of a new space, all of them checked.

    Attributes:
        num_parameters: M, or the number of features of data subspaces.
        layout: the layout without the tensors that supports leave out.
        importance: the importance that selects its supports; None where none is stated, and then
            an existing space may have any kind.
        exclude: shell patterns of the tensors that supports leave out.
        blinding: the check value of the key that its supports are blinded under.
        ordered: whether its supports have the octaves of their ranks.
        subspaces: the specification that data subspaces share; None for supports.
    """

    num_parameters: int
    layout: StoredLayout | None
    signature: SignatureSpec
    banding: Banding
    support_size: SupportSizePolicy = FREE
    importance: Importance | None = None
    exclude: tuple[str, ...] = ()
    blinding: str | None = None
    ordered: bool = False
    subspaces: SubspaceSpec | None = None

    def require_same(self, existing: SpaceRecord) -> None:
        """Refuse these terms of supports for an existing space with others.

        Raises:
            SpaceExists: the space differs; the message names all differences at once.
        """
        if existing.blinding != self.blinding:
            theirs = existing.blinding or "no key"
            raise SpaceExists(
                f"there is already a space {existing.name!r}, blinded under {theirs}, not "
                f"{self.blinding or 'no key'}: take its key and layout, or another name"
            )
        if existing.subspaces is not None:
            raise SpaceExists(
                f"there is already a space {existing.name!r}, and it is of data subspaces"
            )
        if differences := self._differences_from(existing):
            raise SpaceExists(
                f"there is already a space {existing.name!r} and it differs: "
                f"{'; '.join(differences)}"
            )

    def _differences_from(self, existing: SpaceRecord) -> list[str]:
        differences = []
        if existing.num_parameters != self.num_parameters:
            differences.append(
                f"num_parameters is {existing.num_parameters}, not {self.num_parameters}"
            )
        if existing.layout_digest != (None if self.layout is None else self.layout.digest):
            differences.append(_layout_difference(existing))
        if self.importance is not None and not _is_same(existing.importance, self.importance):
            differences.append(f"its importance is {existing.importance}, not {self.importance}")
        if existing.signature != self.signature:
            differences.append(
                f"its signature is {_signature_words(existing.signature)}, "
                f"not {_signature_words(self.signature)}"
            )
        if existing.banding != self.banding:
            differences.append(f"it has {existing.banding}, not {self.banding}")
        if existing.support_size != self.support_size:
            differences.append(
                f"its support_size is {_size_words(existing.support_size)}, "
                f"not {_size_words(self.support_size)}"
            )
        if existing.ordered != self.ordered:
            held = "ordered" if existing.ordered else "plain"
            differences.append(
                f"its supports are {held}: ordered is {str(existing.ordered).lower()}"
            )
        return differences


def _is_same(one: Importance, other: Importance) -> bool:
    return (one.kind, one.base_digest) == (other.kind, other.base_digest)


def _signature_words(spec: SignatureSpec) -> str:
    return f"{spec.scheme} of num_perm {spec.num_perm} and seed {spec.seed}"


def _size_words(size: SupportSizePolicy) -> str:
    return size.policy if size.k is None else f"{size.policy} at K = {size.k}"


def _layout_difference(existing: SpaceRecord) -> str:
    if existing.layout_digest is None:
        return "it has no layout"
    if not existing.exclude:
        return "its layout differs"
    return f"its layout differs (that space excludes {', '.join(map(repr, existing.exclude))})"
