"""/v1/spaces/{space}/neighbors: the models that overlap most with a model, support or signature."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Response
from starlette.datastructures import QueryParams

from app.infra.errors import ModelNotFound
from app.infra.http.dependencies import K
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.infra.http.turns import asks_for_many, heavy_if
from app.models.catalog.dependencies import Stated, TagFilter
from app.models.catalog.endpoints.payloads import ANY_BODY, AnyPayload
from app.models.catalog.reader import ModelReader
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.models.subspaces.dependencies import CompareBy
from app.search.degradation import DegradedAnswers
from app.search.schemas import NeighborMeasure, NeighborsOut
from app.search.service import SearchService
from app.search.standing import with_standing
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin._validation import check_model_name
from modelkin.types.search import Neighbors

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/neighbors",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

Method = Annotated[
    Literal["auto", "exact", "scan", "lsh"],
    Query(
        description="exact compares every model; scan proposes candidates by their signatures, "
        "lsh by the buckets they share; auto takes the fastest that misses hardly any"
    ),
]
MinSimilarity = Annotated[
    float, Query(ge=0, le=1, allow_inf_nan=False, description="the least S of a neighbour")
]
MinKappa = Annotated[
    float | None,
    Query(
        ge=-1,
        le=1,
        allow_inf_nan=False,
        description="of the k nearest only those of this kappa or more; it needs a layout",
    ),
]
MeasureBy = Annotated[
    NeighborMeasure,
    Query(
        description="ordered ranks by the cosine of the indices, weighted by the octaves of their "
        "ranks, in an ordered space; all methods but exact rank the models of most shared indices"
    ),
]
StoredModelName = Annotated[str, Query(description="the stored model")]


def _is_heavy(query: QueryParams) -> bool:
    return query.get("method") == "exact" or asks_for_many(query)


@routes.get(
    "",
    operation_id="get_neighbors",
    summary="Find the nearest models of a stored model",
    refuses=(ModelNotFound,),
    response_model=NeighborsOut,
    turn=heavy_if(_is_heavy),
)
def of_stored(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    degraded: Service[DegradedAnswers],
    space_name: SpaceName,
    tags: TagFilter,
    model: StoredModelName,
    k: K = 10,
    min_similarity: MinSimilarity = 0.0,
    min_kappa: MinKappa = None,
    method: Method = "auto",
    compare: CompareBy = None,
    measure: MeasureBy = "similarity",
) -> Response:
    """The neighbours of a stored model, best first, ties by name, the model itself left out."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        subject = reader.stored_subject(session, space, check_model_name(model))
        found = search.neighbors(
            session,
            space,
            subject,
            k=k,
            min_similarity=min_similarity,
            method=method,
            tags=tags,
            min_kappa=min_kappa,
            compare=compare,
            measure=measure,
            deadline=context.deadline,
        )
        found = with_standing(session, space, subject, found)
    return _answer(found, degraded)


@routes.post(
    "",
    operation_id="find_neighbors",
    summary="Find the nearest models of a newcomer",
    response_model=NeighborsOut,
    openapi_extra=ANY_BODY,
    turn=heavy_if(_is_heavy),
)
def of_given(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    degraded: Service[DegradedAnswers],
    space_name: SpaceName,
    payload: AnyPayload,
    origin: Stated,
    tags: TagFilter,
    k: K = 10,
    min_similarity: MinSimilarity = 0.0,
    min_kappa: MinKappa = None,
    method: Method = "auto",
    compare: CompareBy = None,
    measure: MeasureBy = "similarity",
) -> Response:
    """The neighbours of the support, signature or subspace in the body, which is not stored."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        subject = reader.given_subject(session, space, payload.of_kind(space), origin)
        found = search.neighbors(
            session,
            space,
            subject,
            k=k,
            min_similarity=min_similarity,
            method=method,
            tags=tags,
            min_kappa=min_kappa,
            compare=compare,
            measure=measure,
            deadline=context.deadline,
        )
        found = with_standing(session, space, subject, found)
    return _answer(found, degraded)


def _answer(found: Neighbors, degraded: DegradedAnswers) -> Response:
    """Render the answer here, in the thread of the request; FastAPI would validate it again."""
    if found.degraded:
        degraded.note("neighbors")
    return Response(NeighborsOut.of(found).model_dump_json(), media_type="application/json")
