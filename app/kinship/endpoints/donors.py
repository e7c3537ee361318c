"""/v1/spaces/{space}/donors: models to learn from, with reasons and proportions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query
from starlette.datastructures import QueryParams

from app.infra.errors import ModelNotFound, SupportRequired, WrongKind
from app.infra.http.dependencies import K
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.infra.http.turns import asks_for_many, heavy_if
from app.kinship.donors.request import HEAVY_METHODS, DonorRequest
from app.kinship.donors.service import DonorService
from app.kinship.schemas import DonorsOut
from app.models.catalog.dependencies import Stated, TagFilter
from app.models.catalog.endpoints.payloads import ANY_BODY, AnyPayload
from app.models.catalog.reader import ModelReader
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.models.subspaces.dependencies import CompareBy
from app.search.degradation import DegradedAnswers
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin._validation import check_model_name
from modelkin.types.kinship import Donors

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/donors",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

Attribute = Annotated[str | None, Query(min_length=1, max_length=200)]


async def _donor_request(
    tags: TagFilter,
    method: Annotated[
        Literal["similarity", "idf", "cover", "knn_shapley"],
        Query(
            description="similarity ranks by S; idf weighs shared indices by how rare they are in "
            "the space; cover takes the model that adds most to the indices of the donors before "
            "it; knn_shapley values the neighbourhood's labels or metrics"
        ),
    ] = "similarity",
    k: K = 10,
    min_similarity: Annotated[
        float, Query(ge=0, le=1, allow_inf_nan=False, description="the least S of a donor")
    ] = 0.0,
    exclude: Annotated[
        list[str] | None, Query(description="a model that may not be a donor; repeats")
    ] = None,
    weights: Annotated[
        Literal["zscore", "similarity", "score"] | None,
        Query(
            description="zscore: proportional to exp of the z-score of S over the space; "
            "similarity: to S; score: to what the method ranks by. By default score for cover, "
            "else zscore"
        ),
    ] = None,
    label: Annotated[
        Attribute, Query(description="knn_shapley: the attribute that should be the target's")
    ] = None,
    target_label: Annotated[
        str | None,
        Query(max_length=2000, description="the target's label, in place of its attribute"),
    ] = None,
    metric: Annotated[
        Attribute, Query(description="knn_shapley: the attribute that should be large")
    ] = None,
    neighbors: Annotated[
        int | None,
        Query(ge=1, le=1000, description="knn_shapley: how many nearest models count; 5"),
    ] = None,
    include_unrelated: Annotated[
        bool,
        Query(description="weigh donors that are unrelated, too: those as near as chance makes"),
    ] = False,
    compare: CompareBy = None,
) -> DonorRequest:
    names = [] if exclude is None else exclude
    return DonorRequest(
        method=method,
        k=k,
        tags=tags,
        min_similarity=min_similarity,
        exclude=frozenset(
            check_model_name(name, field=f"exclude[{place}]") for place, name in enumerate(names)
        ),
        weights=weights,
        label=label,
        target_label=target_label,
        metric=metric,
        neighbors=neighbors,
        include_unrelated=include_unrelated,
        compare=compare,
    )


DonorQuery = Annotated[DonorRequest, Depends(_donor_request)]


def _is_heavy(query: QueryParams) -> bool:
    excluded = len(query.getlist("exclude"))
    return query.get("method") in HEAVY_METHODS or asks_for_many(query, beside=excluded)


@routes.get(
    "",
    operation_id="get_donors",
    summary="Find donors for a stored model",
    refuses=(ModelNotFound, SupportRequired, WrongKind),
    turn=heavy_if(_is_heavy),
)
def of_stored(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    donors: Service[DonorService],
    degraded: Service[DegradedAnswers],
    space_name: SpaceName,
    request: DonorQuery,
    target: Annotated[str, Query(description="the stored model that is to learn")],
) -> DonorsOut:
    """Donors for a stored model, best first, each with its weight and its reasons.

    The target is never a donor of its own, whether it is excluded or not.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        name = check_model_name(target, field="target")
        subject = reader.stored_subject(session, space, name)
        return _answer(donors.donors(session, space, subject, request, context.deadline), degraded)


@routes.post(
    "",
    operation_id="find_donors",
    summary="Find donors for a newcomer",
    refuses=(SupportRequired,),
    openapi_extra=ANY_BODY,
    turn=heavy_if(_is_heavy),
)
def of_given(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    donors: Service[DonorService],
    degraded: Service[DegradedAnswers],
    space_name: SpaceName,
    payload: AnyPayload,
    origin: Stated,
    request: DonorQuery,
) -> DonorsOut:
    """Donors for the support or signature in the body, which is not stored."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        subject = reader.given_subject(session, space, payload.of_kind(space), origin)
        return _answer(donors.donors(session, space, subject, request, context.deadline), degraded)


def _answer(found: Donors, degraded: DegradedAnswers) -> DonorsOut:
    if found.degraded:
        degraded.note("donors")
    return DonorsOut.of(found)
