"""The JSON of donors and lineages, with the meaning of each field."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from app.infra.http.fields import (
    ConstantTensors,
    Covered,
    Estimate,
    Expected,
    Kappa,
    Log10P,
    ModelName,
    Note,
    SharedIndices,
    Similarity,
    StandardError,
)
from app.infra.http.schemas import ResponseModel
from app.kinship.lines.schemas import LikelyBaseOut, LineEvidenceOut
from modelkin.core.kinship.line_relations import LineageRelation
from modelkin.core.kinship.lineage import BaseRelation, Reason
from modelkin.types.kinship import Donors
from modelkin.types.lineages import FingerprintLineage, Lineage
from modelkin.types.tensors import SpaceTensors

__all__ = [
    "DonorsOut",
    "FingerprintLineageOut",
    "LineageFindingOut",
    "LineageOut",
    "SpaceTensorsOut",
    "TensorSummaryOut",
    "Verdict",
]

VerdictLog10P = Annotated[
    float | None,
    Field(
        description="the decimal logarithm of the P of the verdict: of as large an S to the "
        "declared base, or without one to the likely base, between unrelated models, whose indices "
        "lie in each other with the probability that makes kappa .1; where S is not measured, of "
        "as many lines in common by chance; null as `no_p` says"
    ),
]
NoP = Annotated[
    str | None, Field(description="why the verdict has no P, in words; null where it has one")
]
Verdict = Literal["consistent", "mismatch", "inconclusive", "unknown_base", "undeclared", "cycle"]
_RELATION: Final = Field(
    description="what lines show that the model is to its bases, in one word; null where nothing "
    "was measured"
)
_LINES_AGREE: Final = Field(
    description="whether lines come to the same verdict as S; null where one leaves it open"
)


class UsualOut(ResponseModel):
    similarity: float = Field(
        description="the mean of S over the other models of the space; in a lineage the median, "
        "over those that are not declared relatives, and over the lower of two populations"
    )
    deviation: float = Field(description="the standard deviation of S over models")
    models: int = Field(description="how many models these are")


class DonorReasonOut(ResponseModel):
    sentence: str = Field(description="for people")
    shared_indices: SharedIndices
    z_score: float | None = Field(
        description="standard deviations that S is above the mean of the space"
    )
    rarity: float | None = Field(
        description="idf: the share of the target that it holds, by how rare each index is"
    )
    rarity_gain: float | None = Field(
        description="idf: how rare what they share is, against the target's average index"
    )
    explained: float | None = Field(
        description="cover: the share of the target that it holds, and no donor before it"
    )
    cumulative: float | None = Field(
        description="cover: the share that it and the donors before it hold"
    )
    shapley: float | None = Field(description="knn_shapley: its Shapley value")
    worth: float | None = Field(
        description="knn_shapley: 1 where its label is the target's, else 0; or its metric"
    )
    label: str | None = Field(description="knn_shapley: its label")


class DonorOut(ResponseModel):
    model: ModelName
    similarity: Similarity
    weight: float = Field(
        description="its share of the mixture; all sum to 1, or to 0 if every donor is unrelated"
    )
    estimate: Estimate
    standard_error: StandardError
    expected: Expected
    kappa: Kappa
    unrelated: bool = Field(
        description="as near as chance makes two models: kappa is below .1, or not surely above "
        "(P times the models of the space is .05 or more); where it is unknown, what it would be "
        "if the space were one tensor. It weighs nothing unless include_unrelated"
    )
    covered: Covered
    log10_p: Log10P
    why: DonorReasonOut = Field(description="the reason, in words and figures")


class DonorsOut(ResponseModel):
    target: str | None = Field(
        description="the model that was asked for; null of a support that was sent"
    )
    method: str = Field(description="how donors were ranked")
    weights: str = Field(description="how their shares of the mixture were made")
    items: list[DonorOut] = Field(description="the best first")
    usual: UsualOut = Field(description="what z-scores are taken against")
    candidates: int = Field(description="models that were considered")
    left_out: int = Field(
        description="models near enough that could not be: without a support (idf, cover), or "
        "without the label or metric (knn_shapley)"
    )
    degraded: bool = Field(
        description="a stored support could not be read, or buckets could not be used"
    )
    truncated: bool = Field(
        description="the time for the answer was over before all candidates were compared: others "
        "may be better donors"
    )
    note: Note
    constant_tensors: ConstantTensors
    no_p: str | None = Field(description="why a donor has no P, in words; null where all have one")

    @classmethod
    def of(cls, found: Donors) -> DonorsOut:
        return cls.model_validate(found)


class KinOut(ResponseModel):
    model: ModelName
    similarity: Similarity
    estimate: Estimate
    standard_error: StandardError
    expected: Expected
    kappa: Kappa
    z_score: float | None = Field(description="deviations above what is usual")
    stands_out: bool | None = Field(
        description="beyond what unrelated models have; null where its error allows either"
    )
    base_model: str | None = Field(description="what it declares itself; null of several")
    base_models: list[str] = Field(description="all that it declares itself")
    relation: Literal["base", "ancestor", "derivative", "sibling"] | None = Field(
        description="what the declared bases make of it"
    )
    to_base: float | None = Field(description="its S to the declared base, if that was compared")
    covered: Covered
    log10_p: Log10P


class LinkOut(ResponseModel):
    model: ModelName
    base_model: str = Field(description="the base that it declares")
    similarity: float | None = Field(description="null where the base is not in this space")
    estimate: Estimate | None = Field(
        description="as of kin; null where the base is not in this space"
    )
    standard_error: float | None = Field(
        description="of the similarity; null where the base is not in this space"
    )
    expected: Expected
    kappa: Kappa
    covered: Covered
    share_of_lines: float | None = Field(
        description="of the model's lines, those of the base, where S is not known and both have "
        "fingerprints"
    )
    log10_p: float | None = Field(description="the logarithm of the probability of so many")


class DeclaredBaseOut(ResponseModel):
    base_model: str = Field(description="the name of the base")
    verdict: Verdict = Field(
        description="`unknown_base` where it is not in this space, and one of the two has no "
        "fingerprint"
    )
    reason: Reason | None = Field(description="what decided; null where it was not measured")
    similarity: float | None = Field(description="S of the two; null where it was not measured")
    kappa: Kappa
    revision: int | None = Field(
        description="the revision that was compared, where that is an earlier one than the present"
    )
    covered: Covered
    log10_p: VerdictLog10P
    no_p: NoP
    lines: LineEvidenceOut | None = Field(
        description="what lines in common say; null where one of the two has no fingerprint"
    )


class LineageOut(ResponseModel):
    model: ModelName
    verdict: Verdict = Field(description="on the declared base, or why there is none")
    reason: Reason | None = Field(
        description="what decided on the declared base; null where it was not measured"
    )
    summary: str = Field(description="why, for people")
    declared_base: str | None = Field(
        description="of several the one that decides: the first that is contradicted, else not in "
        "this space, else left open"
    )
    declared_bases: list[DeclaredBaseOut] = Field(
        description="all declared bases, each judged by itself"
    )
    base_relation: BaseRelation | None = Field(
        description="what the model is said to be of its bases"
    )
    likely_base: str | None = Field(
        description="the nearest model that stands out, apart from declared derivatives and "
        "siblings; or a base that it declares which is as near within .05, and no farther than an "
        "equal model. S has no direction, so it may as well be made from this model"
    )
    base: KinOut | None = Field(description="the declared base, measured")
    base_revision: int | None = Field(
        description="the revision of the base that was compared, where that is an earlier one than "
        "the present"
    )
    rival: KinOut | None = Field(
        description="the model that contradicts the declared base, or leaves it in doubt"
    )
    kin: list[KinOut] = Field(description="the nearest models")
    usual: UsualOut = Field(description="the similarities of the other models")
    limit: float = Field(
        description="the S from which on a model stands out, 1 at most; in a space of weights "
        "kappa decides first: one at .3 or more stands out, one below .1 does not, and one between "
        "has to stand out in the eyes of both models"
    )
    chain: list[LinkOut] = Field(
        description="the declared bases, one after another; of several the first"
    )
    cycle: bool = Field(description="the chain comes back to where it has been")
    note: Note
    constant_tensors: ConstantTensors
    log10_p: VerdictLog10P
    no_p: NoP
    relation: LineageRelation | None = _RELATION
    lines: LineEvidenceOut | None = Field(
        description="what lines in common say of `declared_base`, whatever its layout; null where "
        "one of the two has no fingerprint"
    )
    lines_agree: bool | None = _LINES_AGREE
    likely_by_lines: LikelyBaseOut | None = Field(
        description="the evidence of a `likely_base` that was found by lines"
    )

    @classmethod
    def of(cls, found: Lineage) -> LineageOut:
        return cls.model_validate(found)


class FingerprintLineageOut(ResponseModel):
    model: ModelName
    verdict: Verdict = Field(description="`unknown_base` where it has no fingerprint")
    reason: Reason | None = Field(description="`lines`; null where nothing was compared")
    summary: str = Field(description="why, for people")
    declared_base: str | None = Field(description="of several the one that decides")
    declared_bases: list[DeclaredBaseOut] = Field(
        description="all declared bases, each judged by itself; without S, which needs a space"
    )
    base_relation: str | None = Field(description="what the model is said to be of its bases")
    relation: LineageRelation | None = _RELATION
    lines: LineEvidenceOut | None = Field(description="the evidence of `declared_base`")
    likely_base: str | None = Field(
        description="a model whose lines it has, unless a declared base is confirmed"
    )
    likely_by_lines: LikelyBaseOut | None = Field(description="the evidence of `likely_base`")
    log10_p: float | None = Field(
        description="the decimal logarithm of the P of the verdict: of as many lines in common "
        "with the declared base, or without its fingerprint with the likely base, by chance; null "
        "as `no_p` says"
    )
    no_p: NoP
    chain: list[LinkOut] = Field(
        description="the declared bases, one after another; of several the first"
    )
    cycle: bool = Field(description="the chain comes back to where it has been")
    compared: int = Field(
        description="models that were asked for a likely base or another source; 0 where that was "
        "not needed"
    )
    truncated: bool = Field(description="more of them may be kin than were looked at")

    @classmethod
    def of(cls, found: FingerprintLineage) -> FingerprintLineageOut:
        return cls.model_validate(found)


class LineageFindingOut(ResponseModel):
    model: ModelName
    verdict: Verdict = Field(description="on the declared base, or why there is none")
    reason: Reason | None = Field(description="as in the lineage of the model")
    declared_base: str | None = Field(description="of several the one that decides")
    declared_bases: list[str] = Field(description="the names of all declared bases")
    likely_base: str | None = Field(
        description="the nearest model that stands out, unless the declared base is confirmed"
    )
    similarity: float | None = Field(
        description="S to the declared base; of an undeclared model to the likely one"
    )
    kappa: Kappa
    base_similarity: float | None = Field(
        description="S to the declared base; null where it was not measured"
    )
    covered: Covered
    nearest: str | None = Field(description="the nearest model of the space, whatever it is")
    nearest_similarity: float | None = Field(description="S to the nearest model")
    log10_p: VerdictLog10P
    no_p: NoP
    relation: LineageRelation | None = _RELATION
    lines_agree: bool | None = _LINES_AGREE
    share_of_lines: float | None = Field(
        description="of the model's lines, those of the declared base, else of the likely one; "
        "null without fingerprints"
    )
    summary: str = Field(description="why, for people")


class TensorSummaryOut(ResponseModel):
    name: str = Field(description="as in the layout")
    size: int = Field(description="n_t, its parameters")
    share: float | None = Field(
        description="of the indices of all supports; null before a support is counted"
    )
    similarity: float | None = Field(
        description="the mean S within it over the sampled pairs; null where none has an index in "
        "it"
    )
    kappa: float | None = Field(
        description="the mean kappa within it; null where chance alone gives every pair S = 1"
    )
    strangers: int = Field(
        description="sampled pairs whose kappa is below .1 elsewhere: without this tensor, and "
        "without others in which they agree if these are less than half of the parameters"
    )
    looks_constant: bool = Field(
        description="no training has changed it, as strangers show that hold the same indices "
        "within it: comparisons leave it out"
    )


class SpaceTensorsOut(ResponseModel):
    items: list[TensorSummaryOut] = Field(description="in the order of the layout")
    supports: int = Field(description="supports whose indices were counted; of many a sample")
    pairs: int = Field(description="sampled pairs of supports that were compared")
    version: int = Field(description="of the space")

    @classmethod
    def of(cls, found: SpaceTensors) -> SpaceTensorsOut:
        return cls.model_validate(found)
