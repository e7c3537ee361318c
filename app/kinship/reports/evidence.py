"""What a report is made from: facts that are declared, and measurements, of many models.

Nothing is read or computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.kinship.reports.families import Families
from app.kinship.reports.known import KnownModel, Period
from app.kinship.reports.likenesses import Likenesses
from modelkin.types.reports import ContradictedBase, TakenApart, UndeclaredBase

__all__ = ["Evidence"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a report is made from.

    Attributes:
        owner: the name of the tenant.
        fingerprints: how many models of the tenant have a fingerprint.
        models: those that the report is about, and all that stand in their findings, by name.
        likenesses: of each model that the report is about, and of those that it is like.
        families: the bases of the models.
        sentences: what was seen of a model and a base that it does not name.
        contradicted: declared bases that the measurements speak against.
        judged: how many declared bases were judged.
        unknown: how many declared bases are not stored, so that nothing can be measured.
        undeclared: bases that were found in spaces.
        merges: what was taken apart.
        notes: what was left out, a sentence each.
    """

    owner: str
    period: Period
    fingerprints: int
    models: Mapping[str, KnownModel]
    likenesses: Likenesses
    families: Families
    sentences: Mapping[tuple[str, str], str] = field(default_factory=dict)
    contradicted: Sequence[ContradictedBase] = ()
    judged: int = 0
    unknown: int = 0
    undeclared: Sequence[UndeclaredBase] = ()
    merges: Sequence[TakenApart] = ()
    notes: Sequence[str] = ()
