"""Queries for families: how many models are made from each base, and from what that is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from app.infra.db.database import Reader
from app.infra.db.suggestions import names_around
from app.infra.db.tables.anatomies import AnatomyRow
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.findings import FindingRow
from app.infra.db.tables.fingerprints import FingerprintRow
from app.kinship.findings.records import RANKS
from app.models.spaces.repositories.spaces import exists

__all__ = [
    "DeclaredBase",
    "MeasuredBase",
    "contradicted",
    "declared_bases",
    "made_from",
    "measured_bases",
    "names_near",
    "naming",
    "with_fingerprint",
]

_PER_STATEMENT: Final = 500
_UNTRUE: Final = (RANKS["mismatch"], RANKS["cycle"])


@dataclass(frozen=True, slots=True)
class MeasuredBase:
    """A fingerprint that others are made from, by their lines.

    Attributes:
        models: how many models are made from it directly.
        base_id: what it is made from itself; None for a root.
    """

    id: int
    name: str
    models: int
    base_id: int | None


@dataclass(frozen=True, slots=True)
class DeclaredBase:
    """A name that models of a space declare as their base.

    Attributes:
        models: how many models of the space declare it.
        base: what the model of this name declares itself; None for a root, stored or not.
        of_differences: whether the space holds differences from bases.
    """

    space: str
    name: str
    models: int
    base: str | None
    of_differences: bool


def measured_bases(session: Reader, tenant_id: int, *, limit: int) -> list[MeasuredBase]:
    """The fingerprints that most models are made from."""
    row, own = AnatomyRow, AnatomyRow.__table__.alias("own")
    groups = (
        select(row.base_id.label("base"), func.count().label("models"))
        .where(row.tenant_id == tenant_id, row.base_id.is_not(None))
        .group_by(row.base_id)
        .order_by(func.count().desc(), row.base_id)
        .limit(limit)
        .subquery()
    )
    query = (
        select(FingerprintRow.id, FingerprintRow.name, groups.c.models, own.c.base_id)
        .join(groups, groups.c.base == FingerprintRow.id)
        .outerjoin(own, own.c.fingerprint_id == FingerprintRow.id)
        .where(FingerprintRow.tenant_id == tenant_id)
    )
    return [MeasuredBase(*each) for each in session.execute(query)]


def declared_bases(session: Reader, tenant_id: int, *, limit: int) -> list[DeclaredBase]:
    """The bases that most models of a space declare."""
    own = ModelRow.__table__.alias("own")
    spaces = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id, exists)
    groups = (
        select(ModelRow.space_id, ModelRow.base_model, func.count().label("models"))
        .where(ModelRow.space_id.in_(spaces), ModelRow.base_model.is_not(None))
        .group_by(ModelRow.space_id, ModelRow.base_model)
        .order_by(func.count().desc(), ModelRow.space_id, ModelRow.base_model)
        .limit(limit)
        .subquery()
    )
    # One look into an index for each base: Postgres would join with all models.
    base = (
        select(own.c.base_model)
        .where(own.c.space_id == groups.c.space_id, own.c.name == groups.c.base_model)
        .scalar_subquery()
    )
    query = select(
        SpaceRow.name,
        groups.c.base_model,
        groups.c.models,
        base.label("base"),
        (SpaceRow.importance_kind == "delta").label("of_differences"),
    ).join(groups, groups.c.space_id == SpaceRow.id)
    return [DeclaredBase(*each) for each in session.execute(query)]


def contradicted(
    session: Reader, tenant_id: int, names: Iterable[str] | None = None, *, limit: int
) -> set[tuple[str, str, str]]:
    """The declarations that measurements contradict, or that go in a circle.

    Args:
        names: only those of these models; None for any.

    Returns:
        Spaces, models, and the bases that they declare.
    """
    row = FindingRow
    query = (
        select(SpaceRow.name, row.name, row.base)
        .join(SpaceRow, SpaceRow.id == row.space_id)
        .where(row.tenant_id == tenant_id, exists)
        # The index goes on from the tenant by both values of this.
        .where(row.is_acknowledged.in_((False, True)), row.rank.in_(_UNTRUE))
        .where(row.base.is_not(None))
        .limit(limit)
    )
    if names is not None:
        query = query.where(row.name.in_(sorted(names)))
    return {(space, name, base) for space, name, base in session.execute(query) if base}


def made_from(
    session: Reader, tenant_id: int, base_id: int, without: Iterable[int], *, limit: int
) -> list[str]:
    """The names of models that are made from a fingerprint directly, those stored last first."""
    query = (
        select(FingerprintRow.name)
        .join(AnatomyRow, AnatomyRow.fingerprint_id == FingerprintRow.id)
        .where(
            AnatomyRow.tenant_id == tenant_id,
            AnatomyRow.base_id == base_id,
            AnatomyRow.fingerprint_id.not_in(list(without)),
        )
        .order_by(AnatomyRow.fingerprint_id.desc())
        .limit(limit)
    )
    return list(session.scalars(query))


def with_fingerprint(session: Reader, tenant_id: int, names: Iterable[str]) -> set[str]:
    """Those of some names that have a fingerprint with lines; an index holds the names."""
    wanted, found = sorted(names), set[str]()
    for at in range(0, len(wanted), _PER_STATEMENT):
        query = select(FingerprintRow.name).where(
            FingerprintRow.tenant_id == tenant_id,
            FingerprintRow.name.in_(wanted[at : at + _PER_STATEMENT]),
            FingerprintRow.keys > 0,
        )
        found |= set(session.scalars(query))
    return found


def names_near(session: Reader, tenant_id: int, space: str, base: str) -> list[str]:
    """Names that the name of a base may stand for, of models that do not declare it.

    They are those of the space and of the tenant's fingerprints.
    """
    query = select(SpaceRow.id).where(SpaceRow.tenant_id == tenant_id, SpaceRow.name == space)
    space_id = session.scalars(query).one()
    others = ModelRow.base_model.is_(None) | (ModelRow.base_model != base)
    here = names_around(session, ModelRow.name, (ModelRow.space_id == space_id) & others, base)
    of_tenant = FingerprintRow.tenant_id == tenant_id
    anywhere = names_around(session, FingerprintRow.name, of_tenant, base)
    declares = select(ModelRow.name).where(
        ModelRow.space_id == space_id, ModelRow.base_model == base, ModelRow.name.in_(anywhere)
    )
    return sorted({*here, *anywhere} - {*session.scalars(declares)})


def naming(
    session: Reader, tenant_id: int, space: str, base: str, without: Iterable[str], *, limit: int
) -> list[str]:
    """The names of models of a space that declare this base."""
    query = (
        select(ModelRow.name)
        .join(SpaceRow, SpaceRow.id == ModelRow.space_id)
        .where(
            SpaceRow.tenant_id == tenant_id,
            SpaceRow.name == space,
            ModelRow.base_model == base,
            ModelRow.name.not_in(list(without)),
        )
        .limit(limit)
    )
    return list(session.scalars(query))
