"""Queries of declared bases: one in a column of its own, several of a merge in a list.

The list is searched as text, as every database can: names hold no character that JSON escapes but
letters beyond ASCII, which are escaped alike in the row and in the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Text, cast, or_, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow, SpaceRow

__all__ = ["are_of_others", "declares_any", "ids_declaring", "spaces_declaring"]


def declares_any(names: Iterable[str]) -> ColumnElement[bool]:
    """The condition that a model declares one of some bases."""
    wanted = list(dict.fromkeys(names))
    listed = cast(ModelRow.base_models, Text)
    several = (listed.contains(json.dumps(name), autoescape=True) for name in wanted)
    return or_(
        ModelRow.base_model.in_(wanted),
        ModelRow.base_models.is_not(None) & or_(False, *several),
    )


def ids_declaring(session: Reader, space_id: int, names: Iterable[str]) -> list[int]:
    """The ids of the models of a space that declare one of some bases, maybe beside others."""
    query = select(ModelRow.id).where(ModelRow.space_id == space_id, declares_any(names))
    return list(session.scalars(query))


def are_of_others(session: Reader, space_id: int, name: str) -> bool:
    """Whether models of a space declare bases, and none of them this one."""
    declares = ModelRow.base_model.is_not(None) | ModelRow.base_models.is_not(None)
    declaring = select(ModelRow.id).where(ModelRow.space_id == space_id, declares).limit(1)
    return session.scalar(declaring) is not None and not ids_declaring(session, space_id, [name])


def spaces_declaring(session: Reader, tenant_id: int, names: Iterable[str]) -> list[int]:
    """The ids of a tenant's spaces with models that declare one of some bases."""
    own = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id)
    query = select(ModelRow.space_id).where(ModelRow.space_id.in_(own), declares_any(names))
    return sorted(set(session.scalars(query.distinct())))
