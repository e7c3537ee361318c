"""/v1/spaces/{space}/tensors: the tensors of supports' indices, and tensors that look constant."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response

from app.infra.errors import Unavailable
from app.infra.http.answers import LayoutMemory, list_answer
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.schemas import SpaceTensorsOut, TensorSummaryOut
from app.kinship.tensors import TensorService
from app.models.spaces.dependencies import KindName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/tensors",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.get(
    "",
    operation_id="get_tensors",
    summary="Compare sampled models tensor by tensor",
    response_model=SpaceTensorsOut,
    refuses=(Unavailable,),
    turn="heavy",
)
def tensors(
    context: ReadingContext,
    spaces: Service[SpaceService],
    service: Service[TensorService],
    space_name: KindName,
    memory: LayoutMemory,
) -> Response:
    """The tensors of the layout, with the overlap of sampled pairs of models within each.

    A tensor looks constant where models agree in it that are at chance everywhere else. A space
    that is created with its name in `exclude` leaves it out.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        found = service.tensors(session, space, context.deadline)
        facts = SpaceTensorsOut.of(replace(found, items=()))
    return list_answer("items", map(TensorSummaryOut.model_validate, found.items), facts, memory)
