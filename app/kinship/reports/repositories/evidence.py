"""Queries for what a report is made from: fingerprints, what was measured, digests of weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, func, or_, select

from app.infra.db.database import Reader
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.catalog import ModelRow
from app.infra.db.tables.fingerprints import FingerprintRow
from app.infra.db.tables.weights import ModelWeightsRow

__all__ = [
    "KinOf",
    "MeasuredModel",
    "changed_names",
    "count_fingerprints",
    "find_measured",
    "kin_between",
    "kin_of",
    "measured_since",
    "weights_of",
]

_PER_STATEMENT: Final = 400
"""Ids or names of one statement: below every backend's limit of bound parameters."""
_ROWS_PER_FETCH: Final = 1_000
_NEAREST: Final = 25
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


@dataclass(frozen=True, slots=True)
class KinOf:
    """What a model is to another one, by their ids."""

    fingerprint_id: int
    other_id: int
    verdict: str
    sentence: str
    share: float
    log10_p: float


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
    lazily = query.order_by(FingerprintRow.id).execution_options(yield_per=_ROWS_PER_FETCH)
    for row in session.execute(lazily):
        yield _measured(row)


def find_measured(
    session: Reader,
    tenant_id: int,
    *,
    ids: Collection[int] = (),
    names: Collection[str] = (),
) -> list[MeasuredModel]:
    """The tenant's models of some ids, and of some names."""
    found = list[MeasuredModel]()
    for some in _batches(ids):
        rows = session.execute(_models(tenant_id).where(FingerprintRow.id.in_(some)))
        found += map(_measured, rows)
    for named in _batches(names):
        rows = session.execute(_models(tenant_id).where(FingerprintRow.name.in_(named)))
        found += map(_measured, rows)
    return found


def kin_of(session: Reader, tenant_id: int, ids: Collection[int]) -> Iterator[KinOf]:
    """What some models are to others: to those that have most of their lines, and to copies."""
    rank = (
        func.row_number()
        .over(partition_by=KinRow.fingerprint_id, order_by=(KinRow.share.desc(), KinRow.other_id))
        .label("rank")
    )
    for some in _batches(ids):
        ranked = (
            select(*_KIN, rank)
            .where(KinRow.tenant_id == tenant_id, KinRow.fingerprint_id.in_(some))
            .subquery()
        )
        columns = [ranked.c[each.key] for each in _KIN]
        for row in session.execute(select(*columns).where(ranked.c.rank <= _NEAREST)):
            yield KinOf(*row)


def kin_between(
    session: Reader, tenant_id: int, ids: Collection[int], others: Collection[int]
) -> Iterator[KinOf]:
    """What some models are to some others."""
    for some in _batches(ids):
        for these in _batches(others):
            query = select(*_KIN).where(
                KinRow.tenant_id == tenant_id,
                KinRow.fingerprint_id.in_(some),
                KinRow.other_id.in_(these),
            )
            for row in session.execute(query):
                yield KinOf(*row)


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


_KIN: Final = (
    KinRow.fingerprint_id,
    KinRow.other_id,
    KinRow.verdict,
    KinRow.sentence,
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
