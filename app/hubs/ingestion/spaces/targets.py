"""``SpaceTarget``: the space that supports are for, before it is made, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from app.models.spaces.records import SpaceRecord
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.errors import SpaceMismatch

__all__ = ["ResolvedSpace", "SpaceTarget"]


@dataclass(frozen=True, slots=True)
class SpaceTarget:
    """A space that supports go to, which may not exist yet.

    Attributes:
        key: by what the source finds it.
        beside: the space that the source names.
        layout: the space's tensors in its order; if the space has no layout or does not exist, the
            checkpoint's tensors without the excluded ones.
        exclude: patterns of the tensors that are left out.
        space: the space; None if it does not exist yet.
        newest: the newest space that there was; a newer one may be the better place.
    """

    name: str
    key: str
    beside: str
    layout: Layout
    exclude: tuple[str, ...]
    space: SpaceRecord | None
    newest: int

    def require(self, importance: Importance) -> None:
        """Require that the space takes supports of this importance.

        Raises:
            SpaceMismatch: the space states another kind, or differences from another base.
        """
        if self.space is not None and not self.space.importance.fits(importance):
            raise SpaceMismatch(
                f"space {self.name!r} holds supports selected by {self.space.importance}, and "
                f"this source stores those selected by {importance}: give the source another "
                f"space, or delete that one"
            )


@dataclass(frozen=True, slots=True)
class ResolvedSpace:
    """The space of a support, and whether it was created for it."""

    space: SpaceRecord
    created: bool
