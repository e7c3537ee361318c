"""/v1/spaces/{space}/models: what is known of models besides their supports."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute
from app.catalog.dependencies import FilteredModels, ModelName, Order
from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.schemas import ModelOut, ModelPage, ModelUpdate, etag, merged_attributes
from app.catalog.writer import ModelWriter
from app.errors import ModelNotFound, PreconditionFailed, StorageFull
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.preconditions import IfMatch, is_known
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.infra.http.short_reads import short_read
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from modelkin._validation import check_model_name, check_tags
from modelkin.errors import InvalidParameter
from modelkin.types.paging import UNCHANGED

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/models",
    tags=["models"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.get(
    "",
    operation_id="list_models",
    summary="List the models of a space",
    responses=problems(*SPACE_PROBLEMS, InvalidParameter),
    response_model=ModelPage,
)
def list_models(
    reader: Service[ModelReader],
    limit: PageLimit,
    space: KnownSpace,
    session: Reading,
    wanted: FilteredModels,
    order: Order = "name",
    cursor: Cursor = None,
) -> Response:
    """The models that meet every filter given, in the order asked for.

    A page ends at `limit` models or at 4 MiB, whichever comes first; `next_cursor` goes on, with
    the same filters and order.
    """
    page = reader.models(session, space, limit=limit, cursor=cursor, wanted=wanted, order=order)
    return page_answer((ModelOut.written(space, model) for model in page.items), page.next_cursor)


@router.get(
    MODEL,
    operation_id="get_model",
    summary="Show a model and its metadata",
    responses=problems(*SPACE_PROBLEMS, ModelNotFound),
    response_model=ModelOut,
)
@short_read
def show(
    request: Request,
    reader: Service[ModelReader],
    space: KnownSpace,
    name: ModelName,
    session: Reading,
    response: Response,
) -> ModelOut | Response:
    """One model."""

    def is_unchanged(model: ModelRecord) -> bool:
        return is_known(request, model.version_tag)

    model = reader.model(session, space, name, untagged=is_unchanged)
    if is_unchanged(model):
        return Response(status_code=304, headers=etag(model))
    response.headers.update(etag(model))
    return ModelOut.of(space, model)


@router.patch(
    MODEL,
    operation_id="update_model",
    summary="Change the metadata of a model",
    responses=problems(
        *SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        ModelNotFound,
        InvalidParameter,
        PreconditionFailed,
        StorageFull,
    ),
)
def update(
    writer: Service[ModelWriter],
    space: WritableSpace,
    name: ModelName,
    session: Writing,
    body: Annotated[ModelUpdate, Body()],
    response: Response,
    precondition: IfMatch,
) -> ModelOut:
    """Replace tags, attributes, source or base_model; `null` clears the last two.

    `merge_attributes` changes some attributes: each of its values replaces the one of that name,
    and `null` removes it. The others stay.

    Attributes have 16 KiB as JSON and 8 levels at most.
    """
    given = body.model_fields_set
    base_model, changes = body.base_model, body.merge_attributes
    if base_model is not None:
        base_model = check_model_name(base_model, field="base_model")
    model = writer.update(
        session,
        space,
        name,
        tags=None if body.tags is None else check_tags(body.tags),
        attributes=body.attributes,
        source=body.source if "source" in given else UNCHANGED,
        base_model=base_model if "base_model" in given else UNCHANGED,
        merge=None if changes is None else partial(merged_attributes, changes=changes),
        precondition=precondition,
    )
    response.headers.update(etag(model))
    return ModelOut.of(space, model)


@router.delete(
    MODEL,
    operation_id="delete_model",
    summary="Delete a model with its support and signature",
    responses=problems(*SPACE_PROBLEMS, ModelNotFound, PreconditionFailed, StorageFull),
    status_code=204,
)
def delete(
    writer: Service[ModelWriter],
    space: WritableSpace,
    name: ModelName,
    session: Writing,
    precondition: IfMatch,
) -> None:
    """Delete a model, its support and its signature."""
    writer.delete(session, space, name, precondition=precondition)
