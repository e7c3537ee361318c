"""/v1/spaces/{space}/models: the metadata of models, without their supports."""

from __future__ import annotations

from functools import partial

from fastapi import Response

from app.infra.errors import ModelNotFound, PreconditionFailed
from app.infra.http.answers import Answer, PageLimit, json_answer, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.requests.preconditions import NOT_MODIFIED, IfMatch, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import FilteredModels, ModelName, Order
from app.models.catalog.reader import ModelReader
from app.models.catalog.schemas import ModelOut, ModelPage, ModelUpdate, etag, merged_attributes
from app.models.catalog.writer import ModelWriter
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)
from modelkin._validation import check_tags
from modelkin.types.paging import UNCHANGED

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/models",
    tags=["models"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.get(
    "",
    operation_id="list_models",
    summary="List the models of a space",
    response_model=ModelPage,
)
def list_models(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    space_name: SpaceName,
    limit: PageLimit,
    wanted: FilteredModels,
    order: Order = "name",
    cursor: Cursor = None,
) -> Response:
    """The models that meet every filter given, in the order asked for.

    A page ends at `limit` models or at 4 MiB, whichever comes first; `next_cursor` goes on, with
    the same filters and order.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = reader.models(session, space, limit=limit, cursor=cursor, wanted=wanted, order=order)
    return page_answer((ModelOut.to_bytes(space, model) for model in page.items), page.next_cursor)


@routes.get(
    MODEL,
    operation_id="get_model",
    summary="Show a model and its metadata",
    refuses=(ModelNotFound,),
    response_model=ModelOut,
    responses=NOT_MODIFIED,
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    space_name: SpaceName,
    name: ModelName,
) -> Response:
    """One model."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        model = reader.model(session, space, name)
    if is_known(context.request, model.version_tag):
        return Response(status_code=304, headers=etag(model))
    return json_answer(ModelOut.of(space, model), headers=etag(model))


@routes.patch(
    MODEL,
    operation_id="update_model",
    summary="Change the metadata of a model",
    refuses=(ModelNotFound, PreconditionFailed),
)
def update(
    context: WritingContext,
    spaces: Service[SpaceService],
    writer: Service[ModelWriter],
    space_name: SpaceName,
    name: ModelName,
    received: JsonBody[ModelUpdate],
    precondition: IfMatch,
) -> Answer[ModelOut]:
    """Replace tags, attributes, source or bases; `null` clears the last two.

    `base_model` is one base, and `base_models` all of a merge. `base_relation` says what the model
    is of them; it is cleared where other bases come without one.

    `merge_attributes` changes some attributes: each of its values replaces the one of that name,
    and `null` removes it. The others stay.

    Attributes have 16 KiB as JSON and 8 levels at most.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        given = body.model_fields_set
        changes = body.merge_attributes
        model = writer.update(
            session,
            space,
            name,
            tags=None if body.tags is None else check_tags(body.tags),
            attributes=body.attributes,
            source=body.source if "source" in given else UNCHANGED,
            bases=body.bases,
            change=None if changes is None else partial(merged_attributes, changes=changes),
            precondition=precondition,
        )
    return Answer(ModelOut.of(space, model), headers=etag(model))


@routes.delete(
    MODEL,
    operation_id="delete_model",
    summary="Delete a model with its support and signature",
    refuses=(ModelNotFound, PreconditionFailed),
    status_code=204,
)
def delete(
    context: WritingContext,
    spaces: Service[SpaceService],
    writer: Service[ModelWriter],
    space_name: SpaceName,
    name: ModelName,
    precondition: IfMatch,
) -> None:
    """Delete a model, its support and its signature."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        writer.delete(session, space, name, precondition=precondition)
