"""Fields that recur in the API's JSON, with the meaning of each."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

__all__ = [
    "ConstantTensors",
    "Covered",
    "CreatedAt",
    "Estimate",
    "Expected",
    "InSpace",
    "Jaccard",
    "Kappa",
    "LeastCovered",
    "Log10P",
    "ModelName",
    "NextCursor",
    "Note",
    "SharedIndices",
    "Similarity",
    "StandardError",
    "StatedBy",
    "UpdatedAt",
]

CreatedAt = Annotated[datetime, Field(description="when it was made, in UTC")]
UpdatedAt = Annotated[datetime, Field(description="when it was last changed, in UTC")]
InSpace = Annotated[str, Field(description="the name of its space")]
ModelName = Annotated[str, Field(description="the name of the model")]
NextCursor = Annotated[
    str | None, Field(description="the `cursor` of the next page; null at the last page")
]
StatedBy = Annotated[
    Literal["hub", "client"],
    Field(description="`hub` where the service read the file, `client` where a client said so"),
]
Similarity = Annotated[
    float,
    Field(
        description="S, 0 to 1: of supports, twice the indices in common by the indices of both; "
        "of data subspaces, by their angles"
    ),
]
Jaccard = Annotated[float, Field(description="J, 0 to 1: the indices in common by those of either")]
SharedIndices = Annotated[
    int | None, Field(description="how many indices both have; null where it is an estimate")
]
Estimate = Annotated[
    Literal["exact", "sketch", "signature"],
    Field(description="`exact`, or what the similarity was estimated from"),
]
StandardError = Annotated[float, Field(description="of the similarity; 0 where it is exact")]
Expected = Annotated[
    float | None,
    Field(
        description="S0, the mean S of two supports drawn at random with as many indices in each "
        "tensor; null without a layout, and where a side sent only a signature"
    ),
]
Kappa = Annotated[
    float | None,
    Field(description="(S - S0) / (1 - S0), the similarity beyond chance; null as `expected` is"),
]
Log10P = Annotated[
    float | None,
    Field(
        description="the decimal logarithm of P, the probability of so much or more between "
        "unrelated models: each index of the smaller support lies in the other with the "
        "probability that makes kappa .1, the most that networks trained apart have. It is an "
        "upper bound; null where kappa is"
    ),
]
ConstantTensors = Annotated[
    list[str],
    Field(description="the tensors that no training changed, which S and chance leave out"),
]
Covered = Annotated[
    float | None,
    Field(
        description="the share of the parameters that both have, over which all figures are; null "
        "where that is all, and where an estimate cannot know it"
    ),
]
LeastCovered = Annotated[
    float | None,
    Field(
        description="the least share of the parameters over which two models were compared; null "
        "where that is all"
    ),
]
Note = Annotated[
    str | None,
    Field(description="a caveat, such as an importance that the space does not state; else null"),
]
