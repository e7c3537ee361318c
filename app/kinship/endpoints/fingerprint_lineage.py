"""/v1/fingerprints/{model}/lineage: the declared bases of a fingerprint beside its lines.

As with ``/anatomy``, a path that ends in ``/lineage`` is of the model before it.
"""

from __future__ import annotations

from app.infra.errors import FingerprintNotFound, TooMuch, Unavailable
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL, BehindModel
from app.infra.http.services import Service
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.schemas import FingerprintLineageOut
from app.models.catalog.dependencies import ModelName
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1",
    tags=["fingerprints"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
    route_class=BehindModel,
)


@routes.get(
    f"/fingerprints{MODEL}/lineage",
    operation_id="get_fingerprint_lineage",
    summary="Check the declared bases of a fingerprint",
    refuses=(FingerprintNotFound, InvalidParameter, TooMuch, Unavailable),
    turn="heavy",
)
def fingerprint_lineage(
    context: ReadingContext, lineages: Service[FingerprintLineageService], name: ModelName
) -> FingerprintLineageOut:
    """The bases that were declared beside a fingerprint, with a verdict by lines and its evidence.

    It needs no space, and no common layout. Lines in common confirm a base: they mean a common
    origin, a base, a checkpoint, or the same random seed. That there are none proves nothing. A
    base is contradicted where most lines are those of other models, which have nothing in common
    with it.
    """
    with context.reading() as session:
        found = lineages.lineage(session, context.tenant, name, context.deadline)
    return FingerprintLineageOut.of(found)
