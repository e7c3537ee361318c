"""``TensorOrder``: the tensors of a space in order, and supports and importance put in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import Correspondence, correspond
from modelkin.core.matching.remedies import remedy_of
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch

__all__ = ["UNKNOWN", "TensorOrder", "blinding_of", "layout_of"]

T = TypeVar("T")


UNKNOWN: Final = ""
"""The blinding of a space that this client may not read; the service compares it."""


@dataclass(frozen=True, slots=True)
class TensorOrder:
    """The tensors of a space, as supports for it have them.

    Attributes:
        space: the name of the space.
        layout: the tensors in order, without those left out; None for a space without one.
        exclude: the patterns of the tensors that it leaves out.
        blinding: the check value of its key; None where its supports are not blinded,
            :data:`UNKNOWN` where this client may not read the space.
        octaves: whether its supports are ordered ones.
        num_parameters: M; None where this client may not read the space.
    """

    space: str
    layout: Layout | None
    exclude: tuple[str, ...]
    blinding: str | None = None
    octaves: bool = False
    num_parameters: int | None = None

    def in_order(self, value: T) -> T:
        """Put a support in the order of the space; return a value without a layout as it is.

        Raises:
            SpaceMismatch: it has other tensors; names the first that differs. Or it is a signature
                of another order, which cannot be changed. Or it is blinded under another key, or
                not at all where the space is.
        """
        if isinstance(value, Support | Signature):
            self.require_blinding(blinding_of(value))
        mine = layout_of(value)
        if self.layout is None or mine is None or mine.digest == self.layout.digest:
            return value
        self._require_same(mine)
        if not isinstance(value, Support):
            raise SpaceMismatch(
                f"the signature is of the tensors of space {self.space!r} in another order, and "
                f"signatures cannot be reordered: select with order=client.spaces.get("
                f"{self.space!r}).layout"
            )
        moved: Any = value.reordered(self.layout)
        return moved  # type: ignore[no-any-return]

    def selection(self, layout: Layout) -> dict[str, Any]:
        """The arguments of ``select_support`` for an importance in this layout.

        Raises:
            SpaceMismatch: the tensors differ after those that the space leaves out; names the
                first.
        """
        if self.layout is None:
            return {"layout": layout}
        exclude = layout.matching(self.exclude)
        kept = layout.without(exclude) if exclude else layout
        if kept.digest != self.layout.digest:
            self._require_same(kept)
        return {"layout": layout, "exclude": exclude, "order": self.layout}

    def require_blinding(self, mine: str | None) -> None:
        """Refuse a support of another blinding before it is sent: a service that refuses it has
        seen its indices.

        Raises:
            SpaceMismatch: the check value is not the space's, where that is known.
        """
        if self.blinding in (mine, UNKNOWN):
            return
        if mine is None:
            raise SpaceMismatch(
                f"space {self.space!r} holds supports that are blinded under {self.blinding}, and "
                f"this one is not: send blinding.blind(support). Nothing was sent"
            )
        raise SpaceMismatch(
            f"the support is blinded under {mine}, those of space {self.space!r} under "
            f"{self.blinding or 'no key'}: the key or the layout is another. Nothing was sent"
        )

    def _require_same(self, mine: Layout) -> None:
        assert self.layout is not None
        found = correspond(mine, self.layout)
        if not found.fits:
            raise SpaceMismatch(
                f"the tensors are not those of space {self.space!r}: "
                f"{found.difference('it', 'the space')}{self._remedy(mine, found)}"
            )

    def _remedy(self, mine: Layout, found: Correspondence) -> str:
        """What would do, in words; nothing where nothing helps."""
        left_out = list(mine.matching(self.exclude))
        if left_out:
            names = ", ".join(map(repr, left_out))
            return f"; the space leaves out {names}: pass exclude={left_out} to select_support"
        remedy = remedy_of(found)
        if remedy is None:
            return ""
        if remedy.of_space:
            return f"; a space with exclude={list(remedy.patterns)} has this and its models"
        return f"; pass exclude={list(remedy.patterns)} to select_support"


def blinding_of(value: Any) -> str | None:
    """The check value of the key that a support or signature is blinded under, if it is."""
    if not isinstance(value, Support | Signature) or value.origin is None:
        return None
    return value.origin.blinding


def layout_of(value: Any) -> Layout | None:
    """The layout that a support or signature follows, where it is known."""
    if not isinstance(value, Support | Signature) or value.origin is None:
        return None
    return value.origin.layout
