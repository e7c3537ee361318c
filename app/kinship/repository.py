"""Queries of donors, graphs and lineages: few columns of many models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Text, cast, func, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import (
    ModelRow,
    SignatureRow,
    SpaceRow,
    TagRow,
    TensorCountsRow,
)
from app.models.catalog.records import ShownKind
from app.models.catalog.repositories import bases as declared
from app.models.catalog.repositories.model_filters import tag_conditions
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import exists

__all__ = [
    "LabelledModel",
    "Node",
    "count_nodes",
    "declared_bases",
    "ids_across_spaces",
    "ids_declaring",
    "labelled_models_by_id",
    "nodes",
    "tags_by_name",
]

T = TypeVar("T")
_BATCH_SIZE = 500  # below every backend's limit of bound parameters
_ROWS_PER_LOOKUP = 16
"""Rows that a scan passes in the time of one lookup by id."""


@dataclass(frozen=True, slots=True)
class LabelledModel:
    """A model and one of its attributes."""

    id: int
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Node:
    """A model of a graph.

    Attributes:
        tensor_counts: the counts as stored; None without any.
    """

    name: str
    kind: ShownKind
    support_size: int
    digest: str | None
    blob_key: str | None
    base_model: str | None
    tags: tuple[str, ...]
    tensor_counts: bytes | None
    base_models: tuple[str, ...] = ()


def labelled_models_by_id(
    session: Reader, space: SpaceRecord, ids: Sequence[int], attribute: str
) -> list[LabelledModel]:
    """The models among ``ids`` with a value of this attribute, in any order.

    The query skips models whose JSON does not contain the attribute's name.
    """
    text = cast(ModelRow.attributes, Text)
    query = select(ModelRow.id, ModelRow.name, text).where(
        ModelRow.space_id == space.id, text.contains(json.dumps(attribute), autoescape=True)
    )
    queries = [query.where(ModelRow.id.in_(some)) for some in _batches(ids)]
    if len(ids) * _ROWS_PER_LOOKUP >= space.models:
        queries = [query.execution_options(yield_per=2000)]
    wanted, connection = set(ids), session.connection()
    # Only wanted values are parsed: a scan passes many more rows.
    read = (
        (model_id, name, json.loads(written).get(attribute))
        for one in queries
        for model_id, name, written in connection.execute(one)
        if model_id in wanted
    )
    return [LabelledModel(*each) for each in read if each[2] is not None]


def declared_bases(
    session: Reader, space: SpaceRecord, names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The declared bases of each existing model, by name."""
    found: dict[str, tuple[str, ...]] = {}
    for some in _batches(list(dict.fromkeys(names))):
        query = select(ModelRow.name, ModelRow.base_model, ModelRow.base_models).where(
            ModelRow.space_id == space.id, ModelRow.name.in_(some)
        )
        for name, base, several in session.execute(query):
            found[name] = _all_bases(base, several)
    return found


def tags_by_name(session: Reader, space: SpaceRecord, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the tags of the named models that have any, by name."""
    found: dict[str, set[str]] = {}
    for some in _batches(list(dict.fromkeys(names))):
        query = (
            select(ModelRow.name, TagRow.tag)
            .join(TagRow, TagRow.model_id == ModelRow.id)
            .where(ModelRow.space_id == space.id, ModelRow.name.in_(some))
        )
        for name, tag in session.execute(query):
            found.setdefault(name, set()).add(tag)
    return found


def ids_declaring(session: Reader, space: SpaceRecord, bases: Sequence[str]) -> list[int]:
    """The ids of the models that declare one of ``bases``, maybe beside others."""
    return declared.ids_declaring(session, space.id, bases)


def ids_across_spaces(
    session: Reader, tenant_id: int, name: str, *, are_bases: bool, limit: int
) -> dict[int, list[int]]:
    """The ids of the tenant's models of a name that declare a base, by the ids of their spaces.

    Args:
        are_bases: whether models that declare the name are among them, too.
        limit: the most models.
    """
    own = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id)
    declares = ModelRow.base_model.is_not(None) | ModelRow.base_models.is_not(None)
    wanted = (ModelRow.name == name) & declares
    if are_bases:
        wanted |= declared.declares_any([name])
    query = select(ModelRow.space_id, ModelRow.id).where(ModelRow.space_id.in_(own), wanted)
    found: dict[int, list[int]] = {}
    for space_id, model_id in session.execute(query.order_by(ModelRow.id).limit(limit)):
        found.setdefault(space_id, []).append(model_id)
    return found


def names_stored(session: Reader, tenant_id: int, names: Sequence[str]) -> set[str]:
    """Those of some names that a model of any space of the tenant has."""
    own = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id, exists)
    query = select(ModelRow.name).where(ModelRow.space_id.in_(own), ModelRow.name.in_(names))
    return set(session.scalars(query))


def count_nodes(session: Reader, space: SpaceRecord, tags: Sequence[str]) -> int:
    """The number of models that carry all of ``tags``."""
    query = select(func.count()).select_from(ModelRow)
    return session.scalars(query.where(ModelRow.space_id == space.id, *tag_conditions(tags))).one()


def nodes(
    session: Reader, space: SpaceRecord, tags: Sequence[str], *, counted: bool = True
) -> Iterator[tuple[Node, bytes]]:
    """The models that carry all of ``tags``, by name, each with the values of its signature.

    Args:
        counted: whether to read their index counts by tensor, too.
    """
    here = ModelRow.space_id == space.id, *tag_conditions(tags)
    tags_by_id: dict[int, list[str]] = {}
    of_tags = select(TagRow.model_id, TagRow.tag).join(ModelRow, ModelRow.id == TagRow.model_id)
    for model_id, tag in session.execute(of_tags.where(*here).order_by(TagRow.tag)):
        tags_by_id.setdefault(model_id, []).append(tag)
    query = (
        select(
            ModelRow.id,
            ModelRow.name,
            ModelRow.support_size,
            ModelRow.digest,
            ModelRow.blob_key,
            ModelRow.base_model,
            ModelRow.base_models,
            SignatureRow.values,
            TensorCountsRow.counts,
        )
        .join(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .outerjoin(TensorCountsRow, (TensorCountsRow.model_id == ModelRow.id) & counted)
        .where(*here)
        .order_by(ModelRow.name)
    )
    alone: ShownKind = "signature" if space.kind == "supports" else "subspace"
    for row in session.execute(query.execution_options(yield_per=2000)):
        node = Node(
            name=row.name,
            kind=alone if row.blob_key is None else "support",
            support_size=row.support_size,
            digest=row.digest,
            blob_key=row.blob_key,
            base_model=row.base_model,
            base_models=_all_bases(row.base_model, row.base_models),
            tags=tuple(tags_by_id.get(row.id, ())),
            tensor_counts=row.counts,
        )
        yield node, row.values


def _all_bases(base: str | None, several: Sequence[str] | None) -> tuple[str, ...]:
    """All declared bases of a row: the only one, or several."""
    return tuple(several or ()) if base is None else (base,)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _BATCH_SIZE] for at in range(0, len(items), _BATCH_SIZE))
