"""Queries for the layouts of spaces, which answers about models do without.

A layout may have a megabyte of names. What counts indices by tensor reads the sizes alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sqlalchemy import insert, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import LayoutRow
from app.spaces.records import SpaceRecord
from modelkin.core.layout import Layout

__all__ = ["find_layout", "insert_layout", "tensor_sizes"]


def find_layout(session: Reader, space: SpaceRecord) -> Layout | None:
    """The layout of a space; None if it was created without one, or is deleted."""
    if space.layout_digest is None:
        return None
    tensors = session.scalar(select(LayoutRow.tensors).where(LayoutRow.space_id == space.id))
    return None if tensors is None else Layout.trusted(tensors)


def tensor_sizes(session: Reader, space: SpaceRecord) -> npt.NDArray[np.uint64] | None:
    """The sizes of the tensors in order, shape ``(tensors,)``; None without a layout."""
    if space.layout_digest is None:
        return None
    sizes = session.scalar(select(LayoutRow.sizes).where(LayoutRow.space_id == space.id))
    return None if sizes is None else np.frombuffer(sizes, "<u8")


def insert_layout(session: Writer, space_id: int, layout: Layout) -> None:
    """Insert the layout of a new space."""
    sizes = np.array([tensor.size for tensor in layout.tensors], "<u8").tobytes()
    values = {"space_id": space_id, "tensors": layout.to_json(), "sizes": sizes}
    session.execute(insert(LayoutRow).values(values))
