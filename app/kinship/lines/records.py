"""What a lineage by lines is made of, as plain frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.fingerprints.records import FingerprintRecord
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.edges import EdgeReason
from modelkin.core.fingerprints.relations.wording import tensors_in_words
from modelkin.core.fingerprints.sources import Verdict
from modelkin.core.kinship.line_relations import (
    LineageRelation,
    Said,
    StoredAs,
    headline,
    in_words_of_hubs,
)
from modelkin.core.kinship.lineage import Judgement
from modelkin.core.kinship.lines import LineJudgement
from modelkin.types.lineages import LikelyBase, LineEvidence, LineRelation

__all__ = ["JudgedByLines", "NearByLines", "ReadModel", "Whole"]


@dataclass(frozen=True, eq=False)
class ReadModel:
    """A stored fingerprint with what is said of it."""

    record: FingerprintRecord
    fingerprint: Fingerprint

    @property
    def name(self) -> str:
        """The model's name."""
        return self.record.name

    @property
    def stored_as(self) -> StoredAs:
        """How its file stores it."""
        return _stored_as(self.record)


@dataclass(frozen=True, slots=True)
class NearByLines:
    """A model with lines in common, as it was measured.

    Attributes:
        verdict: what the model in question is to it.
        share: of the lines of the model in question, those that it has.
        edge: why it is drawn as a base of the model in question; None where it is not.
    """

    record: FingerprintRecord
    verdict: Verdict
    share: float
    log10_p: float
    edge: EdgeReason | None

    @property
    def shown(self) -> LikelyBase:
        """The model as the evidence of a likely base."""
        return LikelyBase(
            model=self.record.name,
            verdict=self.verdict,
            share_of_lines=self.share,
            log10_p=self.log10_p,
            edge=self.edge,
            stated_by=self.record.stated_by,
        )


@dataclass(frozen=True, eq=False)
class Whole:
    """What a model is to several of its bases together: an average, or put together of them."""

    relations: tuple[Said, ...]

    @property
    def models(self) -> frozenset[str]:
        """The names of these bases."""
        return frozenset(name for each in self.relations for name in each.models)

    @property
    def shown(self) -> tuple[LineRelation, ...]:
        """The relations as an answer has them."""
        return _shown(self.relations)


@dataclass(frozen=True, eq=False)
class JudgedByLines:
    """A declared base, judged by lines.

    Attributes:
        base: its fingerprint.
        said: what the model is to it, in words of hubs.
    """

    base: FingerprintRecord
    judgement: LineJudgement
    said: tuple[Said, ...]

    @classmethod
    def of(
        cls, model: ReadModel, base: FingerprintRecord, judgement: LineJudgement
    ) -> JudgedByLines:
        """Name in words of hubs what a judgement has found."""
        relations, compared = judgement.anatomy.relations, judgement.comparison
        said = in_words_of_hubs(relations, compared, model.stored_as, _stored_as(base))
        return cls(base, judgement, said)

    @property
    def stored_as(self) -> StoredAs:
        """How the base's file stores it."""
        return _stored_as(self.base)

    @property
    def by_lines(self) -> Judgement:
        """The judgement of the base, where nothing else was measured."""
        return Judgement(self.judgement.verdict, "lines")

    @property
    def relation(self) -> LineageRelation | None:
        """The one word for all that was measured."""
        parents = self.judgement.anatomy.parents
        return headline(self.said, parents[0].verdict if parents else None)

    @property
    def shown(self) -> LineEvidence:
        """All of it as an answer has it."""
        found, parents = self.judgement.comparison, self.judgement.anatomy.parents
        compared = {number for number, each in enumerate(found.ours.tensors) if each.lines}
        of_base = compared & found.sources.keys()
        new = {number for number in compared - of_base if not found.of_tensor[number]}
        return LineEvidence(
            verdict=self.judgement.verdict,
            finding=self.judgement.finding,
            relation=self.relation,
            relations=_shown(self.said),
            share_of_lines=found.share,
            share_of_base=found.share_of_model,
            share_of_parameters=parents[0].share_of_parameters if parents else 0.0,
            keys=int(found.keys.size),
            expected=found.expected,
            log10_p=found.log10_p,
            scale=found.ours.scale,
            tensors=len(compared),
            found=len(of_base),
            tensors_of_base=tensors_in_words(found.ours, of_base) or None,
            new_tensors=tensors_in_words(found.ours, new) or None,
            stated_by=self.base.stated_by,
            sources=self.judgement.sources,
        )


def _shown(relations: Sequence[Said]) -> tuple[LineRelation, ...]:
    return tuple(LineRelation(each.relation, each.models, each.sentence) for each in relations)


def _stored_as(record: FingerprintRecord) -> StoredAs:
    facts = record.facts
    return StoredAs(record.parameters, facts.file_bytes, facts.base_relation)
