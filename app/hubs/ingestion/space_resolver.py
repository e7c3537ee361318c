"""Where a checkpoint goes: the space of its layout, found or made, and the order of its parameters.

A layout is what tensors there are, by name and shape. The space that a source names takes the first
layout that comes, or whatever layout it was made with; checkpoints of another one go to
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

_DIGITS: Final = 12
_LONGEST: Final = 100
"""Characters of a space's name."""
_NUM_PERM, _SEED = 256, 1


def layout_digest(layout: Layout) -> str:
    """12 hexadecimal digits that are the same for the same tensors, whatever their order."""
    facts = sorted([tensor.name, list(tensor.shape)] for tensor in layout.tensors)
    told = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class ResolvedSpace:
    """The space of a checkpoint, and whether it was made for it."""

    space: SpaceRecord
    created: bool


class SpaceResolver:
    """Finds the space of a checkpoint, or makes it.

    Args:
        database: the truth.
        service: makes spaces.
    """

    def __init__(self, database: Database, service: SpaceService) -> None:
        self._database = database
        self._service = service

    def find(self, tenant: Tenant, name: str, layout: Layout) -> SpaceRecord | None:
        """The space for a layout, or None where it is yet to be made.

        Args:
            name: the space that the source names.

        Raises:
            SpaceMismatch: the space that is this layout's own was made with another one.
        """
        with self._database.reading() as session:
            return _found(session, tenant, name, layout)[1]

    def place(self, tenant: Tenant, name: str, layout: Layout) -> ResolvedSpace:
        """The same, made durable if it is new: for a checkpoint that is known to be good, since
        the first layout that comes is that of the space for good.
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
    """The checkpoint with its tensors as a layout has them, of which they are all.

    Index i then means the same parameter as in supports that were made from the model itself, whose
    order is its own. Without a layout it stays that of the names.
    """
    if layout is None or layout == checkpoint.layout:
        return checkpoint
    held = {tensor.name: tensor for tensor in checkpoint.tensors}
    return replace(checkpoint, tensors=tuple(held[tensor.name] for tensor in layout.tensors))


def _found(
    session: Reader, tenant: Tenant, name: str, layout: Layout
) -> tuple[str, SpaceRecord | None]:
    """The name of the space for a layout, and the space if there is one."""
    found = spaces.find_space(session, tenant, name)
    if found is None or _fits(found, layout):
        return name, found
    own = f"{name[: _LONGEST - _DIGITS - 1]}-{layout_digest(layout)}"
    found = spaces.find_space(session, tenant, own)
    if found is None or _fits(found, layout):
        return own, found
    raise SpaceMismatch(
        f"the space {own!r} would be for checkpoints of this layout, and was made with another"
    )


def _fits(space: SpaceRecord, layout: Layout) -> bool:
    """Whether a space is of this layout; one that was made without tells its M alone."""
    if space.layout is None:
        return space.num_parameters == layout.num_parameters
    return _shapes(space.layout) == _shapes(layout)


def _shapes(layout: Layout) -> Mapping[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in layout.tensors}
