"""/v1/spaces/{space}/lineage: the declared base of a model, beside the measured similarities."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.auth.dependencies import AUTHENTICATED, REFUSALS
from app.errors import ModelNotFound, TooMuch
from app.infra.http.dependencies import Reading, Turn
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.kinship.lineage import LineageService
from app.kinship.schemas import LineageOut
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, SupportSpace
from modelkin._validation import check_model_name
from modelkin.errors import InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/lineage",
    tags=["kinship"],
    route_class=ThreadRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@router.get(
    "",
    operation_id="get_lineage",
    summary="Check the declared base of a model",
    responses=problems(*SUPPORT_SPACE_PROBLEMS, ModelNotFound, InvalidParameter, TooMuch),
)
@counts_as("heavy")
def lineage(
    lineages: Service[LineageService],
    space: SupportSpace,
    session: Reading,
    turn: Turn,
    model: Annotated[str, Query(description="the stored model")],
) -> LineageOut:
    """The declared `base_model` beside the nearest models, with a verdict and its evidence.

    Similarity has no direction: it may contradict a declared base, and never proves one. In a space
    of weights kappa, the similarity beyond chance, decides first; elsewhere S is compared with that
    of the other models. A space of differences contradicts no base.
    """
    return LineageOut.of(lineages.lineage(session, space, check_model_name(model), turn))
