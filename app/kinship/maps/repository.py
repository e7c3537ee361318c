"""Queries for maps: the newest map of a space, and the values that colour its models.

The places of a map are one compressed JSON text, which is sent as it is stored. It holds the names
of models, because these may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Select, Text, cast, delete, func, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, TagRow
from app.infra.db.tables.maps import MapRow
from app.infra.errors import MapNotFound
from app.kinship.maps.records import MapRecord
from app.models.spaces.records import SpaceRecord

__all__ = [
    "attribute_values",
    "changed_models",
    "content",
    "count_changed",
    "declared_bases",
    "find_map",
    "has_bases",
    "has_tags",
    "replace_map",
    "tag_counts",
    "tagged_models",
]

_ROWS_PER_FETCH: Final = 5_000
_MODELS, _TAGS = ModelRow.__table__, TagRow.__table__
"""Tables, since rows of a hundred thousand models are read twice as fast without their classes."""
_COLUMNS: Final = tuple(MapRecord.__dataclass_fields__)


def find_map(session: Reader, space: SpaceRecord) -> MapRecord | None:
    """The newest map of a space, or None."""
    row = session.scalar(select(MapRow).where(MapRow.space_id == space.id))
    return None if row is None else MapRecord(**{name: getattr(row, name) for name in _COLUMNS})


def content(session: Reader, found: MapRecord) -> bytes:
    """The models and places of a map, compressed; :class:`MapNotFound` if it was replaced."""
    query = select(MapRow.content).where(MapRow.space_id == found.space_id, MapRow.id == found.id)
    held = session.scalar(query)
    if held is None:
        raise MapNotFound(f"map {found.id!r} has just been replaced: read the newest one")
    return held


def replace_map(session: Writer, drawn: MapRecord, content: bytes) -> None:
    """Store a map in the place of the previous one. The caller holds the space's lock."""
    session.execute(delete(MapRow).where(MapRow.space_id == drawn.space_id))
    columns: dict[str, Any] = {name: getattr(drawn, name) for name in _COLUMNS}
    session.add(MapRow(**columns, content=content))
    session.flush()


def count_changed(session: Reader, space: SpaceRecord, version: int) -> int:
    """The number of models that were stored or changed after a version of the space."""
    query = select(func.count()).select_from(ModelRow)
    later = ModelRow.space_id == space.id, ModelRow.version > version
    return session.execute(query.where(*later)).scalar_one()


def changed_models(session: Reader, space: SpaceRecord, version: int) -> Iterator[str]:
    """The models that were stored or changed after a version of the space."""
    later = ModelRow.space_id == space.id, ModelRow.version > version
    yield from session.scalars(select(ModelRow.name).where(*later))


def tagged_models(
    session: Reader, space: SpaceRecord, tags: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the models that carry some of these tags, once for each tag."""
    # Names come from an index alone: a join would read the rows of all models, one by one.
    own = _MODELS.c.space_id == space.id
    names = dict(session.execute(select(_MODELS.c.id, _MODELS.c.name).where(own)).all())
    carried = select(_TAGS.c.model_id, _TAGS.c.tag).where(
        _TAGS.c.tag.in_(tags), _TAGS.c.model_id.in_(select(_MODELS.c.id).where(own))
    )
    for model_id, tag in session.execute(carried).all():
        if model_id in names:
            yield names[model_id], tag


def has_tags(session: Reader, space: SpaceRecord) -> bool:
    """Whether a model carries a tag."""
    tagged = select(TagRow.tag).join(ModelRow, TagRow.model_id == ModelRow.id)
    return session.scalar(tagged.where(ModelRow.space_id == space.id).limit(1)) is not None


def has_bases(session: Reader, space: SpaceRecord) -> bool:
    """Whether a model declares a base."""
    return session.execute(_declaring(space).limit(1)).first() is not None


def declared_bases(session: Reader, space: SpaceRecord) -> Iterator[tuple[str, str]]:
    """The models that declare a base, each with it."""
    yield from session.execute(_declaring(space).execution_options(yield_per=_ROWS_PER_FETCH))


def _declaring(space: SpaceRecord) -> Select[str, str]:
    query = select(_MODELS.c.name, _MODELS.c.base_model)
    return query.where(_MODELS.c.space_id == space.id, _MODELS.c.base_model.is_not(None))


def tag_counts(session: Reader, space: SpaceRecord, limit: int) -> list[str]:
    """The tags that most models carry, the most frequent first."""
    query = (
        select(TagRow.tag)
        .join(ModelRow, TagRow.model_id == ModelRow.id)
        .where(ModelRow.space_id == space.id)
        .group_by(TagRow.tag)
        .order_by(func.count().desc(), TagRow.tag)
        .limit(limit)
    )
    return list(session.scalars(query))


def attribute_values(session: Reader, space: SpaceRecord, key: str) -> Iterator[tuple[str, Any]]:
    """The models that have an attribute, each with its value."""
    query = select(_MODELS.c.name, cast(_MODELS.c.attributes, Text))
    here = query.where(_MODELS.c.space_id == space.id)
    for name, text in session.execute(here.execution_options(yield_per=_ROWS_PER_FETCH)):
        attributes = from_json(text)
        if key in attributes:
            yield name, attributes[key]
