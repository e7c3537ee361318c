"""/v1/spaces/{space}/neighbors: the models that overlap most with a model, support or signature."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from starlette.datastructures import QueryParams

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.catalog.dependencies import Stated, TagFilter
from app.catalog.endpoints.payloads import ANY_BODY, AnyPayload
from app.catalog.reader import ModelReader
from app.errors import ModelNotFound, WrongKind
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import K, Reading, Turn
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import asks_for_many, counts_as
from app.observability.metrics import Metrics
from app.search.schemas import NeighborMeasure, NeighborsOut
from app.search.service import SearchService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace
from app.subspaces.dependencies import CompareBy
from modelkin._validation import check_model_name
from modelkin.errors import (
    InvalidParameter,
    InvalidSignature,
    InvalidSubspace,
    InvalidSupport,
    SpaceMismatch,
)
from modelkin.types.search import Neighbors

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/neighbors",
    tags=["kinship"],
    route_class=ThreadRoute,
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


@router.get(
    "",
    operation_id="get_neighbors",
    summary="Find the nearest models of a stored model",
    responses=problems(*SPACE_PROBLEMS, ModelNotFound, InvalidParameter),
    response_model=NeighborsOut,
)
@counts_as("heavy", _is_heavy)
def of_stored(
    reader: Service[ModelReader],
    search: Service[SearchService],
    measured: Service[Metrics],
    space: KnownSpace,
    session: Reading,
    turn: Turn,
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
        deadline=turn,
    )
    session.rollback()
    return _answer(found, measured)


@router.post(
    "",
    operation_id="find_neighbors",
    summary="Find the nearest models of a newcomer",
    responses=problems(
        *SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidSupport,
        InvalidSignature,
        InvalidSubspace,
        SpaceMismatch,
        WrongKind,
        InvalidParameter,
    ),
    response_model=NeighborsOut,
    openapi_extra=ANY_BODY,
)
@counts_as("heavy", _is_heavy)
def of_given(
    reader: Service[ModelReader],
    search: Service[SearchService],
    measured: Service[Metrics],
    payload: AnyPayload,
    origin: Stated,
    space: KnownSpace,
    session: Reading,
    turn: Turn,
    tags: TagFilter,
    k: K = 10,
    min_similarity: MinSimilarity = 0.0,
    min_kappa: MinKappa = None,
    method: Method = "auto",
    compare: CompareBy = None,
    measure: MeasureBy = "similarity",
) -> Response:
    """The neighbours of the support, signature or subspace in the body, which is not stored."""
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
        deadline=turn,
    )
    session.rollback()
    return _answer(found, measured)


def _answer(found: Neighbors, measured: Metrics) -> Response:
    """Render the answer here, in the thread of the request; FastAPI would validate it again."""
    if found.degraded:
        measured.degraded.labels("neighbors").inc()
    return Response(NeighborsOut.of(found).model_dump_json(), media_type="application/json")
