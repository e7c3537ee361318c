"""Names, owners, tags, bases and attributes of models that begin with the typed text.

Each value is read from an index, one distinct value after another: so the time does not grow with
the number of models. Only a part inside of a name is sought through all names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Text, cast, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow, SpaceRow, TagRow
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import exists
from app.tenancy.auth.records import Tenant

__all__ = [
    "attributes_of_some",
    "bases_beginning",
    "names_beginning",
    "names_beginning_in_all_spaces",
    "names_holding",
    "names_in_all_spaces",
    "owners_beginning",
    "tags_beginning",
]

_LAST_CHARACTER: Final = "\U0010ffff"
_MAX_STEPS: Final = 40
"""Queries for distinct owners: names without one are passed over, one query each."""
_MAX_SAMPLED: Final = 200
"""Models whose attributes are read."""
_MAX_SAMPLED_BYTES: Final = 1 << 20


def names_beginning(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Names of models that begin with the text, in order."""
    query = select(ModelRow.name).where(
        ModelRow.space_id == space.id,
        ModelRow.name >= text,
        ModelRow.name < text + _LAST_CHARACTER,
    )
    return list(session.scalars(query.order_by(ModelRow.name).limit(limit)))


def names_in_all_spaces(
    session: Reader, tenant: Tenant, text: str, limit: int
) -> list[tuple[str, str]]:
    """Spaces and names of a tenant's models that have the text anywhere in their name."""
    return _anywhere(session, tenant, limit, ModelRow.name.icontains(text, autoescape=True))


def names_beginning_in_all_spaces(
    session: Reader, tenant: Tenant, text: str, limit: int
) -> list[tuple[str, str]]:
    """Spaces and names of a tenant's models whose name begins with the text."""
    is_above, is_below = ModelRow.name >= text, ModelRow.name < text + _LAST_CHARACTER
    return _anywhere(session, tenant, limit, is_above, is_below)


def _anywhere(
    session: Reader, tenant: Tenant, limit: int, *conditions: ColumnElement[bool]
) -> list[tuple[str, str]]:
    query = (
        select(SpaceRow.name, ModelRow.name)
        .join(ModelRow, ModelRow.space_id == SpaceRow.id)
        .where(SpaceRow.tenant_id == tenant.id, exists, *conditions)
        .order_by(SpaceRow.name, ModelRow.name)
        .limit(limit)
    )
    return [(space, name) for space, name in session.execute(query)]


def names_holding(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Names of models that have the text anywhere; ASCII letters match in either case."""
    query = select(ModelRow.name).where(
        ModelRow.space_id == space.id, ModelRow.name.icontains(text, autoescape=True)
    )
    return list(session.scalars(query.order_by(ModelRow.name).limit(limit)))


def owners_beginning(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Owners, the first parts of names with a slash, that begin with the text."""
    owners: list[str] = []
    after = text
    for _ in range(_MAX_STEPS):
        query = select(ModelRow.name).where(
            ModelRow.space_id == space.id,
            ModelRow.name >= after,
            ModelRow.name < text + _LAST_CHARACTER,
        )
        name = session.scalar(query.order_by(ModelRow.name).limit(1))
        if name is None or len(owners) == limit:
            break
        owner, slash, _ = name.partition("/")
        if slash:
            owners.append(owner)
            after = f"{owner}/{_LAST_CHARACTER}"
        else:
            after = name + "\x01"  # sorts next: no name holds a control character
    return owners


def tags_beginning(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Tags of the space's models that begin with the text."""

    def following(last: str | None) -> str | None:
        # Not a join: it would begin with the models of the space, and sort all their tags.
        own = select(ModelRow.id).where(
            ModelRow.id == TagRow.model_id, ModelRow.space_id == space.id
        )
        query = select(TagRow.tag).where(
            TagRow.tag < text + _LAST_CHARACTER,
            TagRow.tag >= text if last is None else TagRow.tag > last,
            own.exists(),
        )
        return session.scalar(query.order_by(TagRow.tag).limit(1))

    return list(_distinct(following, limit))


def bases_beginning(session: Reader, space: SpaceRecord, text: str, limit: int) -> list[str]:
    """Bases that models of the space declare and that begin with the text."""

    def following(last: str | None) -> str | None:
        query = select(ModelRow.base_model).where(
            ModelRow.space_id == space.id,
            ModelRow.base_model.is_not(None),
            ModelRow.base_model < text + _LAST_CHARACTER,
            ModelRow.base_model >= text if last is None else ModelRow.base_model > last,
        )
        return session.scalar(query.order_by(ModelRow.base_model).limit(1))

    return list(_distinct(following, limit))


def attributes_of_some(session: Reader, space: SpaceRecord) -> Counter[tuple[str, str]]:
    """Attributes of the models that changed last: keys with texts, numbers and truth values."""
    query = (
        select(cast(ModelRow.attributes, Text))
        .where(ModelRow.space_id == space.id)
        .order_by(ModelRow.version.desc())
        .limit(_MAX_SAMPLED)
    )
    found: Counter[tuple[str, str]] = Counter()
    size = 0
    for text in session.scalars(query):
        size += len(text)
        if size > _MAX_SAMPLED_BYTES:
            break
        found.update(_attribute_texts(json.loads(text)))
    return found


def _attribute_texts(attributes: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in attributes.items():
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, bool | int | float):
            yield key, json.dumps(value)


def _distinct(following: Callable[[str | None], str | None], limit: int) -> Iterator[str]:
    last: str | None = None
    for _ in range(limit):
        last = following(last)
        if last is None:
            return
        yield last
