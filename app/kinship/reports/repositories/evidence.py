"""Queries for what a report is made from: fingerprints, what was measured, digests of weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, func, or_, select

from app.infra.db.database import Reader
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.catalog import ModelRow
from app.infra.db.tables.fingerprints import FingerprintRow
from app.infra.db.tables.weights import ModelWeightsRow
from app.kinship.reports.records import Pair

__all__ = [
    "NEAREST",
    "MeasuredModel",
    "changed_names",
    "count_fingerprints",
    "find_measured",
    "kin_between",
    "kin_of",
    "measured_since",
    "sentences",
    "weights_of",
]

_PER_STATEMENT: Final = 400
"""Ids or names of one statement: below every backend's limit of bound parameters."""
_ROWS_PER_FETCH: Final = 1_000
NEAREST: Final = 25
"""Kin of one model that are read: those with most of its lines."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model with a fingerprint, what is declared beside it, and its last anatomy.

    Attributes:
        declared: the names of its declared bases.
        verdict: that of the anatomy; None before the first.
        relations: ``{"relation", "models", "sentence"}`` of each that the anatomy found.
        measured_at: when that was made.
    """

    id: int
    name: str
    created_at: datetime
    changed_at: datetime
    published_at: datetime | None
    stated_by: str
    parameters: int
    file_bytes: int | None
    digest: str
    license: str | None
    declared: tuple[str, ...]
    verdict: str | None
    relations: tuple[dict[str, Any], ...]
    measured_at: datetime | None


def count_fingerprints(session: Reader, tenant_id: int) -> int:
    """How many models of a tenant have a fingerprint."""
    query = select(func.count()).select_from(FingerprintRow)
    return session.execute(query.where(FingerprintRow.tenant_id == tenant_id)).scalar_one()


def measured_since(
    session: Reader, tenant_id: int, since: datetime | None, until: datetime
) -> Iterator[MeasuredModel]:
    """The models that were stored, changed or measured in a time; all without its begin."""
    query = _models(tenant_id).where(FingerprintRow.created_at <= until)
    if since is not None:
        query = query.where(or_(FingerprintRow.changed_at > since, AnatomyRow.made_at > since))
    query = query.order_by(FingerprintRow.id).limit(_ROWS_PER_FETCH)
    last = 0
    while rows := session.execute(query.where(FingerprintRow.id > last)).all():
        yield from map(_measured, rows)
        last = rows[-1].id


def find_measured(
    session: Reader,
    tenant_id: int,
    *,
    ids: Collection[int] = (),
    names: Collection[str] = (),
) -> Iterator[MeasuredModel]:
    """The tenant's models of some ids, and of some names."""
    for column, values in ((FingerprintRow.id, ids), (FingerprintRow.name, names)):
        for some in _batches(values):
            rows = session.execute(_models(tenant_id).where(column.in_(some))).all()
            yield from map(_measured, rows)


def kin_of(
    session: Reader, tenant_id: int, ids: Collection[int]
) -> Iterator[tuple[list[int], list[Pair]]]:
    """What some models are to those that have most of their lines, some models at a time."""
    rank = (
        func.row_number()
        .over(partition_by=KinRow.fingerprint_id, order_by=(KinRow.share.desc(), KinRow.other_id))
        .label("rank")
    )
    for some in _batches(ids):
        ranked = (
            select(*_PAIR, rank)
            .where(KinRow.of(tenant_id), KinRow.fingerprint_id.in_(some))
            .subquery()
        )
        columns = [ranked.c[each.key] for each in _PAIR]
        query = select(*columns).where(ranked.c.rank <= NEAREST)
        yield some, _pairs(session.execute(query))


def kin_between(
    session: Reader, tenant_id: int, models: Mapping[int, Collection[int]]
) -> Iterator[list[Pair]]:
    """What models are to others, and some more of the same.

    Args:
        models: their ids, by the id of the other one.
    """
    for others, ids in _together(models):
        query = select(*_PAIR).where(
            KinRow.of(tenant_id),
            KinRow.fingerprint_id.in_(ids),
            KinRow.other_id.in_(others),
        )
        yield _pairs(session.execute(query))


def sentences(
    session: Reader, tenant_id: int, others: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
    """What was seen of models and one other each.

    Args:
        others: the id of the other one, by that of the model.
    """
    for some in _batches(others):
        query = select(KinRow.fingerprint_id, KinRow.other_id, KinRow.sentence).where(
            KinRow.of(tenant_id),
            KinRow.fingerprint_id.in_(some),
            KinRow.other_id.in_({others[each] for each in some}),
        )
        for model, other, sentence in session.execute(query):
            if others[model] == other:
                yield model, sentence


def weights_of(session: Reader, tenant_id: int, names: Collection[str]) -> dict[str, str]:
    """The digests of the weights of models, by name; those of which one digest is known."""
    found: dict[str, set[bytes]] = {}
    for some in _batches(names):
        query = (
            select(ModelRow.name, ModelWeightsRow.digest)
            .join(ModelWeightsRow, ModelWeightsRow.model_id == ModelRow.id)
            .where(
                ModelWeightsRow.tenant_id == tenant_id,
                ModelWeightsRow.revision == ModelRow.revision,
                ModelRow.name.in_(some),
            )
        )
        for name, digest in session.execute(query):
            found.setdefault(name, set()).add(digest)
    return {
        name: f"sha256:{digests.pop().hex()}"
        for name, digests in found.items()
        if len(digests) == 1
    }


def changed_names(
    session: Reader, space_id: int, since: datetime | None
) -> list[tuple[str, tuple[str, ...]]]:
    """The models of a space that were stored or changed in a time, each with its bases."""
    query = select(ModelRow.name, ModelRow.base_model, ModelRow.base_models)
    query = query.where(ModelRow.space_id == space_id)
    if since is not None:
        query = query.where(ModelRow.updated_at > since)
    return [
        (name, tuple(several or ([one] if one else [])))
        for name, one, several in session.execute(query.order_by(ModelRow.name))
    ]


def _pairs(rows: Iterable[Any]) -> list[Pair]:
    return [(model, other, verdict, share, chance) for model, other, verdict, share, chance in rows]


_PAIR: Final = (
    KinRow.fingerprint_id,
    KinRow.other_id,
    KinRow.verdict,
    KinRow.share,
    KinRow.log10_p,
)


def _models(tenant_id: int) -> Select[Any]:
    row = FingerprintRow
    columns = (
        *(row.id, row.name, row.created_at, row.changed_at, row.published_at, row.stated_by),
        *(row.parameters, row.file_bytes, row.digest, row.license, row.base_models),
        *(AnatomyRow.verdict, AnatomyRow.relations, AnatomyRow.made_at),
    )
    joined = select(*columns).outerjoin(AnatomyRow, AnatomyRow.fingerprint_id == row.id)
    return joined.where(row.tenant_id == tenant_id)


def _measured(row: Any) -> MeasuredModel:
    return MeasuredModel(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        changed_at=row.changed_at,
        published_at=row.published_at,
        stated_by=row.stated_by,
        parameters=row.parameters,
        file_bytes=row.file_bytes,
        digest=row.digest,
        license=row.license,
        declared=tuple(row.base_models or ()),
        verdict=row.verdict,
        relations=() if row.verdict is None else tuple(row.relations or ()),
        measured_at=row.made_at,
    )


def _batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    ordered = sorted(set(values))
    return (ordered[at : at + _PER_STATEMENT] for at in range(0, len(ordered), _PER_STATEMENT))


def _together(models: Mapping[int, Collection[int]]) -> Iterator[tuple[list[int], list[int]]]:
    """Others and ids of models for one statement each: of many with few models several."""
    others, ids = list[int](), set[int]()
    for other in sorted(models):
        for some in _batches(models[other]):
            if len(ids) + len(some) > _PER_STATEMENT or len(others) == _PER_STATEMENT:
                yield others, sorted(ids)
                others, ids = [], set()
            others.append(other)
            ids.update(some)
    if others:
        yield others, sorted(ids)
