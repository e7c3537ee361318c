"""The JSON of learngenes: strict manifests to publish, and answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field

from app.infra.http.fields import CreatedAt, InSpace, NextCursor
from app.infra.http.requests.preconditions import entity_tag
from app.infra.http.schemas import RequestModel, ResponseModel, Text
from app.models.learngenes.records import Content, Details, LearngeneRecord, shown_cluster
from app.models.learngenes.validation import stated_content
from app.models.spaces.records import SpaceRecord
from modelkin.core.learngenes.manifest import LearngeneTensor

__all__ = [
    "LearngeneIn",
    "LearngeneOut",
    "LearngenePage",
    "LearngeneSummary",
    "MAX_COUNT",
    "Metrics",
]

MAX_COUNT = 2**31 - 1
_MAX_METRICS = 100
_MAX_METRIC_NAME = 100
_COMMIT = "0123456789abcdef0123456789abcdef01234567"

Cluster: TypeAlias = int | Literal["all"]
Dimension = Annotated[int, Field(ge=0, le=2**63 - 1)]


def _short_names(metrics: dict[str, float]) -> dict[str, float]:
    for name in metrics:
        if not 1 <= len(name) <= _MAX_METRIC_NAME or "\0" in name:
            raise ValueError(f"the name of a metric has 1 to {_MAX_METRIC_NAME} characters")
    return metrics


Metrics = Annotated[
    dict[str, Annotated[float, Field(strict=True, allow_inf_nan=False)]],
    Field(max_length=_MAX_METRICS),
    AfterValidator(_short_names),
]


class TensorIn(RequestModel):
    """A tensor of the file."""

    name: str = Field(min_length=1, max_length=1000, description="unique in the file")
    dtype: str = Field(max_length=20, description="in the words of safetensors: F32, BF16, ...")
    shape: list[Dimension] = Field(max_length=32, description="its dimensions; empty of a scalar")


class LearngeneIn(RequestModel):
    """The manifest of a file that its publisher keeps in a hub."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "digest": "sha256:" + 64 * "0",
                    "bytes": 1232,
                    "tensors": [{"name": "conv1.weight", "dtype": "F32", "shape": [8, 1, 3, 3]}],
                    "reference": {
                        "kind": "huggingface",
                        "repo": "org/start",
                        "revision": _COMMIT,
                        "file": "gene.safetensors",
                    },
                    "members": 5,
                    "rounds": 20,
                    "metrics": {"accuracy": 0.91},
                }
            ]
        }
    )

    digest: str = Field(max_length=100, description="`sha256:` of the file, in hexadecimal")
    bytes: int = Field(ge=1, le=2**63 - 1, description="of the file")
    tensors: list[TensorIn] = Field(description="of the file, in the order of their bytes")
    reference: dict[str, Any] = Field(
        description="where the file is: `{kind: huggingface, url, repo, revision, file}` with all "
        "40 digits of a commit, `{kind: mlflow, url, model, version, path}`, or "
        "`{kind: https, url}`. The service never fetches it"
    )
    clustering: str | None = Field(
        None, max_length=100, description="that the cluster is of; by default the newest one"
    )
    members: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="how many models it was averaged over"
    )
    rounds: int | None = Field(None, ge=0, le=MAX_COUNT, description="of training together")
    metrics: Metrics = Field(default_factory=dict, description="numbers by name")
    note: Text | None = Field(None, description="for people who start from it")

    def content(self) -> Content:
        """The content that it states, checked."""
        tensors = (LearngeneTensor(t.name, t.dtype, tuple(t.shape)) for t in self.tensors)
        return stated_content(self.digest, self.bytes, tensors, self.reference)

    def details(self) -> Details:
        """The details of the manifest beside its content."""
        return Details(self.clustering, self.members, self.rounds, self.metrics, self.note)


class TensorOut(ResponseModel):
    name: str = Field(description="unique in the file")
    dtype: str = Field(description="in the words of safetensors: F32, BF16, ...")
    shape: list[int] = Field(description="its dimensions; empty of a scalar")


class LearngeneSummary(ResponseModel):
    """A version of a cluster's learngene, without its tensors."""

    space: InSpace
    cluster: Cluster = Field(description="the lasting id, or `all` for the whole space")
    version: int = Field(description="1 for the first of its cluster; never used twice")
    clustering: str | None = Field(description="that the cluster was found in; null for `all`")
    digest: str = Field(description="`sha256:` of the file, in hexadecimal")
    bytes: int = Field(description="of the file")
    num_tensors: int = Field(description="tensors of the file")
    kept: bool = Field(description="whether the service keeps the file: `GET .../file`")
    reference: dict[str, Any] | None = Field(description="where the file is in its owner's hub")
    members: int | None = Field(description="how many models it was averaged over, as was said")
    rounds: int | None = Field(
        description="of training together, as was said; null where it was not"
    )
    metrics: dict[str, float] = Field(description="numbers by name, as was said")
    note: str | None = Field(description="for people who start from it; null without one")
    published_by: str | None = Field(description="the first characters of the key")
    stale: bool = Field(description="the newest clustering has no such cluster any more")
    created_at: CreatedAt

    @classmethod
    def summary(
        cls, space: SpaceRecord, learngene: LearngeneRecord, *, stale: bool
    ) -> LearngeneSummary:
        """The learngene as listings and assignments show it."""
        return cls(**_summary(space, learngene, stale))


class LearngeneOut(LearngeneSummary):
    """A version of a cluster's learngene: its manifest."""

    tensors: list[TensorOut] = Field(description="of the file, in the order of their bytes")
    etag: str = Field(description="of this version, for `If-Match`")

    @classmethod
    def of(
        cls,
        space: SpaceRecord,
        learngene: LearngeneRecord,
        tensors: Iterable[LearngeneTensor],
        *,
        stale: bool,
    ) -> LearngeneOut:
        """The learngene as clients see it."""
        return cls(
            **_summary(space, learngene, stale),
            tensors=[TensorOut(name=t.name, dtype=t.dtype, shape=list(t.shape)) for t in tensors],
            etag=entity_tag(learngene.version_tag),
        )


class LearngenePage(ResponseModel):
    """A page of learngenes."""

    items: list[LearngeneSummary] = Field(description="the newest first")
    next_cursor: NextCursor


def _summary(space: SpaceRecord, learngene: LearngeneRecord, stale: bool) -> dict[str, Any]:
    return {
        "space": space.name,
        "cluster": shown_cluster(learngene.cluster),
        "version": learngene.version,
        "clustering": learngene.clustering,
        "digest": learngene.digest,
        "bytes": learngene.size,
        "num_tensors": learngene.num_tensors,
        "kept": learngene.kept,
        "reference": None if learngene.reference is None else dict(learngene.reference),
        "members": learngene.members,
        "rounds": learngene.rounds,
        "metrics": dict(learngene.metrics),
        "note": learngene.note,
        "published_by": learngene.published_by,
        "stale": stale,
        "created_at": learngene.created_at,
    }
