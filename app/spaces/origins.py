"""The origin that an upload or a query states, compared with the space's.

A client may say by what importance its indices were selected and which layout they follow. It is
compared and not stored: all supports of a space are of the space's importance and layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from app.spaces.records import SpaceRecord
from modelkin.core.importance import Importance
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "NOTHING_STATED",
    "StatedOrigin",
    "require_same_importance",
    "require_same_layout",
    "require_same_origin",
    "stated_origin",
]

_LAYOUT_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StatedOrigin:
    """What a client says of the indices that it sends; None where it says nothing.

    Attributes:
        importance: what they were selected by.
        layout: the digest of the layout that they follow.
    """

    importance: Importance | None = None
    layout: str | None = None


NOTHING_STATED: Final = StatedOrigin()


def stated_origin(importance: str | None, base: str | None, layout: str | None) -> StatedOrigin:
    """What three parameters of these names state.

    Raises:
        InvalidParameter: there is no such kind of importance, a base without kind ``"delta"`` or
            without a digest, or a layout that is not a digest; ``field`` is the parameter.
    """
    if importance is None and base is not None:
        raise InvalidParameter(
            "base goes with importance=delta: state both, or leave it out", field="base"
        )
    if layout is not None and not _LAYOUT_DIGEST.fullmatch(layout):
        raise InvalidParameter(
            f"layout must be the digest of a layout, the layout_digest of the space, not "
            f"{layout[:100]!r}",
            field="layout",
        )
    stated = None
    if importance is not None:
        stated = Importance.of(importance, base, fields=("importance", "base", "note"))
    return StatedOrigin(stated, layout)


def require_same_origin(space: SpaceRecord, origin: StatedOrigin) -> None:
    """:class:`SpaceMismatch` if anything that is stated is not the space's."""
    require_same_importance(space, origin.importance)
    require_same_layout(space, origin.layout)


def require_same_importance(space: SpaceRecord, importance: Importance | None) -> None:
    """:class:`SpaceMismatch` unless it fits the space's, as far as both are stated."""
    if importance is not None and not importance.fits(space.importance):
        raise SpaceMismatch(
            f"the support was selected by {importance}, those of space {space.name!r} by "
            f"{space.importance}: they do not compare, so use a space of its kind"
        )


def require_same_layout(space: SpaceRecord, digest: str | None) -> None:
    """:class:`SpaceMismatch` unless it is of the space's layout, if the space has one."""
    if digest is not None and space.layout_digest is not None and digest != space.layout_digest:
        raise SpaceMismatch(
            f"the support follows the layout {digest}, those of space {space.name!r} follow "
            f"{space.layout_digest}: put its tensors in the order of the space's layout"
        )
