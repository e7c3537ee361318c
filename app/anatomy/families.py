"""Families: the bases and the derivatives of a stored model, measured and declared.

Kin share lines, also with a base's base. So an edge that others explain is left out: of a chain of
fine-tunes each hangs on the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from app.anatomy.records import Kin, Summary, edge_to
from app.anatomy.repositories import anatomies, listings
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.relations.edges import EDGE_SHARE, EdgeReason
from modelkin.core.fingerprints.sources import WHOLE, Verdict

__all__ = ["Family", "FamilyEdge", "FamilyMember", "FamilyService"]

_MOST_KIN: Final = 120
"""The nearest kin that are looked through: a popular base has thousands."""
_MOST_COPIES: Final = 20
"""The copies among them, which would fill the places of all others."""
_COPY: Final[tuple[Verdict, ...]] = ("copy",)
_OTHERS: Final[tuple[Verdict, ...]] = tuple(set(get_args(Verdict)) - {"copy"})
_MOST_DECLARED: Final = 20


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A model of a family.

    Attributes:
        record: None for a declared base that is not stored.
        level: 0 for the model that was asked for; below it bases, above it derivatives.
    """

    name: str
    record: FingerprintRecord | None
    level: int


@dataclass(frozen=True, slots=True)
class FamilyEdge:
    """A model and its base.

    Attributes:
        reason: why it is drawn; ``declared`` even where nothing was measured.
        kin: what was measured; None where nothing in common was found, or was looked for.
    """

    model: str
    base: str
    reason: EdgeReason
    kin: Kin | None

    @property
    def is_declared(self) -> bool:
        """Whether the model names the base."""
        return self.reason == "declared"


@dataclass(frozen=True, slots=True)
class Family:
    """A model with its bases and derivatives.

    Attributes:
        members: the model, its bases and derivatives, by level and name.
        copies: the nearest models with all of its lines, and no more.
        undeclared: models that would have an edge to it, or it to them, if dates said which of the
            two is older: they declare no base that they have lines in common with, and are not in
            the tree.
        kin: how many models have lines in common with it; the nearest are looked through.
        truncated: whether there is more kin than was looked through.
    """

    of: str
    members: tuple[FamilyMember, ...]
    edges: tuple[FamilyEdge, ...]
    copies: tuple[tuple[FingerprintRecord, Kin], ...]
    undeclared: tuple[tuple[FingerprintRecord, Kin], ...]
    kin: int
    truncated: bool


class FamilyService:
    """Families, from what anatomies have stored.

    Args:
        fingerprints: the stored fingerprints.
    """

    def __init__(self, fingerprints: FingerprintService) -> None:
        self._fingerprints = fingerprints

    def family(self, session: Reader, tenant: Tenant, record: FingerprintRecord) -> Family:
        """The family of a stored model."""
        counts = listings.count_kin(session, tenant.id, record.id)
        near = list[Kin]()
        for verdicts, most in (_OTHERS, _MOST_KIN), (_COPY, _MOST_COPIES):
            near += anatomies.kin_of(session, tenant.id, record.id, limit=most, verdicts=verdicts)
        ids = [record.id, *(each.other_id for each in near)]
        records = self._fingerprints.by_ids(session, tenant, ids) | {record.id: record}
        if not record.keys:  # nothing can be measured, so declarations alone make its family
            names = self._fingerprints.names_declaring(
                session, tenant, record.name, limit=_MOST_KIN
            )
            made = self._fingerprints.find_many(session, tenant, names)
            records |= {each.id: each for each in made.values()}
        records |= self._declared(session, tenant, records.values())
        kin = {
            (each.fingerprint_id, each.other_id): each
            for each in anatomies.find_kin(session, tenant.id, records, records)
        }
        copies = _copies(record, records, kin)
        edges = _edges({i: r for i, r in records.items() if r.id not in copies}, kin)
        kept = _without_detours(edges)
        levels = _levels(record.name, kept)
        derived = {each.model for each in edges if each.kin is not None}
        shown = [each for each in kept if each.model in levels and each.base in levels]
        by_name = {each.name: each for each in records.values()}
        members = [FamilyMember(name, by_name.get(name), at) for name, at in levels.items()]
        return Family(
            record.name,
            tuple(sorted(members, key=lambda each: (each.level, each.name))),
            tuple(sorted(shown, key=lambda each: (levels[each.base], each.base, each.model))),
            tuple((records[other], kin[record.id, other]) for other in sorted(copies)),
            tuple(
                (records[each.other_id], each)
                for each in near
                if each.other_id in records and each.other_id not in copies
                if records[each.other_id].name not in levels
                if records[each.other_id].name not in derived and _is_near(each)
            ),
            sum(counts.values()),
            sum(counts.values()) > len(near),
        )

    def summaries(
        self, session: Reader, tenant: Tenant, records: Iterable[FingerprintRecord]
    ) -> dict[int, Summary]:
        """The last anatomies of these models that have one, by the ids of their fingerprints."""
        return anatomies.find_summaries(session, tenant.id, [each.id for each in records])

    def kin(
        self,
        session: Reader,
        tenant: Tenant,
        record: FingerprintRecord,
        *,
        limit: int,
        offset: int = 0,
        verdicts: Collection[Verdict] = (),
    ) -> list[tuple[FingerprintRecord, Kin]]:
        """The kin of a stored model, those with the least P first.

        Args:
            offset: how many are left out before.
            verdicts: only what it is so to; empty for all.
        """
        near = anatomies.kin_of(
            session, tenant.id, record.id, limit=limit, offset=offset, verdicts=verdicts
        )
        records = self._fingerprints.by_ids(session, tenant, [each.other_id for each in near])
        return [(records[each.other_id], each) for each in near if each.other_id in records]

    def count_kin(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord
    ) -> dict[Verdict, int]:
        """How many stored models a model is what to."""
        return listings.count_kin(session, tenant.id, record.id)

    def _declared(
        self, session: Reader, tenant: Tenant, records: Iterable[FingerprintRecord]
    ) -> dict[int, FingerprintRecord]:
        """The declared bases of these models, and theirs, which lines may not have found."""
        found = dict[int, FingerprintRecord]()
        names = {base for each in records for base in each.facts.base_models[:_MOST_DECLARED]}
        asked = set[str]()
        while names - asked and len(asked) < _MOST_KIN:
            stored = self._fingerprints.find_many(session, tenant, names - asked)
            asked |= names
            found |= {each.id: each for each in stored.values()}
            names = {base for each in stored.values() for base in each.facts.base_models}
        return found


def _copies(
    record: FingerprintRecord,
    records: Mapping[int, FingerprintRecord],
    kin: Mapping[tuple[int, int], Kin],
) -> set[int]:
    """The ids of the model's copies that it does not name as its base, nor they it."""
    return {
        other.id
        for other in records.values()
        if (own := kin.get((record.id, other.id))) is not None
        and own.verdict == "copy"
        and other.name not in record.facts.base_models
        and record.name not in other.facts.base_models
    }


def _is_near(kin: Kin) -> bool:
    """Whether two models have so much in common that an edge lacks but a declaration or dates."""
    return kin.verdict in WHOLE and max(kin.share, kin.share_of_other) >= EDGE_SHARE


def _edges(
    records: Mapping[int, FingerprintRecord], kin: Mapping[tuple[int, int], Kin]
) -> list[FamilyEdge]:
    """All edges between these models, and those to declared bases, stored or not."""
    edges = dict[tuple[str, str], FamilyEdge]()
    for (model_id, other_id), each in kin.items():
        if model_id not in records or other_id not in records:
            continue
        model, other = records[model_id], records[other_id]
        reason = edge_to(model, other, each.verdict, each.share)
        if reason is not None:
            edges[model.name, other.name] = FamilyEdge(model.name, other.name, reason, each)
    for record in records.values():
        for base in record.facts.base_models[:_MOST_DECLARED]:
            if base != record.name and (record.name, base) not in edges:
                edges[record.name, base] = FamilyEdge(record.name, base, "declared", None)
    return list(edges.values())


def _without_detours(edges: Collection[FamilyEdge]) -> list[FamilyEdge]:
    """The edges but those that another base explains: it is kin of the first, and shares more.

    Of two that share as much, it is the one that the other was made from: a copy in another layout
    has the lines of its base.
    """
    bases = defaultdict[str, dict[str, FamilyEdge]](dict)
    for edge in edges:
        bases[edge.model][edge.base] = edge

    def is_before(one: str, other: str) -> bool:
        if other in bases[one] and one in bases[other]:
            return one < other
        return one in bases[other]

    def is_explained(edge: FamilyEdge) -> bool:
        if edge.is_declared or edge.kin is None:
            return False
        for other, way in bases[edge.model].items():
            if edge.base not in bases[other] and other not in bases[edge.base]:
                continue
            share = 0.0 if way.kin is None else way.kin.share
            nearer = share > edge.kin.share
            if (
                way.is_declared
                or nearer
                or (share == edge.kin.share and is_before(other, edge.base))
            ):
                return True
        return False

    return [edge for edge in edges if not is_explained(edge)]


def _levels(name: str, edges: Iterable[FamilyEdge]) -> dict[str, int]:
    """The bases of a model and theirs below 0, and its derivatives above; a loop ends at once."""
    bases, derivatives = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for edge in edges:
        bases[edge.model].add(edge.base)
        derivatives[edge.base].add(edge.model)
    levels = {name: 0}
    for ways, step in ((bases, -1), (derivatives, 1)):
        reached, at = [name], 0
        while reached:
            at += step
            reached = sorted({far for near in reached for far in ways[near]} - levels.keys())
            levels |= dict.fromkeys(reached, at)
    return levels
