"""``/spaces/{space}/models/{model}``: a model, its kin, its past, and what may be done with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import QueryParams

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.infra.http.turns import heavy_if
from app.kinship.clustering.labels import LabelCache
from app.kinship.clustering.records import ClusteringRecord
from app.kinship.clustering.service import ClusteringService
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.kinship.findings.records import FindingPage
from app.kinship.findings.service import FindingService
from app.kinship.lineage import LineageService
from app.models.catalog.dependencies import ModelName
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.catalog.revisions import RevisionService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.models.weights.service import WeightsService
from app.models.weights.wording import form
from app.search.service import SearchService
from app.search.standing import with_standing
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.charts import drift_chart
from app.ui.rendering import PageRoutes, render
from modelkin.types.lineages import Lineage
from modelkin.types.models import DuplicateModel

__all__ = ["routes"]

routes = PageRoutes()

_MAX_NEIGHBORS: Final = 12
_MAX_DONORS: Final = 6
_MAX_DERIVATIVES: Final = 8
_MAX_REVISIONS: Final = 60
_LIGHT_K: Final = frozenset(["", *map(str, range(1, _MAX_NEIGHBORS + 1))])


def _is_heavy(query: QueryParams) -> bool:
    """Whether a page compares more models than usual.

    The usual page makes three searches, neighbours, donors and lineage, and one for each of the few
    derivatives that it shows. So a visitor does not wait behind matrices.
    """
    return query.get("k", "") not in _LIGHT_K


@routes.get(
    "/spaces/{space}/models" + MODEL,
    turn=heavy_if(_is_heavy),
)
def model(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    donors: Service[DonorService],
    lineages: Service[LineageService],
    findings: Service[FindingService],
    revisions: Service[RevisionService],
    clusterings: Service[ClusteringService],
    labels: Service[LabelCache],
    weights: Service[WeightsService],
    fingerprints: Service[FingerprintService],
    space_name: SpaceName,
    request: Request,
    name: ModelName,
    k: Annotated[int, Query(ge=1, le=100)] = _MAX_NEIGHBORS,
) -> HTMLResponse:
    """One model and its kin."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        shown = reader.model(session, space, name)
    findings.catch_up(space, context.deadline)
    with context.reading() as session:
        subject = reader.stored_subject(session, space, name)
        lineage = _lineage(lineages, session, space, shown, context.deadline)
        derivatives = _derivatives(findings, session, space, name)
        measured = {} if lineage is None else {kin.model: kin for kin in lineage.kin}
        found = search.neighbors(session, space, subject, k=k, deadline=context.deadline)
        neighbors = with_standing(session, space, subject, found)
        past = revisions.list(session, space, name, limit=_MAX_REVISIONS, cursor=None)
        return render(
            request,
            "model.html",
            space=space,
            model=shown,
            k=k,
            neighbors=neighbors,
            near=reader.find(session, space, [item.model for item in neighbors.items]),
            donors=donors.donors(
                session, space, subject, DonorRequest(k=_MAX_DONORS), context.deadline
            ),
            lineage=lineage,
            finding=findings.find(session, space, name),
            copies=_copies(weights, session, space, shown),
            fingerprint=fingerprints.find(session, context.tenant, name),
            derivatives=() if derivatives is None else derivatives.items,
            measured=measured,
            more_derivatives=derivatives is not None and derivatives.next_cursor is not None,
            revisions=past.page.items,
            drift=drift_chart(past.page.items),
            cluster=_cluster(clusterings, labels, session, space, shown),
            programs=programs.of_model(request, space, shown),
        )


def _lineage(
    lineages: LineageService,
    session: Reader,
    space: SpaceRecord,
    model: ModelRecord,
    deadline: Deadline,
) -> Lineage | None:
    """The lineage of a model; None in a space that has none."""
    if space.kind != "supports":
        return None
    return lineages.lineage(session, space, model.name, deadline)


def _derivatives(
    findings: FindingService, session: Reader, space: SpaceRecord, name: str
) -> FindingPage | None:
    """The first models that declare this one as their base, each with its verdict."""
    if space.kind != "supports":
        return None
    return findings.page(session, space, limit=_MAX_DERIVATIVES, cursor=None, base_model=name)


@dataclass(frozen=True, slots=True)
class Copies:
    """The models with the weights of the shown one.

    Attributes:
        form: the form of its files where it is not that of the first of the others.
        truncated: whether there are more.
    """

    others: tuple[DuplicateModel, ...]
    form: str
    truncated: bool


def _copies(
    weights: WeightsService, session: Reader, space: SpaceRecord, model: ModelRecord
) -> Copies | None:
    """The exact copies of a model; None where it has none, or nobody stated its weights."""
    found = weights.copies(session, space, model)
    if found is None:
        return None
    own = next(each for each in found if (each.space, each.model) == (space.name, model.name))
    others = tuple(each for each in found if each.model != model.name)
    return Copies(others, form(own, others[0]), found.truncated)


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of a model in the newest clustering of its whole space.

    Attributes:
        id: the id of its cluster; -1 if it is in none.
        size: the number of models of the cluster.
    """

    record: ClusteringRecord
    id: int
    size: int


def _cluster(
    clusterings: ClusteringService,
    labels: LabelCache,
    session: Reader,
    space: SpaceRecord,
    model: ModelRecord,
) -> Membership | None:
    """The cluster of a model; None where the newest clustering does not have it."""
    record = clusterings.newest(session, space)
    if record is None:
        return None
    found = labels.labels(session, record)
    label = found.of.get(model.name)
    return None if label is None else Membership(record, label, found.sizes[label])
