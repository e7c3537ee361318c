"""The JSON of jobs that maintain a space, as it is taken."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from app.infra.http.schemas import RequestModel

__all__ = ["JobIn"]


class ParametersIn(RequestModel):
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="of a stop_list: how many of the supports hold each of its indices; .5 if it "
        "is left out",
    )


class JobIn(RequestModel):
    """A job of a space: `rebuild_buckets` builds its LSH buckets again, `stop_list` finds the
    indices that most models hold and leaves them out of the buckets.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "rebuild_buckets"}]})

    kind: Literal["rebuild_buckets", "stop_list"] = Field(description="what it does")
    parameters: ParametersIn = Field(
        default_factory=ParametersIn, description="of a stop_list; another job has none"
    )

    @model_validator(mode="after")
    def _fitting(self) -> JobIn:
        if self.kind != "stop_list" and self.parameters.share is not None:
            raise ValueError("a share is a parameter of stop_list alone")
        return self
