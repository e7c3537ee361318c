"""What donors, graphs and lineages read of models, beyond what a search does: few columns each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Text, cast, func, select

from app.catalog.records import Kind
from app.catalog.repositories.candidates import Candidate
from app.catalog.repositories.models import tagged
from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow, SignatureRow, TagRow
from app.spaces.records import SpaceRecord

__all__ = [
    "Labelled",
    "Node",
    "candidates_by_name",
    "count_nodes",
    "declared_bases",
    "labelled_by_id",
    "nodes",
]

T = TypeVar("T")
_AT_ONCE = 500  # below every backend's limit of bound parameters
_SCANNED = 16
"""Models that are passed over in the time in which one is looked up by its id."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A model and one of its attributes."""

    id: int
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Node:
    """A model of a graph; ``values`` are its signature's, little-endian."""

    name: str
    kind: Kind
    support_size: int
    blob_key: str | None
    base_model: str | None
    values: bytes
    tags: tuple[str, ...]


def labelled_by_id(
    session: Reader, space: SpaceRecord, ids: Sequence[int], attribute: str
) -> list[Labelled]:
    """Those of the models that have the attribute, and are not null there; in no order.

    What others carry is not read: the name, as it is written in JSON, does not occur there.
    """
    wanted = set(ids)
    written = cast(ModelRow.attributes, Text).contains(json.dumps(attribute), autoescape=True)
    query = select(ModelRow.id, ModelRow.name, ModelRow.attributes).where(
        ModelRow.space_id == space.id, written
    )
    queries = [query.where(ModelRow.id.in_(some)) for some in _batches(ids)]
    if len(ids) * _SCANNED >= space.models:
        queries = [query.execution_options(yield_per=2000)]
    return [
        Labelled(model_id, name, attributes[attribute])
        for one in queries
        for model_id, name, attributes in session.execute(one)
        if model_id in wanted and attributes.get(attribute) is not None
    ]


def declared_bases(
    session: Reader, space: SpaceRecord, names: Iterable[str]
) -> dict[str, str | None]:
    """What those of the models declare as their base, under the names of all that there are."""
    found: dict[str, str | None] = {}
    for some in _batches(list(dict.fromkeys(names))):
        query = select(ModelRow.name, ModelRow.base_model).where(
            ModelRow.space_id == space.id, ModelRow.name.in_(some)
        )
        found.update((name, base) for name, base in session.execute(query))
    return found


def candidates_by_name(
    session: Reader, space: SpaceRecord, names: Iterable[str]
) -> dict[str, Candidate]:
    """Those of the models that there are, under their names."""
    columns = tuple(getattr(ModelRow, name) for name in Candidate.__dataclass_fields__)
    found: dict[str, Candidate] = {}
    for some in _batches(list(dict.fromkeys(names))):
        query = select(*columns).where(ModelRow.space_id == space.id, ModelRow.name.in_(some))
        found.update((row.name, Candidate(*row)) for row in session.execute(query))
    return found


def count_nodes(session: Reader, space: SpaceRecord, tags: Sequence[str]) -> int:
    """How many models there are that carry all of ``tags``."""
    query = select(func.count()).select_from(ModelRow)
    return session.scalars(query.where(ModelRow.space_id == space.id, *tagged(tags))).one()


def nodes(session: Reader, space: SpaceRecord, tags: Sequence[str]) -> list[Node]:
    """The models that carry all of ``tags``, by name."""
    here = ModelRow.space_id == space.id, *tagged(tags)
    told: dict[int, list[str]] = {}
    of_tags = select(TagRow.model_id, TagRow.tag).join(ModelRow, ModelRow.id == TagRow.model_id)
    for model_id, tag in session.execute(of_tags.where(*here).order_by(TagRow.tag)):
        told.setdefault(model_id, []).append(tag)
    query = (
        select(
            ModelRow.id,
            ModelRow.name,
            ModelRow.support_size,
            ModelRow.blob_key,
            ModelRow.base_model,
            SignatureRow.values,
        )
        .join(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .where(*here)
        .order_by(ModelRow.name)
    )
    rows = session.execute(query.execution_options(yield_per=2000))
    return [
        Node(
            name=row.name,
            kind="signature" if row.blob_key is None else "support",
            support_size=row.support_size,
            blob_key=row.blob_key,
            base_model=row.base_model,
            values=row.values,
            tags=tuple(told.get(row.id, ())),
        )
        for row in rows
    ]


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))
