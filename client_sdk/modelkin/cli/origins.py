"""The file beside a support's file that says where it comes from: its kind and its tensors.

A support's bytes have neither. The file names the digest of the support, so that it says nothing
about another support that has taken its place.
"""

from __future__ import annotations

import json
from pathlib import Path

from modelkin.core.importance import Origin
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = ["origin_path", "unchecked_note", "with_origin_beside", "write_origin"]


def origin_path(path: str) -> Path:
    """The file beside that of a support."""
    return Path(f"{path}.origin.json")


def write_origin(path: str, digest: str, origin: Origin) -> None:
    """Write the origin of the support of this digest beside its file."""
    fields = {"digest": digest, "origin": json.loads(origin.to_text())}
    origin_path(path).write_text(json.dumps(fields), encoding="utf-8")


def with_origin_beside(path: str, support: Support) -> Support:
    """The support with the origin beside its file; as it is without one, or with another's."""
    try:
        fields = json.loads(origin_path(path).read_text(encoding="utf-8"))
        if fields["digest"] != support.digest:
            return support
        return support.with_origin(Origin.from_text(json.dumps(fields["origin"])))
    except (OSError, KeyError, TypeError, ValueError, RecursionError, SpaceMismatch):
        return support


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
