"""``/spaces/{space}/pairs?a=..&b=..``: where two models agree, and where they differ."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.http.services import Service
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.search.similarity import SimilarityService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.charts import tensor_chart
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_model_name
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.types.search import Overlap

__all__ = ["routes"]

routes = PageRoutes()

_MAX_TENSORS: Final = 500
"""Tensors that a page draws and lists, the first in the order of reading."""


@routes.get("/spaces/{space}/pairs")
def pair(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    similarities: Service[SimilarityService],
    space_name: SpaceName,
    request: Request,
    a: Annotated[str, Query(max_length=800)],
    b: Annotated[str, Query(max_length=800)],
) -> HTMLResponse:
    """Two models, compared exactly: tensor by tensor, or by their principal angles."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        names = check_model_name(a, field="a"), check_model_name(b, field="b")
        records = [reader.model(session, space, name) for name in names]
        found = similarities.overlap(session, space, *names)
        order = NetworkOrder.of([tensor.name for tensor in found.tensors or ()])
        tensors = order.arrange(found.tensors or ())
        shown = tensors[:_MAX_TENSORS]
    one, other = records
    return render(
        request,
        "pair.html",
        space=space,
        a=one,
        b=other,
        overlap=found,
        near=_nearness(space, one, other, found),
        chart=tensor_chart(tensors, _MAX_TENSORS) if tensors else None,
        tensors=shown,
        by_depth=order.is_own,
        more_tensors=len(tensors) - len(shown),
        programs=programs.of_pair(request, space, *names),
    )


def _nearness(
    space: SpaceRecord, one: ModelRecord, other: ModelRecord, found: Overlap
) -> Nearness | None:
    """How near the two are beside unrelated models, as in a list of neighbours; None of data."""
    if space.kind == "subspaces":
        return None
    return Nearness.of(
        found.similarity,
        0.0,
        found.expected,
        (one.support_size, other.support_size),
        space.num_parameters,
        space.models,
        found.shared_indices,
    )
