"""/v1/spaces/{space}/clusterings: groups of kin, made by jobs; and the policy that renews them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute, WritingTenant
from app.catalog.dependencies import Stated, TagFilter
from app.catalog.endpoints.payloads import ANY_BODY, AnyPayload
from app.catalog.reader import ModelReader
from app.clustering.policies import PolicyService
from app.clustering.records import ClusteringRecord
from app.clustering.schemas import (
    AssignmentOut,
    ClusteringIn,
    ClusteringOut,
    ClusteringPage,
    ClusteringPolicyIn,
    ClusteringPolicyOut,
    ClusteringSummary,
)
from app.clustering.service import LATEST, ClusteringService
from app.errors import (
    ClusteringNotFound,
    ModelNotFound,
    QueueFull,
    RateLimited,
    StorageFull,
    WrongKind,
)
from app.idempotency.dependencies import Once
from app.infra.db.database import Reader
from app.infra.http.answers import AnswerMemory, PageLimit, json_answer, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.memory_budget import Reservation
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.jobs.endpoints import accepted
from app.jobs.schemas import JobOut
from app.learngenes.service import LearngeneService
from app.spaces.dependencies import SPACE_PROBLEMS, KnownSpace, WritableSpace
from app.spaces.records import SpaceRecord
from app.subspaces.dependencies import CompareBy
from modelkin.errors import (
    InvalidParameter,
    InvalidSignature,
    InvalidSubspace,
    InvalidSupport,
    SpaceMismatch,
)

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}",
    tags=["clusterings"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)
_binary = APIRouter(route_class=ThreadRoute)
"""Routes whose body is not JSON."""

_BYTES_OF_A_MODEL = 1000
"""Memory of a name in a clustering, which is in the answer twice, as read and as written."""

ClusteringId = Annotated[
    str, Path(description="the id of the clustering, or `latest`", max_length=100)
]


@router.post(
    "/clusterings",
    operation_id="create_clustering",
    summary="Start clustering the models of a space",
    responses=problems(
        *SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        ModelNotFound,
        InvalidParameter,
        StorageFull,
        QueueFull,
        RateLimited,
    ),
    status_code=202,
)
def create(
    clusterings: Service[ClusteringService],
    tenant: WritingTenant,
    space: WritableSpace,
    session: Writing,
    once: Once,
    body: Annotated[ClusteringIn, Body()],
    response: Response,
) -> JobOut:
    """Cluster the models of the space, as they are when the job begins.

    Every algorithm chooses the number of clusters by itself; parameters may set it. The clustering
    has the id of the job. A repeated request gets the same job, until that has ended or the space
    has changed.
    """
    del once
    job = clusterings.create(session, tenant, space, body.to_request(body.algorithm))
    return accepted(response, job)


@router.get(
    "/clusterings",
    operation_id="list_clusterings",
    summary="List the clusterings of a space",
    responses=problems(*SPACE_PROBLEMS, InvalidParameter),
    response_model=ClusteringPage,
)
def list_clusterings(
    clusterings: Service[ClusteringService],
    limit: PageLimit,
    space: KnownSpace,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The clusterings, newest first, without the clusters of models. The last 100 are kept.

    `models` among the parameters is left out, too.
    """
    page = clusterings.list(session, space, limit=limit, cursor=cursor)
    items = (ClusteringSummary.of(space, clustering) for clustering in page.items)
    return page_answer(items, page.next_cursor)


@router.get(
    "/clusterings/latest",
    operation_id="get_latest_clustering",
    summary="Show the newest clustering of a space",
    responses=problems(*SPACE_PROBLEMS, ClusteringNotFound),
    response_model=ClusteringOut,
)
@counts_as("heavy")
def latest(
    clusterings: Service[ClusteringService],
    space: KnownSpace,
    session: Reading,
    tags: TagFilter,
    memory: AnswerMemory,
) -> Response:
    """The newest clustering of all models; with `tag`, of those that carry these tags."""
    found = clusterings.get(session, space, LATEST, tags)
    return _whole(clusterings, space, session, found, memory)


@router.get(
    "/clusterings/{clustering}",
    operation_id="get_clustering",
    summary="Show a clustering and its clusters",
    responses=problems(*SPACE_PROBLEMS, ClusteringNotFound, InvalidParameter),
    response_model=ClusteringOut,
)
@counts_as("heavy")
def show(
    clusterings: Service[ClusteringService],
    space: KnownSpace,
    session: Reading,
    clustering: ClusteringId,
    memory: AnswerMemory,
) -> Response:
    """One clustering: the cluster of each model, and the members and exemplar of each cluster."""
    found = clusterings.get(session, space, clustering)
    return _whole(clusterings, space, session, found, memory)


@router.delete(
    "/clusterings/{clustering}",
    operation_id="delete_clustering",
    summary="Delete a clustering and keep its models",
    responses=problems(*SPACE_PROBLEMS, ClusteringNotFound, InvalidParameter, StorageFull),
    status_code=204,
)
def delete(
    clusterings: Service[ClusteringService],
    space: WritableSpace,
    session: Writing,
    clustering: ClusteringId,
) -> None:
    """Delete a clustering. Models stay as they are, and its ids of clusters are not used again."""
    clusterings.delete(session, space, clustering)


@_binary.post(
    "/clusterings/{clustering}/assign",
    operation_id="assign_cluster",
    summary="Find the cluster of a newcomer",
    responses=problems(
        *SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidSupport,
        InvalidSignature,
        InvalidSubspace,
        SpaceMismatch,
        WrongKind,
        ClusteringNotFound,
        InvalidParameter,
    ),
    openapi_extra=ANY_BODY,
)
@counts_as("reading")
def assign(
    clusterings: Service[ClusteringService],
    reader: Service[ModelReader],
    payload: AnyPayload,
    origin: Stated,
    space: KnownSpace,
    session: Reading,
    clustering: ClusteringId,
    learngenes: Service[LearngeneService],
    compare: CompareBy = None,
) -> AssignmentOut:
    """The cluster that what the body holds would be in; nothing is stored.

    The nearest is the one whose 10 nearest members have the highest mean S. There is not one
    if that is below half of what its members have beyond chance. Data subspaces are in the
    cluster of the nearest centroid, or in none if the mean of all is as near.
    `learngene` is what was published for that cluster, or for the whole space where there is none.
    """
    found = clusterings.get(session, space, clustering)
    subject = reader.given_subject(session, space, payload.of_kind(space), origin)
    placed = clusterings.assign(session, space, found, subject, compare)
    learngene = learngenes.newest(session, space, placed.cluster)
    stale = learngene is not None and learngenes.is_stale(session, space, learngene)
    return AssignmentOut.of(space, placed, learngene, stale=stale)


@router.put(
    "/clustering-policy",
    operation_id="put_clustering_policy",
    summary="Set when a space is clustered again",
    responses=problems(*SPACE_PROBLEMS, *BODY_PROBLEMS, InvalidParameter, StorageFull),
)
def put_policy(
    policies: Service[PolicyService],
    space: WritableSpace,
    session: Writing,
    body: Annotated[ClusteringPolicyIn, Body()],
) -> ClusteringPolicyOut:
    """Cluster the space again after so many changes or so long, once it has come to rest.

    Models already in the space count as changes. Setting the same policy again changes nothing.
    """
    policy = policies.put(session, space, body.to_terms())
    return ClusteringPolicyOut.of(space, policy)


@router.get(
    "/clustering-policy",
    operation_id="get_clustering_policy",
    summary="Show when a space is clustered again",
    responses=problems(*SPACE_PROBLEMS, ClusteringNotFound),
)
def show_policy(
    policies: Service[PolicyService], space: KnownSpace, session: Reading
) -> ClusteringPolicyOut:
    """The policy, and the changes since it last had the space clustered."""
    return ClusteringPolicyOut.of(space, policies.get(session, space))


@router.delete(
    "/clustering-policy",
    operation_id="delete_clustering_policy",
    summary="Stop clustering a space again by itself",
    responses=problems(*SPACE_PROBLEMS, ClusteringNotFound, StorageFull),
    status_code=204,
)
def delete_policy(policies: Service[PolicyService], space: WritableSpace, session: Writing) -> None:
    """Stop renewing clusterings; the space is then clustered by request alone."""
    policies.delete(session, space)


def _whole(
    clusterings: ClusteringService,
    space: SpaceRecord,
    session: Reader,
    found: ClusteringRecord,
    memory: Reservation,
) -> Response:
    """The answer with a clustering and its clusters, in memory for that."""
    session.release()  # nothing is held while it waits for memory
    memory.take(found.models * _BYTES_OF_A_MODEL)
    held = clusterings.content(session, found)
    session.rollback()
    return json_answer(ClusteringOut.with_content(space, found, held))


router.include_router(_binary)
