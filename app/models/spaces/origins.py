"""The origin that an upload or a query states, compared with the space's.

A client may say by what importance its indices were selected and which layout they follow, and it
has to say if they are blinded. The statement is compared and not stored: all supports of a space
are of the space's importance, layout and blinding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from app.models.spaces.records import SpaceRecord
from modelkin.core.blinding import check_blinding
from modelkin.core.importance import Importance
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "NOTHING_STATED",
    "StatedOrigin",
    "require_gradients",
    "require_same_if_stated",
    "require_same_origin",
    "stated_origin",
    "unchecked_note",
]

_LAYOUT_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StatedOrigin:
    """A client's statement about the indices that it sends; None where it states nothing.

    Attributes:
        importance: the importance by which they were selected.
        layout: the digest of the layout that they follow.
        blinding: the check value of the key that they are blinded under.
    """

    importance: Importance | None = None
    layout: str | None = None
    blinding: str | None = None


NOTHING_STATED: Final = StatedOrigin()

_OF_WEIGHTS: Final = ("weight", "delta")
"""Kinds of importance whose order does not help: by measurement only that of gradients does."""


def stated_origin(
    importance: str | None, base: str | None, layout: str | None, blinding: str | None = None
) -> StatedOrigin:
    """Return the statement of the parameters of these names.

    Raises:
        InvalidParameter: there is no such kind of importance, a base without kind ``"delta"`` or
            without a digest, or a layout or blinding that is not one; ``field`` is the parameter.
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
    if blinding is not None:
        check_blinding(blinding)
    stated = None
    if importance is not None:
        stated = Importance.of(importance, base, fields=("importance", "base", "note"))
    return StatedOrigin(stated, layout, blinding)


def require_same_origin(space: SpaceRecord, origin: StatedOrigin) -> None:
    """:class:`SpaceMismatch` if anything that is stated is not the space's, or a key is not."""
    _require_same_blinding(space, origin.blinding)
    _require_same_importance(space, origin.importance)
    _require_same_layout(space, origin.layout)


def require_same_if_stated(space: SpaceRecord, origin: StatedOrigin) -> None:
    """Check the origin as :func:`require_same_origin` does, but let the blinding be left out."""
    if origin.blinding is None:
        origin = replace(origin, blinding=space.blinding)
    require_same_origin(space, origin)


def unchecked_note(space: SpaceRecord, origin: StatedOrigin) -> str | None:
    """A note where a space has a kind of importance and an upload states none to compare."""
    if origin.importance is not None or not space.importance.is_stated:
        return None
    return (
        f"the space holds supports by {space.importance}, and this upload states no importance, so "
        f"none was compared"
    )


def _require_same_blinding(space: SpaceRecord, blinding: str | None) -> None:
    """:class:`SpaceMismatch` unless indices are blinded as those of the space are, or neither."""
    if blinding == space.blinding:
        return
    if blinding is None:
        raise SpaceMismatch(
            f"space {space.name!r} holds supports that are blinded under {space.blinding}: blind "
            f"yours with its key first, and state blinding={space.blinding}"
        )
    if space.blinding is None:
        raise SpaceMismatch(
            f"the support is blinded under {blinding}, those of space {space.name!r} are not: make "
            f"a space with this blinding"
        )
    raise SpaceMismatch(
        f"the support is blinded under {blinding}, those of space {space.name!r} under "
        f"{space.blinding}: the key or the layout is another"
    )


def require_gradients(importance: Importance) -> None:
    """:class:`InvalidParameter` where ordered supports are to be of an importance of weights."""
    if importance.kind in _OF_WEIGHTS:
        raise InvalidParameter(
            f"ordered supports are of importances of gradients, and not of {importance}: leave "
            f"ordered out, or state another kind",
            field="ordered",
        )


def _require_same_importance(space: SpaceRecord, importance: Importance | None) -> None:
    """:class:`SpaceMismatch` unless it fits the space's, as far as both are stated."""
    if importance is None:
        return
    if space.ordered and importance.kind in _OF_WEIGHTS:
        raise SpaceMismatch(
            f"the support was selected by {importance}, and space {space.name!r} holds ordered "
            f"supports, which are of importances of gradients: use a space without order"
        )
    if not importance.fits(space.importance):
        raise SpaceMismatch(
            f"the support was selected by {importance}, those of space {space.name!r} by "
            f"{space.importance}: they do not compare, so use a space of its kind"
        )


def _require_same_layout(space: SpaceRecord, digest: str | None) -> None:
    """:class:`SpaceMismatch` unless it is of the space's layout, if the space has one."""
    if digest is not None and space.layout_digest is not None and digest != space.layout_digest:
        raise SpaceMismatch(
            f"the support follows the layout {digest}, those of space {space.name!r} follow "
            f"{space.layout_digest}: put its tensors in the order of the space's layout"
        )
