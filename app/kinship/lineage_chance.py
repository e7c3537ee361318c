"""The P of a lineage: how unlikely so much is between unrelated models, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.infra.db.database import Reader
from app.kinship.declared_bases import JudgedBase
from app.kinship.lineage_comparer import LineageComparer
from app.kinship.unknown_chance import NOTHING, why_no_p
from app.models.catalog.records import ModelRecord
from app.models.spaces.records import SpaceRecord
from modelkin.types.lineages import DeclaredBase, Kin, Lineage
from modelkin.types.search import Neighbor

__all__ = ["with_chance"]

_NOT_WEIGHTS: Final = (
    "what unrelated models share is known before for weights alone, and this space is of another "
    "importance, or does not state it"
)


def with_chance(
    comparer: LineageComparer,
    session: Reader,
    space: SpaceRecord,
    model: ModelRecord,
    lineage: Lineage,
    near: Sequence[Neighbor],
    bases: Sequence[JudgedBase],
) -> Lineage:
    """Add the P of everything that was measured, and of each verdict.

    Args:
        comparer: reads sizes.
        near: the models that kin and rival are among.
        bases: the declared bases, some of them of an earlier revision.
    """
    size = model.support_size
    of_near = comparer.log10_ps(session, space, size, near)
    measured = [each.measured.base for each in bases if each.measured.base is not None]
    of_bases = comparer.log10_ps(session, space, size, measured)
    base, rival = _known(lineage.base, of_bases), _known(lineage.rival, of_near)
    kin = tuple(replace(each, log10_p=of_near.get(each.model)) for each in lineage.kin)
    shown = base or next((each for each in kin if each.model == lineage.likely_base), None)
    log10_p = None if shown is None else shown.log10_p
    why = _why_none(space, log10_p, measured=shown is not None)
    return replace(
        lineage,
        base=base,
        rival=rival,
        kin=kin,
        declared_bases=tuple(
            _declared(space, each, of_bases.get(each.base_model)) for each in lineage.declared_bases
        ),
        log10_p=None if why else log10_p,
        no_p=why,
    )


def _known(kin: Kin | None, log10_ps: Mapping[str, float]) -> Kin | None:
    return None if kin is None else replace(kin, log10_p=log10_ps.get(kin.model))


def _declared(space: SpaceRecord, base: DeclaredBase, log10_p: float | None) -> DeclaredBase:
    why = _why_none(space, log10_p, measured=base.similarity is not None)
    return replace(base, log10_p=None if why else log10_p, no_p=why)


def _why_none(space: SpaceRecord, log10_p: float | None, *, measured: bool) -> str | None:
    """The reason why a verdict has no P; None where it has one."""
    if space.layout_digest is not None and space.importance.kind != "weight":
        return _NOT_WEIGHTS
    if space.layout_digest is not None and not measured:
        return NOTHING
    return why_no_p(space, known=log10_p is not None)
