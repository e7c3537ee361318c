"""The JSON of maps: strict requests, and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.infra.http.fields import ConstantTensors, CreatedAt, InSpace, LeastCovered
from app.infra.http.schemas import RequestModel, ResponseModel
from app.kinship.fields import BlocksThatMeet, ComparedBy
from app.kinship.maps.records import MapRecord
from app.kinship.maps.request import MapRequest
from app.models.spaces.records import SpaceRecord

__all__ = ["MapIn", "MapInfo", "MapOut"]


class MapIn(RequestModel):
    """A map to draw."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"seed": 1}]})

    neighbors: int = Field(
        15, ge=1, le=100, description="nearest neighbours of each model in the graph"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="the same seed gives the same places")
    similarity: ComparedBy = "auto"
    compare: BlocksThatMeet = None

    def to_request(self) -> MapRequest:
        return MapRequest(self.neighbors, self.seed, self.similarity, self.compare)


class MapInfo(ResponseModel):
    """A map, without its places."""

    id: str = Field(description="that of the job which drew it")
    space: InSpace
    version: int = Field(description="of the space that was drawn")
    changed_models: int = Field(description="models that were stored or changed since")
    parameters: dict[str, Any] = Field(description="of the request")
    similarity: Literal["exact", "mixed", "signature"] = Field(
        description="whether similarities were exact, estimated from signatures, or both"
    )
    edges: int = Field(description="of the graph of nearest neighbours that was laid out")
    parts: int = Field(description="of the graph that no edge joins: islands of the map")
    seconds: float = Field(description="that the job took")
    created_at: CreatedAt

    @classmethod
    def of(cls, space: SpaceRecord, drawn: MapRecord, changed_models: int) -> MapInfo:
        fields = {name: getattr(drawn, name) for name in cls.model_fields if hasattr(drawn, name)}
        return cls(space=space.name, changed_models=changed_models, **fields)


class MapOut(MapInfo):
    """The newest map of a space: three lists in the same order."""

    models: list[str] = Field(description="names, in order")
    x: list[float] = Field(description="of each model; a model takes about one unit of area")
    y: list[float] = Field(description="likewise, upwards")
    constant_tensors: ConstantTensors = Field(default_factory=list)
    covered: LeastCovered = None
