"""The note on a file that does not say where its support comes from."""

from __future__ import annotations

from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.support_files import origin_path
from modelkin.types.spaces import SpaceInfo

__all__ = ["unchecked_note"]


def unchecked_note(
    path: str, value: Support | Signature | Subspace, space: SpaceInfo | None
) -> tuple[str, ...]:
    """A note where the space has a layout or a kind to check, and the file states neither."""
    if isinstance(value, Subspace) or value.origin is not None or space is None:
        return ()
    if space.layout is None and not space.importance.is_stated:
        return ()
    return (
        f"{path} does not say its kind of importance and its tensor order, so neither is checked: "
        f"push the checkpoint itself, or keep {origin_path(path)} beside it",
    )
