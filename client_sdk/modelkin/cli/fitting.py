"""Check that a file is blinded and ordered as its space requires; messages name the options."""

from __future__ import annotations

from modelkin.cli.inputs import Source
from modelkin.core.blinding import Blinding
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.tensor_order import blinding_of
from modelkin.errors import SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = ["require_fit"]


def require_fit(
    path: str, source: Source, blinding: Blinding | None, space: SpaceInfo, *, ordered: bool
) -> None:
    """Refuse a file that the client or the service would refuse, before anything is sent.

    Args:
        path: the file's path.
        source: the content of the file.
        blinding: the blinding that the command will apply; None for none.
        space: the settings of the space that receives the content: its M, layout, K and more.
        ordered: whether its ranks are wanted.

    Raises:
        SpaceMismatch: the space is blinded and the file is not, or its ranks are not known.
    """
    if isinstance(source, Subspace):
        return
    if space.blinding is not None and blinding is None and blinding_of(source) is None:
        raise SpaceMismatch(
            f"space {space.name!r} holds blinded supports, and {path} is not blinded: give a "
            f"support or a checkpoint, and --blinding-key FILE with the key of the space's "
            f"members. Nothing was sent"
        )
    if ordered and space.ordered and not (isinstance(source, Support) and source.ordered):
        kind = "a plain support" if isinstance(source, Support) else "no ordered support"
        raise SpaceMismatch(
            f"{path} holds {kind}, without the ranks of its indices that this needs: make one in "
            f"Python by select_support(..., ordered=True), and save(FILE) writes it"
        )
