"""``SpaceResolver``: the space of a checkpoint's layout, found or created.

A layout is the tensors by name and shape. The space that a source names takes the layout it was
created with, else the first that arrives. Checkpoints of another layout go to
``{space}-{digest of their layout}``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.auth.records import Tenant
from app.infra.db.database import Database, Reader, Writer
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from modelkin.checkpoints import Checkpoint
from modelkin.core.layout import Layout
from modelkin.errors import SpaceMismatch

__all__ = ["ResolvedSpace", "SpaceResolver", "in_order", "layout_digest"]

_DIGEST_DIGITS: Final = 12
_MAX_NAME_LENGTH: Final = 100
"""Characters of a space's name."""
_NUM_PERM, _SEED = 256, 1


def layout_digest(layout: Layout) -> str:
    """12 hexadecimal digits: a digest of the tensors' names and shapes in any order."""
    facts = sorted([tensor.name, list(tensor.shape)] for tensor in layout.tensors)
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


@dataclass(frozen=True, slots=True)
class ResolvedSpace:
    """The space of a checkpoint, and whether it was created for it."""

    space: SpaceRecord
    created: bool


class SpaceResolver:
    """Finds the space of a checkpoint, or creates it.

    Args:
        database: the database of spaces.
        service: creates spaces.
    """

    def __init__(self, database: Database, service: SpaceService) -> None:
        self._database = database
        self._service = service

    def find(self, tenant: Tenant, name: str, layout: Layout) -> SpaceRecord | None:
        """The space for a layout, or None where it does not exist yet.

        Args:
            name: the space that the source names.

        Raises:
            SpaceMismatch: the space named for this layout was created with another one.
        """
        with self._database.reading() as session:
            return _found(session, tenant, name, layout)[1]

    def place(self, tenant: Tenant, name: str, layout: Layout) -> ResolvedSpace:
        """Find the space for a layout, or create it.

        The checkpoint must be valid: the first layout of a space stays its layout.
        """
        with self._database.writing() as session:
            free, found = _found(session, tenant, name, layout)
            if found is not None:
                return ResolvedSpace(found, created=False)
            return self._make(session, tenant, free, layout)

    def _make(self, session: Writer, tenant: Tenant, name: str, layout: Layout) -> ResolvedSpace:
        space, created = self._service.create(
            session,
            tenant,
            name,
            num_parameters=None,
            layout=layout,
            scheme=None,
            num_perm=_NUM_PERM,
            seed=_SEED,
        )
        return ResolvedSpace(space, created)


def in_order(checkpoint: Checkpoint, layout: Layout | None) -> Checkpoint:
    """The checkpoint with its tensors in the order of a layout of the same tensors.

    Index i then means the same parameter as in supports that clients make from the model itself.
    Without a layout the tensors stay ordered by name.
    """
    if layout is None or layout == checkpoint.layout:
        return checkpoint
    tensors = {tensor.name: tensor for tensor in checkpoint.tensors}
    return replace(checkpoint, tensors=tuple(tensors[tensor.name] for tensor in layout.tensors))


def _found(
    session: Reader, tenant: Tenant, name: str, layout: Layout
) -> tuple[str, SpaceRecord | None]:
    """The name of the space for a layout, and the space if it exists."""
    found = spaces.find_space(session, tenant, name)
    if found is None or _fits(found, layout):
        return name, found
    own = f"{name[: _MAX_NAME_LENGTH - _DIGEST_DIGITS - 1]}-{layout_digest(layout)}"
    found = spaces.find_space(session, tenant, own)
    if found is None or _fits(found, layout):
        return own, found
    raise SpaceMismatch(
        f"the space {own!r} would be for checkpoints of this layout, but it has another one"
    )


def _fits(space: SpaceRecord, layout: Layout) -> bool:
    """Whether a space has this layout; without a layout only its M is compared."""
    if space.layout is None:
        return space.num_parameters == layout.num_parameters
    return _shapes(space.layout) == _shapes(layout)


def _shapes(layout: Layout) -> Mapping[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in layout.tensors}
