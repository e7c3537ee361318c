"""/v1/spaces/{space}/weights/{model} and /v1/duplicates: which models are exact copies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from app.infra.errors import Conflict, ModelNotFound, SpaceNotFound, WeightsNotFound
from app.infra.http.answers import LayoutMemory, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName
from app.models.catalog.reader import ModelReader
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.models.weights.schemas import DuplicatePage, DuplicateWeightsOut, WeightsIn, WeightsOut
from app.models.weights.service import WeightsService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from modelkin._validation import check_model_name, check_space_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["duplicate_routes", "routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/weights",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)
duplicate_routes = Routes(
    prefix="/v1/duplicates",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.put(
    MODEL,
    operation_id="put_weights",
    summary="State the weights of a model",
    refuses=(ModelNotFound, Conflict),
)
def put(
    context: WritingContext,
    spaces: Service[SpaceService],
    service: Service[WeightsService],
    space_name: SpaceName,
    name: ModelName,
    received: JsonBody[WeightsIn],
) -> WeightsOut:
    """State the digests of the weights that a model's present support was made from.

    They say which models are exact copies, and nothing of the values. What the service has read
    itself stays as it is.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        stated = service.state(
            session, space, name, body.weights(), revision=body.revision, stated_by="client"
        )
    return WeightsOut.stated(space_name, name, stated)


@routes.get(
    MODEL,
    operation_id="get_weights",
    summary="Show the weights of a model",
    refuses=(ModelNotFound, WeightsNotFound),
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[WeightsService],
    space_name: SpaceName,
    name: ModelName,
    memory: LayoutMemory,
) -> WeightsOut:
    """The digests of a model's weights: of all together, and of each tensor."""
    del memory
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return WeightsOut.stated(space_name, name, service.get(session, space, name))


@duplicate_routes.get(
    "",
    operation_id="list_duplicates",
    summary="List models with the same weights",
    refuses=(InvalidName, InvalidParameter, ModelNotFound, SpaceNotFound),
    response_model=DuplicatePage,
    turn="heavy",
)
def list_duplicates(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    service: Service[WeightsService],
    limit: PageLimit,
    space_name: Annotated[
        str | None,
        Query(alias="space", description="only weights of which a model of this space has one"),
    ] = None,
    model: Annotated[
        str | None, Query(description="only the weights of this model of that space")
    ] = None,
    cursor: Cursor = None,
) -> Response:
    """The weights that several models have, each with its models from all spaces.

    Weights are the same if all tensors have the same names, shapes, dtypes and values: in any order
    and any number of files.
    """
    if model is not None and space_name is None:
        raise InvalidParameter("model goes with space: name the model's space", field="space")
    with context.reading() as session:
        space = None
        if space_name is not None:
            space = spaces.get(session, context.tenant, check_space_name(space_name))
        if space is not None and model is not None:
            found = service.copies(
                session, space, reader.model(session, space, check_model_name(model))
            )
            groups, following = [] if found is None else [found], None
        else:
            page = service.duplicates(session, context.tenant, space, limit=limit, cursor=cursor)
            groups, following = list(page.items), page.next_cursor
    return page_answer(map(DuplicateWeightsOut.model_validate, groups), following)
