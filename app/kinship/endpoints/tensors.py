"""/v1/spaces/{space}/tensors: where the indices of supports lie, and what looks constant."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.infra.http.answers import LayoutMemory, list_answer
from app.infra.http.dependencies import Reading, Turn
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.kinship.schemas import SpaceTensorsOut, TensorSummaryOut
from app.kinship.tensors import TensorService
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, SupportSpace
from modelkin.errors import InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/tensors",
    tags=["kinship"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.get(
    "",
    operation_id="get_tensors",
    summary="Compare sampled models tensor by tensor",
    responses=problems(*SUPPORT_SPACE_PROBLEMS, InvalidParameter),
    response_model=SpaceTensorsOut,
)
@counts_as("heavy")
def tensors(
    service: Service[TensorService],
    memory: LayoutMemory,
    space: SupportSpace,
    session: Reading,
    turn: Turn,
) -> Response:
    """The tensors of the layout, with the overlap of sampled pairs of models within each.

    A tensor looks constant where models agree in it that are at chance everywhere else. A space
    that is created with its name in `exclude` leaves it out.
    """
    found = service.tensors(session, space, turn)
    facts = SpaceTensorsOut.of(replace(found, items=()))
    return list_answer("items", map(TensorSummaryOut.model_validate, found.items), facts, memory)
