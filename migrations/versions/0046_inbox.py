"""What the first page counts: new models, families, merges, and what has failed.

Each model that has lines in common with others gets the base by which it is counted. The version
before does not write it: what that makes gets it when its anatomy is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from app.infra.db.tables.base import Moment

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

FAILED = sa.text("state = 'failed'")
HAS_BASE = sa.text("base_id IS NOT NULL")
INDEXES: dict[str, tuple[str, list[str], Any]] = {
    "ix_models_tenant_id_created_at": ("models", ["tenant_id", "created_at"], None),
    "ix_fingerprints_tenant_id_created_at": ("fingerprints", ["tenant_id", "created_at"], None),
    "ix_anatomies_tenant_id_verdict_fingerprint_id": (
        *("anatomies", ["tenant_id", "verdict", "fingerprint_id"], None),
    ),
    "ix_anatomies_tenant_id_base_id": ("anatomies", ["tenant_id", "base_id"], HAS_BASE),
    "ix_jobs_failed": ("jobs", ["tenant_id", "id"], FAILED),
    "ix_webhook_deliveries_failed": ("webhook_deliveries", ["tenant_id", "id"], FAILED),
}
AT_ONCE = 500

anatomies = sa.table(
    "anatomies",
    *(sa.column(name, sa.BigInteger) for name in ("fingerprint_id", "tenant_id", "base_id")),
    sa.column("parents", sa.JSON),
)
fingerprints = sa.table(
    "fingerprints",
    sa.column("id", sa.BigInteger),
    sa.column("name", sa.String),
    sa.column("base_models", sa.JSON),
    sa.column("published_at", Moment),
)


def upgrade() -> None:
    op.add_column("anatomies", sa.Column("base_id", sa.BigInteger, nullable=True))
    find_bases(op.get_bind())
    for name, (table, columns, condition) in INDEXES.items():
        op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    for name, (table, _, _) in INDEXES.items():
        op.drop_index(name, table)
    op.drop_column("anatomies", "base_id")


def find_bases(connection: sa.Connection) -> None:
    """Give each anatomy the base by which its model is counted."""
    for rows in batches(connection):
        ids = {row.fingerprint_id for row in rows} | {id_ for row in rows for id_ in row.parents}
        known = {}
        for some in parts(sorted(ids)):
            query = sa.select(fingerprints).where(fingerprints.c.id.in_(some))
            known |= {row.id: row for row in connection.execute(query)}
        found = [
            {"of": row.fingerprint_id, "base": base}
            for row in rows
            if (base := base_of(row, known)) is not None
        ]
        if found:
            changed = sa.update(anatomies).where(anatomies.c.fingerprint_id == sa.bindparam("of"))
            connection.execute(changed.values(base_id=sa.bindparam("base")), found)


def batches(connection: sa.Connection) -> Iterator[Any]:
    after = 0
    while True:
        query = sa.select(anatomies).where(anatomies.c.fingerprint_id > after)
        rows = connection.execute(query.order_by(anatomies.c.fingerprint_id).limit(AT_ONCE)).all()
        if not rows:
            return
        after = rows[-1].fingerprint_id
        yield [row for row in rows if row.parents]


def parts(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]


def base_of(row: Any, known: dict[int, Any]) -> int | None:
    """The first parent that the model names; else the first older one that does not name it."""
    own = known.get(row.fingerprint_id)
    if own is None:
        return None
    others = [known[id_] for id_ in row.parents if id_ in known]
    for each in others:
        if each.name in (own.base_models or ()):
            return int(each.id)
    for each in others:
        if own.name not in (each.base_models or ()) and is_older(each, own):
            return int(each.id)
    return None


def is_older(one: Any, other: Any) -> bool:
    if one.published_at and other.published_at and one.published_at != other.published_at:
        return bool(one.published_at < other.published_at)
    return bool(one.id < other.id)
