"""/v1/spaces/{space}/clusterings: groups of kin, made by jobs; and the policy that renews them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from app.infra.db.database import Reader
from app.infra.errors import (
    ClusteringNotFound,
    ModelNotFound,
    QueueFull,
    RateLimited,
    WrongKind,
)
from app.infra.http.answers import Answer, AnswerMemory, PageLimit, json_answer, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.requests.memory_budget import Reservation
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.jobs.endpoints import job_answer
from app.jobs.schemas import JobOut
from app.kinship.clustering.policies import PolicyService
from app.kinship.clustering.records import ClusteringRecord
from app.kinship.clustering.schemas.answers import (
    AssignmentOut,
    ClusteringOut,
    ClusteringPage,
    ClusteringPolicyOut,
    ClusteringSummary,
)
from app.kinship.clustering.schemas.requests import ClusteringIn, ClusteringPolicyIn, NewcomerIn
from app.kinship.clustering.service import LATEST, ClusteringService
from app.models.catalog.dependencies import Stated, TagFilter
from app.models.catalog.endpoints.payloads import ANY_BODY, AnyPayload
from app.models.catalog.reader import ModelReader
from app.models.learngenes.service import LearngeneService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.models.subspaces.dependencies import CompareBy
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    ReadingWritingContext,
    WritingContext,
)
from app.tenancy.idempotency.dependencies import Once
from modelkin._validation import check_model_name
from modelkin.errors import MissingExtra

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["clusterings"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_BYTES_OF_A_MODEL = 1000
"""Memory of a name in a clustering, which is in the answer twice, as read and as written."""

ClusteringId = Annotated[
    str, Path(description="the id of the clustering, or `latest`", max_length=100)
]


@routes.post(
    "/clusterings",
    operation_id="create_clustering",
    summary="Start clustering the models of a space",
    refuses=(ModelNotFound, QueueFull, RateLimited, MissingExtra),
    status_code=202,
)
def create(
    context: WritingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    space_name: SpaceName,
    once: Once,
    received: JsonBody[ClusteringIn],
) -> Answer[JobOut] | Response:
    """Cluster the models of the space, as they are when the job begins.

    Every algorithm chooses the number of clusters by itself; parameters may set it. The clustering
    has the id of the job. A repeated request gets the same job, until that has ended or the space
    has changed.
    """
    body = received.read()
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        space = spaces.get(session, context.tenant, space_name)
        job = clusterings.create(session, context.tenant, space, body.to_request(body.algorithm))
        return once.keep(session, job_answer(job))


@routes.get(
    "/clusterings",
    operation_id="list_clusterings",
    summary="List the clusterings of a space",
    response_model=ClusteringPage,
)
def list_clusterings(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    space_name: SpaceName,
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The clusterings, newest first, without the clusters of models. The last 100 are kept.

    `models` among the parameters is left out, too.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = clusterings.list(session, space, limit=limit, cursor=cursor)
        items = (ClusteringSummary.of(space, clustering) for clustering in page.items)
    return page_answer(items, page.next_cursor)


@routes.get(
    "/clusterings/latest",
    operation_id="get_latest_clustering",
    summary="Show the newest clustering of a space",
    refuses=(ClusteringNotFound,),
    response_model=ClusteringOut,
    turn="heavy",
)
def latest(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    space_name: SpaceName,
    tags: TagFilter,
    memory: AnswerMemory,
) -> Response:
    """The newest clustering of all models; with `tag`, of those that carry these tags."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = clusterings.get(session, space, LATEST, tags)
        return _whole(clusterings, space, session, found, memory)


@routes.get(
    "/clusterings/{clustering}",
    operation_id="get_clustering",
    summary="Show a clustering and its clusters",
    refuses=(ClusteringNotFound,),
    response_model=ClusteringOut,
    turn="heavy",
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    clustering: ClusteringId,
    memory: AnswerMemory,
    space_name: SpaceName,
) -> Response:
    """One clustering: the cluster of each model, and the members and exemplar of each cluster."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = clusterings.get(session, space, clustering)
        return _whole(clusterings, space, session, found, memory)


@routes.delete(
    "/clusterings/{clustering}",
    operation_id="delete_clustering",
    summary="Delete a clustering and keep its models",
    refuses=(ClusteringNotFound,),
    status_code=204,
)
def delete(
    context: WritingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    clustering: ClusteringId,
    space_name: SpaceName,
) -> None:
    """Delete a clustering. Models stay as they are, and its ids of clusters are not used again."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        clusterings.delete(session, space, clustering)


@routes.put(
    "/clustering-policy",
    operation_id="put_clustering_policy",
    summary="Set when a space is clustered again",
)
def put_policy(
    context: WritingContext,
    spaces: Service[SpaceService],
    policies: Service[PolicyService],
    space_name: SpaceName,
    received: JsonBody[ClusteringPolicyIn],
) -> ClusteringPolicyOut:
    """Cluster the space again after so many changes or so long, once it has come to rest.

    Models already in the space count as changes. Setting the same policy again changes nothing.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        policy = policies.put(session, space, body.to_terms())
    return ClusteringPolicyOut.of(space, policy)


@routes.get(
    "/clustering-policy",
    operation_id="get_clustering_policy",
    summary="Show when a space is clustered again",
    refuses=(ClusteringNotFound,),
)
def show_policy(
    context: ReadingContext,
    spaces: Service[SpaceService],
    policies: Service[PolicyService],
    space_name: SpaceName,
) -> ClusteringPolicyOut:
    """The policy, and the changes since it last had the space clustered."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        return ClusteringPolicyOut.of(space, policies.get(session, space))


@routes.delete(
    "/clustering-policy",
    operation_id="delete_clustering_policy",
    summary="Stop clustering a space again by itself",
    refuses=(ClusteringNotFound,),
    status_code=204,
)
def delete_policy(
    context: WritingContext,
    spaces: Service[SpaceService],
    policies: Service[PolicyService],
    space_name: SpaceName,
) -> None:
    """Stop renewing clusterings; the space is then clustered by request alone."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name)
        policies.delete(session, space)


@routes.post(
    "/clusterings/{clustering}/assign",
    operation_id="assign_cluster",
    summary="Find the cluster of a newcomer",
    refuses=(ClusteringNotFound,),
    openapi_extra=ANY_BODY,
    turn="reading",
)
def assign(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    reader: Service[ModelReader],
    learngenes: Service[LearngeneService],
    payload: AnyPayload,
    origin: Stated,
    clustering: ClusteringId,
    space_name: SpaceName,
    compare: CompareBy = None,
) -> AssignmentOut:
    """The cluster that what the body holds would be in; nothing is stored.

    The nearest is the one whose 10 nearest members have the highest mean S. There is not one
    if that is below half of what its members have beyond chance. Data subspaces are in the
    cluster of the nearest centroid, or in none if the mean of all is as near.
    `learngene` is what was published for that cluster, or for the whole space where there is none.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        found = clusterings.get(session, space, clustering)
        subject = reader.given_subject(session, space, payload.of_kind(space), origin)
        placed = clusterings.assign(session, space, found, subject, compare)
        learngene = learngenes.newest(session, space, placed.cluster)
        stale = learngene is not None and learngenes.is_stale(session, space, learngene)
    return AssignmentOut.of(space, placed, learngene, stale=stale)


@routes.post(
    "/clusterings/{clustering}/join",
    operation_id="join_cluster",
    summary="Add a newcomer to its cluster",
    refuses=(ClusteringNotFound, ModelNotFound, WrongKind),
)
def join(
    context: ReadingWritingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    reader: Service[ModelReader],
    learngenes: Service[LearngeneService],
    clustering: ClusteringId,
    space_name: SpaceName,
    once: Once,
    received: JsonBody[NewcomerIn],
) -> Answer[AssignmentOut] | Response:
    """Assign a stored data subspace to the cluster of the nearest centroid, and count it there.

    Later newcomers are compared with it as well, so their clusters depend on the order of arrival.
    A model that is nearest to no cluster joins none. The quality figures stay as they are until
    the next clustering. Supports have no centroids, so spaces of these have no such call.
    """
    body = received.read()
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        space = spaces.get(session, context.tenant, space_name, kind="subspaces")
        subject = reader.stored_subject(session, space, check_model_name(body.model))
        placed = clusterings.join(session, space, clustering, subject)
        learngene = learngenes.newest(session, space, placed.cluster)
        stale = learngene is not None and learngenes.is_stale(session, space, learngene)
        return once.keep(session, Answer(AssignmentOut.of(space, placed, learngene, stale=stale)))


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
    session.release()
    return json_answer(ClusteringOut.with_content(space, found, held))
