"""The JSON of anatomies, relatives and pairs of tensors, with the meaning of each field."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.anatomy.records import ModelAnatomy, Relative, Relatives, TensorPairs, edge_to
from app.fingerprints.records import FingerprintRecord
from app.infra.http.fields import ModelName
from app.infra.http.schemas import ResponseModel
from modelkin.core.fingerprints.anatomy import Anatomy, AnatomyVerdict, Parent
from modelkin.core.fingerprints.relations.edges import EdgeReason
from modelkin.core.fingerprints.relations.relation import ORIGIN, RelationName
from modelkin.core.fingerprints.sources import TensorAnatomy, TensorSource, Verdict

__all__ = ["AnatomyOut", "RelativesOut", "TensorAnatomyOut", "TensorPairsOut"]

Share = Annotated[float, Field(description="of the sampled lines, those that are found there")]
LinesLog10P = Annotated[
    float,
    Field(
        description="the decimal logarithm of P, the probability of so many by chance: most are "
        "below the least double"
    ),
]
Truncated = Annotated[
    bool,
    Field(
        description="others may be kin as well: a popular base has more than are listed, or the "
        "time was over. The relatives of those that are named lead to them"
    ),
]
Degraded = Annotated[
    bool,
    Field(
        description="the index that machines share was away, wholly or in part: what is named is "
        "right, and some kin may be missing until it is back"
    ),
]
Compared = Annotated[int, Field(description="how many stored models were asked")]
Common = Annotated[
    int,
    Field(
        description="keys that three or more models have which share nothing else, such as the "
        "same random seed: they make nobody kin"
    ),
]
Sentences = Annotated[
    list[str],
    Field(description="what was seen, for people, and what equal lines mean where there are any"),
]


class TensorSourceOut(ResponseModel):
    names: list[str] = Field(description="the tensor there; equal ones are one, with all names")
    shape: list[int] = Field(description="its dimensions")
    model: str = Field(description="the name of the model that has it")
    share: Share
    keys: int = Field(description="how many these are, at the coarser of both scales")
    expected: float = Field(description="how many strangers would have, at most")
    log10_p: LinesLog10P
    kappa: float | None = Field(
        description="of the two tensors as a whole; null where their shapes differ"
    )

    @classmethod
    def of(cls, source: TensorSource) -> TensorSourceOut:
        return cls(
            names=list(source.tensor.names),
            shape=list(source.tensor.shape),
            model=source.model,
            share=source.share,
            keys=source.keys,
            expected=source.expected,
            log10_p=source.log10_p,
            kappa=source.kappa,
        )


class TensorAnatomyOut(ResponseModel):
    names: list[str] = Field(description="the tensor; equal ones are one, with all their names")
    shape: list[int] = Field(description="its dimensions")
    not_comparable: Literal["short", "structured", "few_values", "no_keys"] | None = Field(
        description="why it has no lines to compare: it is a vector or a side is below 64, a table "
        "that no training made, of few values as ternary weights, or of constant lines"
    )
    keys: int = Field(description="its sampled lines")
    shares: dict[str, float] = Field(
        description="of these, those that each model has in all its tensors"
    )
    sources: list[TensorSourceOut] = Field(
        description="the tensors that have its lines, the largest share first; none where it is "
        "unknown: with `not_comparable` null, nothing beyond chance was found"
    )

    @classmethod
    def of(cls, tensor: TensorAnatomy) -> TensorAnatomyOut:
        reason = tensor.tensor.reason
        return cls(
            names=list(tensor.tensor.names),
            shape=list(tensor.tensor.shape),
            not_comparable=None if reason is None else reason.value,
            keys=tensor.keys,
            shares=dict(tensor.shares),
            sources=[TensorSourceOut.of(each) for each in tensor.sources],
        )


class RelationOut(ResponseModel):
    relation: RelationName = Field(description="one word for it")
    models: list[str] = Field(description="the one with the greater share first")
    sentence: str = Field(description="the same for people, without a full stop")


class KnownModelOut(ResponseModel):
    model: ModelName
    revision: int = Field(description="of its fingerprint")
    stated_by: Literal["hub", "client"] = Field(
        description="`hub` where the service read the file itself; a client may state anything"
    )
    base_models: list[str] = Field(description="what it declares itself, unchecked")
    license: str | None = Field(description="as declared")
    published_at: datetime | None = Field(description="as declared")
    edge: EdgeReason | None = Field(
        description="why it is drawn as a base of the model: `declared`, a `copy` or `part`, or "
        "5% of `lines` and the older date; null where lines alone say no direction"
    )


class ParentOut(KnownModelOut):
    verdict: Verdict = Field(
        description="`copy`; `part` of it; `derived`, it shares weights; `reuses`, in few tensors; "
        "`related`, in no tensor enough"
    )
    share_of_lines: Share
    share_of_model: float = Field(description="of the other model's lines")
    share_of_parameters: float = Field(description="by the share of each tensor")
    added: float = Field(description="of the lines, those that no parent before has")
    keys: int = Field(description="sampled lines in common")
    expected: float = Field(description="how many strangers would have, at most")
    log10_p: LinesLog10P
    log10_e: float = Field(
        description="the same of e, how many strangers would have so many, of all that were asked"
    )
    tensors: list[str] = Field(description="the tensors that hold most of what is found")


class AnatomyOut(ResponseModel):
    model: str | None = Field(description="null of a fingerprint that is not stored")
    revision: int | None = Field(description="of its fingerprint; null where that is not stored")
    scale: int = Field(description="the coarsest that was compared: one line in so many")
    verdict: AnatomyVerdict = Field(description="what it is as a whole, in one word")
    sentences: Sentences
    parents: list[ParentOut] = Field(
        description="models with lines in common, the one that adds most first; those that the "
        "service read itself before those that clients stated, but for origins of few tensors"
    )
    relations: list[RelationOut] = Field(
        description="what it is to its parents, as far as that was measured"
    )
    tensors: list[TensorAnatomyOut] = Field(description="all tensors, in their order")
    compared: Compared
    common: Common
    truncated: Truncated
    degraded: Degraded

    @classmethod
    def facts(cls, found: ModelAnatomy) -> AnatomyOut:
        """The answer without its tensors, which may be many."""
        return cls(
            model=None if found.record is None else found.record.name,
            revision=None if found.record is None else found.record.revision,
            scale=found.anatomy.scale,
            verdict=found.anatomy.verdict,
            sentences=list(found.anatomy.sentences),
            parents=[
                _parent(
                    found.record,
                    found.records[each.model],
                    each,
                    found.comparisons[each.model].share_of_model,
                )
                for each in found.anatomy.parents
            ],
            relations=_relations(found.anatomy),
            tensors=[],
            compared=found.compared,
            common=found.common,
            truncated=found.truncated,
            degraded=found.degraded,
        )


class RelativeOut(KnownModelOut):
    verdict: Verdict | None = Field(
        description="as of a parent; null where P is not below 1e-13, and e is 1e-3 at most: it is "
        "shown, and nothing is said of it"
    )
    share_of_lines: Share
    share_of_model: float = Field(description="of the other model's lines")
    share_of_parameters: float | None = Field(description="by the share of each tensor")
    keys: int = Field(description="sampled lines in common")
    expected: float = Field(description="how many strangers would have, at most")
    log10_p: LinesLog10P
    log10_e: float = Field(
        description="the same of e, how many strangers would have so many, of all that were asked"
    )
    relations: list[RelationOut] = Field(description="what the model is to this one")

    @classmethod
    def of(cls, found: Relative) -> RelativeOut:
        parent, comparison = found.parent, found.comparison
        return cls(
            **_known(found.record),
            edge=found.edge,
            verdict=None if parent is None else parent.verdict,
            share_of_lines=comparison.share,
            share_of_model=comparison.share_of_model,
            share_of_parameters=None if parent is None else parent.share_of_parameters,
            keys=comparison.keys.size,
            expected=comparison.expected,
            log10_p=comparison.log10_p,
            log10_e=found.log10_e,
            relations=[RelationOut.model_validate(each) for each in found.relations],
        )


class RelativesOut(ResponseModel):
    model: str | None = Field(description="null of a fingerprint that is not stored")
    items: list[RelativeOut] = Field(description="the least P first")
    note: str | None = Field(description="what equal lines mean, where there are any")
    compared: Compared
    common: Common
    truncated: Truncated
    degraded: Degraded

    @classmethod
    def of(cls, found: Relatives) -> RelativesOut:
        return cls(
            model=None if found.record is None else found.record.name,
            items=[RelativeOut.of(each) for each in found.items],
            note=ORIGIN if any(each.parent for each in found.items) else None,
            compared=found.compared,
            common=found.common,
            truncated=found.truncated,
            degraded=found.degraded,
        )


class TensorPairsOut(ResponseModel):
    model: ModelName
    other: str = Field(description="the name of the model that it is compared with")
    scale: int = Field(description="at which both were compared: one line in so many")
    verdict: AnatomyVerdict = Field(description="what the model is to the other one")
    parents: list[ParentOut] = Field(description="the other one, where chance is excluded")
    relations: list[RelationOut] = Field(description="what the model is to the other one")
    share_of_lines: Share
    share_of_other: float = Field(description="of the other model's lines")
    keys: int = Field(description="sampled lines in common")
    expected: float = Field(description="how many strangers would have, at most")
    log10_p: LinesLog10P
    sentences: Sentences
    items: list[TensorAnatomyOut] = Field(
        description="all tensors of the model in their order, with those of the other one"
    )

    @classmethod
    def facts(cls, found: TensorPairs) -> TensorPairsOut:
        """The answer without its items, which may be many."""
        parents, comparison = found.anatomy.parents, found.comparison
        return cls(
            model=found.record.name,
            other=found.other.name,
            scale=found.anatomy.scale,
            verdict=found.anatomy.verdict,
            parents=[
                _parent(found.record, found.other, each, comparison.share_of_model)
                for each in parents
            ],
            relations=_relations(found.anatomy),
            share_of_lines=comparison.share,
            share_of_other=comparison.share_of_model,
            keys=comparison.keys.size,
            expected=comparison.expected,
            log10_p=comparison.log10_p,
            sentences=list(found.anatomy.sentences),
            items=[],
        )


def tensors_out(found: Anatomy) -> Iterator[TensorAnatomyOut]:
    """All tensors of an anatomy."""
    return map(TensorAnatomyOut.of, found.tensors)


def _parent(
    own: FingerprintRecord | None, record: FingerprintRecord, parent: Parent, share_of_model: float
) -> ParentOut:
    return ParentOut(
        **_known(record),
        edge=edge_to(own, record, parent.verdict, parent.share_of_lines),
        verdict=parent.verdict,
        share_of_lines=parent.share_of_lines,
        share_of_model=share_of_model,
        share_of_parameters=parent.share_of_parameters,
        added=parent.added,
        keys=parent.keys,
        expected=parent.expected,
        log10_p=parent.log10_p,
        log10_e=parent.log10_e,
        tensors=list(parent.tensors),
    )


def _known(record: FingerprintRecord) -> dict[str, object]:
    return {
        "model": record.name,
        "revision": record.revision,
        "stated_by": record.stated_by,
        "base_models": list(record.facts.base_models),
        "license": record.facts.license,
        "published_at": record.facts.published_at,
    }


def _relations(found: Anatomy) -> list[RelationOut]:
    return [RelationOut.model_validate(each) for each in found.relations]
