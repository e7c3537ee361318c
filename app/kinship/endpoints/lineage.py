"""/v1/spaces/{space}/lineage: the declared base of a model beside the measured similarities."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from app.infra.errors import ModelNotFound, TooMuch, Unavailable
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.lineage import LineageService
from app.kinship.schemas import LineageOut
from app.models.spaces.dependencies import KindName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin._validation import check_model_name

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


@routes.get(
    "/lineage",
    operation_id="get_lineage",
    summary="Check the declared base of a model",
    refuses=(ModelNotFound, TooMuch, Unavailable),
    turn="heavy",
)
def lineage(
    context: ReadingContext,
    spaces: Service[SpaceService],
    lineages: Service[LineageService],
    space_name: KindName,
    model: Annotated[str, Query(description="the stored model")],
) -> LineageOut:
    """The declared `base_model` beside the nearest models, with a verdict and its evidence.

    Similarity has no direction: it may contradict a declared base, and never proves one. In a space
    of weights kappa, the similarity beyond chance, decides first; elsewhere S is compared with that
    of the other models. A space of differences contradicts no base.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        return LineageOut.of(
            lineages.lineage(session, space, check_model_name(model), context.deadline)
        )
