"""The JSON of lines in common as evidence, with the meaning of each field."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.infra.http.fields import ModelName, StatedBy
from app.infra.http.schemas import ResponseModel
from modelkin.core.fingerprints.relations.edges import EdgeReason
from modelkin.core.fingerprints.sources import Verdict as LineVerdict
from modelkin.core.kinship.line_relations import LineageRelation
from modelkin.core.kinship.lines import Finding as LineFinding

__all__ = ["LikelyBaseOut", "LineEvidenceOut"]


class LineRelationOut(ResponseModel):
    relation: LineageRelation = Field(description="one word for it")
    models: list[str] = Field(description="the models that it is about")
    sentence: str = Field(description="for people, in English, without a full stop")


class LineEvidenceOut(ResponseModel):
    verdict: Literal["consistent", "mismatch", "inconclusive"] = Field(
        description="of the declared base, by lines alone"
    )
    finding: LineFinding = Field(
        description="`shares` weights with the base; lines in `few_tensors` alone; `related`, with "
        "no tensor that has enough; `nothing`, which proves nothing; too `few_lines` to tell; or "
        "an `other_source` has most of its lines"
    )
    relation: LineageRelation | None = Field(
        description="what the model is to this base; `changed` where nothing tells a training from "
        "rounding; null where nothing was measured"
    )
    relations: list[LineRelationOut] = Field(description="all that was measured")
    share_of_lines: float = Field(description="of the model's sampled lines, those of the base")
    share_of_base: float = Field(description="of the base's, those that the model has")
    share_of_parameters: float = Field(
        description="of the parameters that are compared, by the share of each tensor"
    )
    keys: int = Field(description="sampled lines in common")
    expected: float = Field(description="how many strangers would have, at most")
    log10_p: float = Field(description="the logarithm of the probability of so many by chance")
    scale: int = Field(description="one line in so many was compared")
    tensors: int = Field(description="tensors that were compared; those of equal values are one")
    found: int = Field(description="tensors with lines of the base")
    tensors_of_base: str | None = Field(description="which these are, in words")
    new_tensors: str | None = Field(
        description="which have no line of the base, in words; long training leaves none either"
    )
    stated_by: Literal["hub", "client"] = Field(
        description="`hub`: the service read the base's file"
    )
    sources: list[str] = Field(description="the models that contradict the base")


class LikelyBaseOut(ResponseModel):
    model: ModelName
    verdict: LineVerdict = Field(description="what the model in question is to it")
    share_of_lines: float = Field(
        description="of the lines of the model in question, those that it has"
    )
    log10_p: float = Field(
        description="the decimal logarithm of the probability of so many by chance"
    )
    edge: EdgeReason | None = Field(
        description="why it is drawn as a base: a `copy`, a `part`, or `lines` where it is the "
        "older; null where nothing says which of the two came first"
    )
    stated_by: StatedBy
