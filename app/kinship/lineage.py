"""Lineage: the declared base of a model, beside the measured similarities.

:mod:`modelkin.core.kinship.lineage` has the rules. This module collects their inputs: the chain of
declared bases, the nearest models and how they relate, and the background of all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.catalog.reader import ModelReader, Subject
from app.catalog.repositories.candidates import candidates_by_name
from app.index.registry import IndexRegistry
from app.infra.db.database import Reader
from app.kinship.lineage_summary import summary_of
from app.kinship.neighborhood import scan_neighborhood
from app.kinship.repository import declared_bases
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import (
    MIN_BACKGROUND_MODELS,
    Estimate,
    Judgement,
    Rival,
    judge,
    limit_of,
    stands_out,
)
from modelkin.core.similarity.background import Background
from modelkin.types.kinship import Kin, Lineage, LineageLink, SimilarityBaseline
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import LineageVerdict, Relation

__all__ = ["LineageService"]

_MAX_INSPECTED, _MAX_RETURNED = 25, 10
"""Nearest models that are compared, since some may be relatives, and those that are returned."""
_MAX_CHAIN_LENGTH = 32
"""Links of a chain of declared bases that are followed."""


class LineageService:
    """The use case that compares a declared base with the measurements."""

    def __init__(
        self,
        reader: ModelReader,
        comparer: Comparer,
        search: SearchService,
        indexes: IndexRegistry,
    ) -> None:
        self._reader = reader
        self._comparer = comparer
        self._search = search
        self._indexes = indexes

    def lineage(self, session: Reader, space: SpaceRecord, name: str) -> Lineage:
        """The lineage of a stored model.

        Raises:
            ModelNotFound: there is no such model.
        """
        subject = self._reader.stored_subject(session, space, name)
        assert subject.model is not None
        declared = subject.model.base_model
        near = self._search.neighbors(session, space, subject, k=_MAX_INSPECTED)
        family = _Family.of(session, space, name, declared, [item.model for item in near])
        base = None
        if declared is not None and declared != name and declared in family.bases:
            base = self._compare(session, space, name, [declared]).get(declared)
        background, unrelated = self._background(session, space, subject, family)
        rivals = [item for item in near if family.relation(item.model) in {None, "ancestor"}]
        to_base: Mapping[str, Neighbor] = {}
        judgement = None
        if base is not None and declared is not None:
            to_base = self._compare(session, space, declared, [item.model for item in rivals])
            rivals = [item for item in rivals if item.model in to_base]
            judgement = judge(
                _measured(base),
                [Rival(_measured(item), _measured(to_base[item.model])) for item in rivals],
                background,
                unrelated=unrelated,
                runner_up=_runner_up(near, family),
            )
        kin = _Evidence(family, background, to_base)
        verdict = _verdict(name, declared, family, judgement)
        rival = None
        if judgement is not None and judgement.rival is not None:
            rival = kin.of(rivals[judgement.rival])
        lineage = Lineage(
            model=name,
            verdict=verdict,
            summary="",
            declared_base=declared,
            likely_base=_likely(verdict, judgement, rivals, rival, background),
            base=None if base is None else kin.of(base),
            rival=rival,
            kin=tuple(kin.of(item) for item in near[:_MAX_RETURNED]),
            usual=SimilarityBaseline(background.mean, background.deviation, background.models),
            limit=limit_of(background),
            chain=tuple(self._links(session, space, family.chain)),
            cycle=family.cycle,
            note=space.note,
        )
        return summary_of(lineage, None if judgement is None else judgement.reason)

    def _compare(
        self, session: Reader, space: SpaceRecord, name: str, others: Sequence[str]
    ) -> dict[str, Neighbor]:
        """The similarity of other models to a stored one, as sharp as possible, by name."""
        if not others:
            return {}
        subject = self._reader.stored_subject(session, space, name)
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, others)
        found, _ = self._comparer.compare(query, candidates)
        found = self._comparer.with_chance(session, space, subject, found)
        return {item.model: item for item in found}

    def _background(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        family: _Family,
    ) -> tuple[Background, bool]:
        """The background of the declared strangers, and True; or of all but the base, and False.

        The second is used if there are too few strangers.
        """
        neighborhood = scan_neighborhood(self._indexes, session, space, subject)
        relatives = [each for each in family.bases if family.relation(each) is not None]
        known = candidates_by_name(session, space, relatives)
        background = neighborhood.background(robust=True, without=[c.id for c in known])
        if background.models >= MIN_BACKGROUND_MODELS:
            return background, True
        base = [candidate.id for candidate in known if candidate.name == family.declared]
        return neighborhood.background(robust=True, without=base), False

    def _links(
        self, session: Reader, space: SpaceRecord, chain: Sequence[tuple[str, str]]
    ) -> list[LineageLink]:
        """The declared bases, each with its similarity to the model that declares it."""
        links = []
        for model, base in chain:
            found = (
                self._compare(session, space, model, [base]).get(base) if model != base else None
            )
            links.append(
                LineageLink(
                    model=model,
                    base_model=base,
                    similarity=None if found is None else found.similarity,
                    estimate=None if found is None else found.estimate,
                    standard_error=None if found is None else found.standard_error,
                    expected=None if found is None else found.expected,
                    kappa=None if found is None else found.kappa,
                )
            )
        return links


@dataclass(frozen=True, slots=True)
class _Family:
    """The declarations around a model.

    Attributes:
        name: the model.
        declared: its base.
        bases: the declared base of every model that was read, by name.
        chain: the model and its base, the base and its base, and so on.
        cycle: the chain returns to a model that it has passed.
    """

    name: str
    declared: str | None
    bases: Mapping[str, str | None]
    chain: tuple[tuple[str, str], ...]
    cycle: bool

    @classmethod
    def of(
        cls,
        session: Reader,
        space: SpaceRecord,
        name: str,
        declared: str | None,
        near: Sequence[str],
    ) -> _Family:
        """The declared bases of the model and of those near it, as far back as they are known."""
        bases: dict[str, str | None] = {name: declared}
        wanted = {*near, *([] if declared is None else [declared])} - bases.keys()
        for _ in range(_MAX_CHAIN_LENGTH):
            found = declared_bases(session, space, sorted(wanted))
            bases.update(found)
            wanted = {base for base in found.values() if base is not None} - bases.keys()
            if not wanted:
                break
        chain, cycle = _chain(name, bases)
        return cls(name, declared, bases, tuple(chain), cycle)

    def relation(self, other: str) -> Relation | None:
        """The declared relation of another model to this one; None if there is none declared."""
        if other == self.declared:
            return "base"
        ancestors = {base for _, base in self.chain}
        if other in ancestors and other != self.name:
            return "ancestor"
        chain, _ = _chain(other, self.bases)
        back = {base for _, base in chain}
        if self.name in back:
            return "derivative"
        return "sibling" if self.declared is not None and self.declared in back else None


def _chain(name: str, bases: Mapping[str, str | None]) -> tuple[list[tuple[str, str]], bool]:
    """The links from a model back, and whether they return to a model that they have passed."""
    chain: list[tuple[str, str]] = []
    seen, at = {name}, name
    while len(chain) < _MAX_CHAIN_LENGTH:
        base = bases.get(at)
        if base is None:
            return chain, False
        chain.append((at, base))
        if base in seen:
            return chain, True
        seen.add(base)
        at = base
    return chain, False


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Turns measurements into the kin of an answer."""

    family: _Family
    background: Background
    to_base: Mapping[str, Neighbor]

    def of(self, item: Neighbor) -> Kin:
        to_base = self.to_base.get(item.model)
        return Kin(
            model=item.model,
            similarity=item.similarity,
            estimate=item.estimate,
            standard_error=item.standard_error,
            z_score=self.background.z_score(item.similarity),
            stands_out=_stands_out(item, self.background),
            base_model=self.family.bases.get(item.model),
            relation=self.family.relation(item.model),
            to_base=None if to_base is None else to_base.similarity,
            expected=item.expected,
            kappa=item.kappa,
        )


def _runner_up(near: Sequence[Neighbor], family: _Family) -> Estimate | None:
    """The nearest model that is neither the base nor declared to be made from the model."""
    others = (item for item in near if family.relation(item.model) not in {"base", "derivative"})
    return next(map(_measured, others), None)


def _measured(item: Neighbor) -> Estimate:
    return Estimate(item.similarity, item.standard_error)


def _verdict(
    name: str, declared: str | None, family: _Family, judgement: Judgement | None
) -> LineageVerdict:
    if declared is None:
        return "undeclared"
    if family.cycle and family.chain[-1][1] == name:
        return "cycle"
    return "unknown_base" if judgement is None else judgement.verdict


def _likely(
    verdict: LineageVerdict,
    judgement: Judgement | None,
    rivals: Sequence[Neighbor],
    rival: Kin | None,
    background: Background,
) -> str | None:
    """The likely base, if the declared one is missing, unknown or contradicted."""
    if verdict in {"consistent", "inconclusive"}:
        return None
    if rival is not None and judgement is not None and judgement.reason == "rival":
        return rival.model
    return next((item.model for item in rivals if _stands_out(item, background)), None)


def _stands_out(item: Neighbor, background: Background) -> bool | None:
    enough = background.models >= MIN_BACKGROUND_MODELS
    return stands_out(_measured(item), background) if enough else None
