"""/v1/spaces/{space}/subspaces/{model}: what a client's samples span, in a space of subspaces."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.catalog.dependencies import ModelName, NewTags
from app.catalog.endpoints.payloads import SUBSPACE_BODY, SUBSPACE_CONTENT, SubspacePayload
from app.catalog.puts import Put
from app.catalog.reader import ModelReader
from app.catalog.schemas import ModelOut, etag
from app.catalog.shared_commits import SharedCommits
from app.errors import (
    ModelNotFound,
    NotAcceptable,
    PreconditionFailed,
    QuotaExceeded,
    StorageFull,
)
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.negotiation import choose
from app.infra.http.openapi import problems
from app.infra.http.preconditions import PutCondition
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.spaces.dependencies import (
    SUPPORT_SPACE_PROBLEMS,
    SubspaceSpace,
    WritableSubspaceSpace,
)
from modelkin import wire
from modelkin.errors import InvalidParameter, InvalidSubspace, SpaceMismatch

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/subspaces",
    tags=["models"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.put(
    MODEL,
    operation_id="put_subspace",
    summary="Store a data subspace",
    status_code=201,
    responses={
        200: {"model": ModelOut, "description": "Replaced, or the same content again"},
        **problems(
            *SUPPORT_SPACE_PROBLEMS,
            *BODY_PROBLEMS,
            InvalidSubspace,
            InvalidParameter,
            SpaceMismatch,
            PreconditionFailed,
            StorageFull,
            QuotaExceeded,
        ),
    },
    openapi_extra=SUBSPACE_BODY,
)
def put(
    commits: Service[SharedCommits],
    payload: SubspacePayload,
    name: ModelName,
    tags: NewTags,
    space: WritableSubspaceSpace,
    reading: Reading,
    response: Response,
    precondition: PutCondition,
) -> ModelOut:
    """Store the subspace of a client's data. Its readers see the mean sample of each class.

    `.npy` is one basis, of features x columns, of any orthogonality.
    """
    subspace = payload.subspace(space)
    put = Put(name, subspace, tags=tags, precondition=precondition)
    reading.rollback()  # nothing is held while it waits for the disk
    stored = commits.put(space, put)
    response.status_code = 201 if stored.status == "created" else 200
    response.headers.update(etag(stored.model))
    return ModelOut.of(space, stored.model)


@router.get(
    MODEL,
    operation_id="get_subspace",
    summary="Download a data subspace",
    response_class=Response,
    responses={
        200: {"content": SUBSPACE_CONTENT, "description": "The subspace"},
        **problems(*SUPPORT_SPACE_PROBLEMS, ModelNotFound, NotAcceptable),
    },
)
def get(
    reader: Service[ModelReader],
    name: ModelName,
    space: SubspaceSpace,
    session: Reading,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The subspace of a model; as `.npy` the columns of all its blocks side by side."""
    media_type = choose(accept, wire.SUBSPACE_TYPES)
    subject = reader.stored_subject(session, space, name)
    assert subject.subspace is not None  # the space holds nothing else
    assert subject.model is not None  # it is stored
    body = wire.dump_subspace(subject.subspace, media_type)
    return Response(body, media_type=media_type, headers={**etag(subject.model), "Vary": "Accept"})
