"""What a fingerprint and each of its kin are to each other, as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from app.anatomy.records import Kin, ModelAnatomy
from app.fingerprints.records import FingerprintRecord
from modelkin.core.fingerprints.anatomy import Parent, anatomy_of, parent_of
from modelkin.core.fingerprints.comparison import Comparison, compare
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.relations.relations import relation_by_figures

__all__ = ["both_ways"]

_MOST_TOLD: Final = 8
"""The kin whose relations are looked for, which takes longer than to compare them: of the others
it is said how many lines they have in common."""


def both_ways(record: FingerprintRecord, found: ModelAnatomy, known: set[int]) -> list[Kin]:
    """What a fingerprint is to each of its kin, and what these are to it.

    Args:
        known: ids of kin of which this is stored.
    """
    now, kin, told = datetime.now(UTC), list[Kin](), _told(record, found)
    for parent in found.anatomy.parents:
        other, comparison = found.records[parent.model], found.comparisons[parent.model]
        if other.id in known:
            continue
        back = compare(comparison.theirs, record.name, comparison.ours)
        for one, another, each in ((record, other, comparison), (other, record, back)):
            if parent.model in told:
                alone = anatomy_of(each.ours, [each])
                kin += [_kin(one, another, p, alone.relations, each, now) for p in alone.parents]
            else:
                what = parent_of(each.ours, each, found.compared)
                kin.append(_kin(one, another, what, [relation_by_figures(what)], each, now))
    return kin


def _told(record: FingerprintRecord, found: ModelAnatomy) -> set[str]:
    """The kin whose relations are looked for: those that add most, and what was declared."""
    first = [each.model for each in found.anatomy.parents[:_MOST_TOLD]]
    declared = [
        name
        for name, other in found.records.items()
        if name in record.facts.base_models or record.name in other.facts.base_models
    ]
    return {*first, *declared}


def _kin(
    record: FingerprintRecord,
    other: FingerprintRecord,
    parent: Parent,
    relations: Sequence[Relation],
    found: Comparison,
    now: datetime,
) -> Kin:
    return Kin(
        fingerprint_id=record.id,
        other_id=other.id,
        verdict=parent.verdict,
        relation=next((r.relation for r in relations if r.relation != "layout"), "layout"),
        sentence="; ".join(each.sentence for each in relations),
        share=parent.share_of_lines,
        share_of_other=found.share_of_model,
        share_of_parameters=parent.share_of_parameters,
        keys=parent.keys,
        expected=parent.expected,
        log10_p=parent.log10_p,
        made_at=now,
    )
