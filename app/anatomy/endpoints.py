"""/v1/anatomy and /v1/fingerprints/{model}/...: which models the tensors of a checkpoint come from.

The names of models may hold slashes. A path that ends in ``/anatomy`` is of the model before it;
``app.infra.http.routing.BehindModel`` says how a model is told that is named so itself.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Request, Response

from app.anatomy.dependencies import Excluded
from app.anatomy.records import ModelAnatomy, Relatives
from app.anatomy.schemas import AnatomyOut, RelativesOut, TensorPairsOut, tensors_out
from app.anatomy.service import LEAST_FOUND, MOST_RELATIVES, AnatomyService
from app.fingerprints.dependencies import FINGERPRINT_BODY, FingerprintPayload
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.errors import FingerprintNotFound, TooMuch, Unavailable
from app.infra.http.answers import AnswerMemory, json_answer, list_answer
from app.infra.http.requests.memory_budget import Reservation
from app.infra.http.requests.preconditions import NOT_MODIFIED, entity_tag, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL, BehindModel
from app.infra.http.services import Service
from app.infra.http.turns import heavy_if
from app.models.catalog.dependencies import ModelName
from app.search.degradation import DegradedAnswers
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin._validation import check_model_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1",
    tags=["fingerprints"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
    route_class=BehindModel,
)

_ONE: Final = f"/fingerprints{MODEL}"

RelativesK = Annotated[int, Query(ge=1, le=MOST_RELATIVES, description="how many")]


@routes.post(
    "/anatomy",
    operation_id="find_anatomy",
    summary="Find what a checkpoint comes from",
    response_model=AnatomyOut,
    openapi_extra=FINGERPRINT_BODY,
    refuses=(TooMuch, Unavailable),
    turn="heavy",
)
def of_given(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    body: FingerprintPayload,
    memory: AnswerMemory,
    degraded: Service[DegradedAnswers],
    exclude: Excluded,
) -> Response:
    """The anatomy of the fingerprint in the body, which is not stored.

    It is compared with all stored fingerprints of the tenant. Equal lines mean a common origin: a
    base, a checkpoint, or the same random seed. That there are none proves nothing.
    """
    given = body.decode(fingerprints)
    with context.reading() as session:
        found = anatomies.anatomy(
            session,
            context.tenant,
            given,
            exclude=exclude,
            deadline=context.deadline,
            reserve=memory.take,
        )
    return _answer_anatomy(found, memory, degraded)


@routes.post(
    "/relatives",
    operation_id="find_relatives",
    summary="Find the relatives of a newcomer",
    response_model=RelativesOut,
    openapi_extra=FINGERPRINT_BODY,
    refuses=(TooMuch, Unavailable),
    turn="heavy",
)
def relatives_of_given(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    body: FingerprintPayload,
    memory: AnswerMemory,
    degraded: Service[DegradedAnswers],
    exclude: Excluded,
    k: RelativesK = 10,
) -> Response:
    """The models nearest to the fingerprint in the body, which is not stored."""
    given = body.decode(fingerprints)
    with context.reading() as session:
        found = anatomies.relatives(
            session,
            context.tenant,
            given,
            k,
            exclude=exclude,
            deadline=context.deadline,
            reserve=memory.take,
        )
    return _answer_relatives(found, degraded)


@routes.get(
    _ONE + "/anatomy",
    operation_id="get_anatomy",
    summary="Find what a stored model comes from",
    response_model=AnatomyOut,
    refuses=(FingerprintNotFound, TooMuch, Unavailable),
    responses=NOT_MODIFIED,
    turn="heavy",
)
def of_stored(
    context: ReadingContext,
    request: Request,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    name: ModelName,
    memory: AnswerMemory,
    degraded: Service[DegradedAnswers],
    exclude: Excluded,
) -> Response:
    """The anatomy of a stored fingerprint among all others of the tenant.

    The `ETag` is that of all fingerprints: a change of any may change the answer.
    """
    with context.reading() as session:
        record = fingerprints.get(session, context.tenant, name)
        tag = _tag(session, fingerprints, record)
        if is_known(request, tag):
            return Response(status_code=304, headers={"ETag": entity_tag(tag)})
        found = anatomies.anatomy(
            session,
            context.tenant,
            record,
            exclude=exclude,
            deadline=context.deadline,
            reserve=memory.take,
        )
    return _answer_anatomy(found, memory, degraded, tag)


@routes.get(
    _ONE + "/relatives",
    operation_id="get_relatives",
    summary="List the relatives of a stored model",
    response_model=RelativesOut,
    refuses=(FingerprintNotFound, TooMuch, Unavailable),
    responses=NOT_MODIFIED,
    turn=heavy_if(lambda query: _is_many(query.get("k", ""))),
)
def relatives(
    context: ReadingContext,
    request: Request,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    name: ModelName,
    memory: AnswerMemory,
    degraded: Service[DegradedAnswers],
    exclude: Excluded,
    k: RelativesK = 10,
) -> Response:
    """The models with lines in common with a stored one, each by itself, the least P first."""
    with context.reading() as session:
        record = fingerprints.get(session, context.tenant, name)
        tag = _tag(session, fingerprints, record)
        if is_known(request, tag):
            return Response(status_code=304, headers={"ETag": entity_tag(tag)})
        found = anatomies.relatives(
            session,
            context.tenant,
            record,
            k,
            exclude=exclude,
            deadline=context.deadline,
            reserve=memory.take,
        )
    return _answer_relatives(found, degraded, tag)


@routes.get(
    _ONE + "/tensors",
    operation_id="compare_tensors",
    summary="Compare two models tensor by tensor",
    response_model=TensorPairsOut,
    refuses=(FingerprintNotFound, InvalidName, InvalidParameter, Unavailable),
    responses=NOT_MODIFIED,
)
def tensors(
    context: ReadingContext,
    request: Request,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    name: ModelName,
    memory: AnswerMemory,
    other: Annotated[str, Query(alias="with", description="the other stored model")],
) -> Response:
    """The tensors of a stored model, each with those of another one that have its lines."""
    other = check_model_name(other, field="with")
    with context.reading() as session:
        first = fingerprints.get(session, context.tenant, name)
        second = fingerprints.get(session, context.tenant, other)
        tag = f"{first.version_tag}-{second.version_tag}"
        if is_known(request, tag):
            return Response(status_code=304, headers={"ETag": entity_tag(tag)})
        found = anatomies.tensors(session, first, second, reserve=memory.take)
    answer = list_answer("items", tensors_out(found.anatomy), TensorPairsOut.facts(found), memory)
    answer.headers["ETag"] = entity_tag(tag)
    return answer


def _answer_anatomy(
    found: ModelAnatomy, memory: Reservation, degraded: DegradedAnswers, tag: str | None = None
) -> Response:
    if found.degraded:
        degraded.note("anatomy")
    answer = list_answer("tensors", tensors_out(found.anatomy), AnatomyOut.facts(found), memory)
    if tag is not None and found.is_lasting:
        answer.headers["ETag"] = entity_tag(tag)
    return answer


def _answer_relatives(
    found: Relatives, degraded: DegradedAnswers, tag: str | None = None
) -> Response:
    if found.degraded:
        degraded.note("relatives")
    headers = {} if tag is None or not found.is_lasting else {"ETag": entity_tag(tag)}
    return json_answer(RelativesOut.of(found), headers=headers)


def _tag(session: Reader, fingerprints: FingerprintService, record: FingerprintRecord) -> str:
    """A tag of an answer about a fingerprint among all others, as they are now."""
    return f"{record.version_tag}-{fingerprints.feed(session, record.tenant_id).version:x}"


def _is_many(k: str) -> bool:
    """Whether more fingerprints are read whole than of an anatomy; also of what is no number."""
    return bool(k) and not (k.isdecimal() and len(k) <= 3 and int(k) <= LEAST_FOUND)
