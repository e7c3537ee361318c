"""Queries for the layouts of spaces, which answers about models do not need.

A layout may have a megabyte of names. Counting indices by tensor reads the sizes alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sqlalchemy import Text, cast, insert, select

from app.infra.db.database import Reader, Writer
from app.infra.db.json_text import JsonText
from app.infra.db.tables.catalog import LayoutRow
from app.models.spaces.records import SpaceRecord
from app.models.spaces.stored_layouts import StoredLayout
from modelkin.core.layout import Layout

__all__ = ["find_layout", "insert_layout", "layout_text", "tensor_sizes"]


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


def layout_text(session: Reader, space: SpaceRecord) -> str | None:
    """The tensors of :func:`find_layout` as JSON, which is not parsed."""
    if space.layout_digest is None:
        return None
    text = select(cast(LayoutRow.tensors, Text)).where(LayoutRow.space_id == space.id)
    return session.scalar(text)


def insert_layout(session: Writer, space_id: int, layout: StoredLayout) -> None:
    """Insert the layout of a new space."""
    values = {"space_id": space_id, "tensors": JsonText(layout.tensors), "sizes": layout.sizes}
    session.execute(insert(LayoutRow).values(values))
