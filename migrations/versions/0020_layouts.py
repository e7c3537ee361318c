"""Layouts stand in a table of their own, so that the row of a space is small.

Each change of a model rewrites that row, and each request about one reads it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SPACES = sa.table(
    "spaces",
    sa.column("id", ID),
    sa.column("layout", sa.JSON(none_as_null=True)),
    sa.column("layout_digest", sa.String()),
)
LAYOUTS = sa.table(
    "layouts",
    sa.column("space_id", ID),
    sa.column("tensors", sa.JSON()),
    sa.column("sizes", sa.LargeBinary()),
)


def upgrade() -> None:
    op.add_column("spaces", sa.Column("layout_digest", sa.String(80), nullable=True))
    op.create_table(
        "layouts",
        sa.Column("space_id", ID, nullable=False),
        sa.Column("tensors", sa.JSON(), nullable=False),
        sa.Column("sizes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["spaces.id"], name="fk_layouts_space_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("space_id", name="pk_layouts"),
    )
    connection = op.get_bind()
    for space_id in _with_layout(SPACES.c.id, SPACES.c.layout):
        own = SPACES.c.id == space_id
        tensors = connection.execute(sa.select(SPACES.c.layout).where(own)).scalar_one()
        sizes = [math.prod(tensor["shape"]) for tensor in tensors]
        packed = struct.pack(f"<{len(sizes)}Q", *sizes)
        values = {"space_id": space_id, "tensors": tensors, "sizes": packed}
        connection.execute(LAYOUTS.insert().values(values))
        connection.execute(SPACES.update().where(own).values(layout_digest=_digest(tensors)))
    op.drop_column("spaces", "layout")


def downgrade() -> None:
    op.add_column("spaces", sa.Column("layout", sa.JSON(), nullable=True))
    connection = op.get_bind()
    for space_id in _with_layout(LAYOUTS.c.space_id, LAYOUTS.c.tensors):
        own = LAYOUTS.c.space_id == space_id
        tensors = connection.execute(sa.select(LAYOUTS.c.tensors).where(own)).scalar_one()
        connection.execute(SPACES.update().where(SPACES.c.id == space_id).values(layout=tensors))
    op.drop_table("layouts")
    op.drop_column("spaces", "layout_digest")


def _with_layout(key: sa.ColumnElement[int], layout: sa.ColumnElement[object]) -> list[int]:
    """The ids of the spaces that have one; layouts are read one at a time, as each may be long."""
    return list(op.get_bind().scalars(sa.select(key).where(layout.is_not(None)).order_by(key)))


def _digest(tensors: list[dict[str, object]]) -> str:
    text = json.dumps([[t["name"], t["shape"]] for t in tensors], separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
