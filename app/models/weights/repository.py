"""Queries about the weights of models, and about models that have the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import zstandard
from sqlalchemy import Select, delete, func, insert, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.weights import ModelWeightsRow
from app.models.catalog.records import ModelRecord
from modelkin.types.models import DuplicateModel, StatedWeights

__all__ = ["copied_names", "find_weights", "put_weights", "repeated_digests", "same_weights"]

_PREFIX: Final = "sha256:"
_CURRENT: Final = ModelWeightsRow.revision == ModelRow.revision
"""Whether weights are those of the model's present support."""


def put_weights(session: Writer, model: ModelRecord, tenant_id: int, stated: StatedWeights) -> None:
    """Store the weights of a model in place of those that it has."""
    table = table_of(ModelWeightsRow)
    session.execute(delete(table).where(table.c.model_id == model.id))
    session.execute(
        insert(table).values(
            model_id=model.id,
            tenant_id=tenant_id,
            revision=stated.revision,
            digest=_bytes_of(stated.digest),
            tensors=_packed(stated.tensors),
            files=stated.files,
            size=stated.size,
            dtypes=dict(stated.dtypes),
            stated_by=stated.stated_by,
            stated_at=datetime.now(UTC),
        )
    )


def find_weights(session: Reader, model: ModelRecord) -> StatedWeights | None:
    """The weights of the model's present support; None if they were not stated."""
    row = session.execute(
        select(ModelWeightsRow, ModelWeightsRow.tensors).where(
            ModelWeightsRow.model_id == model.id, ModelWeightsRow.revision == model.revision
        )
    ).one_or_none()
    if row is None:
        return None
    weights, tensors = row
    return StatedWeights(
        digest=_text_of(weights.digest),
        tensors=json.loads(zstandard.decompress(tensors)),
        files=weights.files,
        size=weights.size,
        dtypes=weights.dtypes,
        stated_by=_author(weights),
        revision=weights.revision,
    )


def same_weights(
    session: Reader,
    tenant_id: int,
    digest: str,
    limit: int,
    *,
    but: str | None = None,
    of: ModelRecord | None = None,
) -> list[DuplicateModel]:
    """The models with these weights, the one that was stored first ahead.

    Args:
        but: a name of models that are left out, in whatever space; None for none.
        of: the only model that is wanted; None for all.
    """
    query = (
        _current(SpaceRow.name, ModelRow.name, ModelRow.created_at, ModelWeightsRow)
        .join(SpaceRow, SpaceRow.id == ModelRow.space_id)
        .where(ModelWeightsRow.tenant_id == tenant_id, ModelWeightsRow.digest == _bytes_of(digest))
        .order_by(ModelRow.created_at, ModelRow.id)
        .limit(limit)
    )
    if but is not None:
        query = query.where(ModelRow.name != but)
    if of is not None:
        query = query.where(ModelRow.id == of.id)
    return [
        DuplicateModel(
            space=space,
            model=name,
            files=weights.files,
            size=weights.size,
            dtypes=weights.dtypes,
            stated_by=_author(weights),
            stored_at=created_at,
        )
        for space, name, created_at, weights in session.execute(query)
    ]


def repeated_digests(
    session: Reader, tenant_id: int, space_id: int | None, after: str | None, limit: int
) -> list[str]:
    """The digests of weights that models of two names have, in ascending order.

    Args:
        space_id: only weights of which a model of this space has one; None for all spaces.
        after: the digest after which the list begins.
    """
    digest = ModelWeightsRow.digest
    query = _current(digest).where(ModelWeightsRow.tenant_id == tenant_id)
    if after is not None:
        query = query.where(digest > _bytes_of(after))
    if space_id is not None:
        query = query.where(
            digest.in_(_current(digest).where(ModelRow.space_id == space_id).scalar_subquery())
        )
    names = func.count(ModelRow.name.distinct())
    found = session.scalars(query.group_by(digest).having(names > 1).order_by(digest).limit(limit))
    return [_text_of(each) for each in found]


def copied_names(
    session: Reader, tenant_id: int, space_id: int, names: Sequence[str]
) -> frozenset[str]:
    """Those of a space's models whose weights another model has, too."""
    own = _current(ModelRow.name, ModelWeightsRow.digest).where(
        ModelRow.space_id == space_id, ModelRow.name.in_(names)
    )
    found = session.execute(own).all()
    others = session.execute(
        _current(ModelWeightsRow.digest, ModelRow.name).where(
            ModelWeightsRow.tenant_id == tenant_id,
            ModelWeightsRow.digest.in_({digest for _, digest in found}),
        )
    )
    holders: dict[bytes, set[str]] = {}
    for digest, name in others:
        holders.setdefault(digest, set()).add(name)
    return frozenset(name for name, digest in found if len(holders[digest]) > 1)


def _current(*columns: Any) -> Select[*tuple[Any, ...]]:
    """A query of weights that are those of their model's present support."""
    return (
        select(*columns)
        .select_from(ModelWeightsRow)
        .join(ModelRow, (ModelRow.id == ModelWeightsRow.model_id) & _CURRENT)
    )


def _author(weights: ModelWeightsRow) -> Literal["hub", "client"]:
    return "hub" if weights.stated_by == "hub" else "client"


def _packed(tensors: Mapping[str, str]) -> bytes:
    return zstandard.compress(json.dumps(dict(tensors), separators=(",", ":")).encode())


def _bytes_of(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix(_PREFIX))


def _text_of(digest: bytes) -> str:
    return _PREFIX + digest.hex()
