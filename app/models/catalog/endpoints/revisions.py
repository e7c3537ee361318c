"""/v1/spaces/{space}/revisions/{model}: the past contents of a model, and its drift."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from app.infra.errors import ModelNotFound
from app.infra.http.answers import PageLimit, list_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.fields import NextCursor
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName
from app.models.catalog.records import RevisionRecord, SelfOverlap
from app.models.catalog.revisions import RevisionService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin.core.estimators import similarity_from_jaccard, standard_error

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/revisions",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

Estimate = Literal["exact", "signature"]


class RevisionOut(BaseModel):
    revision: int = Field(description="1 for the first content of the model")
    kind: Literal["support", "signature", "subspace"] = Field(
        description="what was sent: a support, only a signature, or a data subspace"
    )
    digest: str | None = Field(description="of the support; null where there was only a signature")
    support_size: int = Field(description="K; of a data subspace, its columns")
    created_at: datetime = Field(description="when it was stored, in UTC")
    kept: bool = Field(description="its support can be read: `GET .../supports/{model}?revision=`")
    self_overlap_previous: float | None = Field(
        description="J with the revision before; null of the first that is known"
    )
    similarity_previous: float | None = Field(description="the same as S")
    estimate_previous: Estimate | None = Field(
        description="`signature` where one of the two had no support"
    )
    standard_error_previous: float | None = Field(description="of S; 0 where it is exact")
    self_overlap_first: float = Field(description="J with revision `first_revision`")
    similarity_first: float = Field(description="the same as S")
    estimate_first: Estimate = Field(description="`signature` where one of the two had no support")
    standard_error_first: float = Field(description="of S; 0 where it is exact")

    @classmethod
    def of(cls, space: SpaceRecord, revision: RevisionRecord) -> RevisionOut:
        return cls(
            revision=revision.revision,
            kind=revision.shown_kind,
            digest=revision.digest,
            support_size=revision.support_size,
            created_at=revision.created_at,
            kept=revision.blob_key is not None,
            **_fields(space, "previous", revision.previous),
            **_fields(space, "first", revision.first),
        )


class RevisionPage(BaseModel):
    model: str = Field(description="the name of the model")
    first_revision: int = Field(
        description="the first that is known: 1, but of models older than their history"
    )
    items: list[RevisionOut] = Field(description="the newest first")
    next_cursor: NextCursor


@routes.get(
    MODEL,
    operation_id="list_revisions",
    summary="List the revisions of a model",
    refuses=(ModelNotFound,),
    response_model=RevisionPage,
)
def list_revisions(
    context: ReadingContext,
    spaces: Service[SpaceService],
    revisions: Service[RevisionService],
    space_name: SpaceName,
    limit: PageLimit,
    name: ModelName,
    cursor: Cursor = None,
) -> Response:
    """The revisions of a model, newest first, each compared with the one before and the first.

    Numbers and digests are kept as long as the model; of supports the newest few and the first.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        listed = revisions.list(session, space, name, limit=limit, cursor=cursor)
        items = (RevisionOut.of(space, revision) for revision in listed.page.items)
        others = {
            "model": listed.model.name,
            "first_revision": listed.first,
            "next_cursor": listed.page.next_cursor,
        }
    return list_answer("items", items, others)


def _fields(space: SpaceRecord, what: str, overlap: SelfOverlap | None) -> dict[str, Any]:
    """The self-overlap as fields of a revision."""
    if overlap is None:
        values: tuple[Any, ...] = (None, None, None, None)
    elif overlap.exact:
        values = (overlap.jaccard, similarity_from_jaccard(overlap.jaccard), "exact", 0.0)
    else:
        error = standard_error(overlap.jaccard, space.signature.num_perm)
        values = (overlap.jaccard, similarity_from_jaccard(overlap.jaccard), "signature", error)
    fields = ("self_overlap", "similarity", "estimate", "standard_error")
    return {f"{field}_{what}": value for field, value in zip(fields, values, strict=True)}
