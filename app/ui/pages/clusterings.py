"""``/spaces/{space}/clusterings``: all clusterings over time; one of them; and two compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.db.database import Reader
from app.infra.errors import ClusteringNotFound
from app.infra.http.services import Service
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.kinship.clustering.comparison import ClusteringComparison, compare
from app.kinship.clustering.endpoints import ClusteringId
from app.kinship.clustering.policies import PolicyService
from app.kinship.clustering.records import ClusteringContent, ClusteringPolicy, ClusteringRecord
from app.kinship.clustering.request import ALGORITHMS
from app.kinship.clustering.service import JOB_KIND, ClusteringService
from app.models.learngenes.records import LearngeneRecord
from app.models.learngenes.service import LearngeneService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.tenancy.auth.records import Tenant
from app.ui import programs
from app.ui.cluster_charts import FlowChart, cluster_rows, flow_chart, history
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_MAX_LISTED: Final = 101
"""The most clusterings listed, which are all that a space keeps."""
_MAX_JOBS: Final = 20
_MEMBERS: Final = 100
_MAX_FLOWS: Final = 200
_MAX_ROWS: Final = 500
"""Clusters that a page lists."""
_MAX_GROUPS: Final = 12
"""Clusters of the newest clustering that the page of all lists."""


@routes.get("/spaces/{space}/clusterings", turn="heavy")
def clusterings(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    policies: Service[PolicyService],
    jobs: Service[JobService],
    space_name: SpaceName,
    request: Request,
) -> HTMLResponse:
    """The groups of the newest, all clusterings that are kept, and the form that starts one."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        page = clusterings.list(session, space, limit=_MAX_LISTED, cursor=None)
        policy = _policy(policies, session, space)
        groups = cluster_rows(clusterings.content(session, page.items[0])) if page.items else []
        return render(
            request,
            "clusterings.html",
            space=space,
            items=page.items,
            groups=groups,
            alone=sum(group.size == 1 for group in groups),
            most_groups=_MAX_GROUPS,
            panels=history(page.items),
            jobs=_unfinished_jobs(jobs, session, context.tenant, space),
            policy=policy,
            policy_parameters=_parameters_text(policy),
            algorithms=ALGORITHMS,
            missing=clusterings.missing_packages(),
            programs=programs.of_clusterings(request, space),
        )


@routes.get(
    "/spaces/{space}/clusterings/{clustering}",
    turn="heavy",
)
def clustering(
    context: ReadingContext,
    spaces: Service[SpaceService],
    clusterings: Service[ClusteringService],
    learngenes: Service[LearngeneService],
    space_name: SpaceName,
    request: Request,
    clustering: ClusteringId,
    than: Annotated[str, Query(max_length=100)] = "",
    cluster: int | None = None,
    start: Annotated[int, Query(ge=0, le=10**6)] = 0,
) -> HTMLResponse:
    """One clustering: its clusters, the members of one cluster, and changes since another one."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        record = clusterings.get(session, space, clustering)
        content = clusterings.content(session, record)
        page = clusterings.list(session, space, limit=_MAX_LISTED, cursor=None)
        return render(
            request,
            "clustering.html",
            space=space,
            record=record,
            rows=cluster_rows(content),
            max_rows=_MAX_ROWS,
            members=None if cluster is None else _members(content, cluster, start),
            learngene=_learngene(learngenes, session, space, record, cluster),
            others=[other for other in page.items if other.id != record.id],
            difference=_difference(clusterings, session, space, content, than) if than else None,
        )


@dataclass(frozen=True, slots=True)
class Members:
    """Some models of a cluster.

    Attributes:
        cluster: the id of the cluster; -1 for models in no cluster.
        count: the number of its models; ``names`` are the names from ``start`` on.
        following: the start of the next page; None on the last page.
    """

    cluster: int
    count: int
    start: int
    names: list[str]
    following: int | None


def _members(content: ClusteringContent, cluster: int, start: int) -> Members:
    pairs = zip(content.models, content.labels, strict=True)
    names = [name for name, label in pairs if label == cluster]
    end = start + _MEMBERS
    following = end if end < len(names) else None
    return Members(cluster, len(names), start, names[start:end], following)


def _learngene(
    learngenes: LearngeneService,
    session: Reader,
    space: SpaceRecord,
    record: ClusteringRecord,
    cluster: int | None,
) -> LearngeneRecord | None:
    """The newest learngene of a cluster, if it is of the scope in which that has this id."""
    if cluster is None or cluster < 0:
        return None
    found = learngenes.newest(session, space, cluster)
    return found if found is not None and found.scope == record.scope else None


@dataclass(frozen=True, slots=True)
class Difference:
    """A clustering beside an older one."""

    than: ClusteringRecord
    found: ClusteringComparison
    chart: FlowChart | None
    max_flows: int = _MAX_FLOWS


def _difference(
    clusterings: ClusteringService,
    session: Reader,
    space: SpaceRecord,
    content: ClusteringContent,
    than: str,
) -> Difference:
    other = clusterings.get(session, space, than)
    found = compare(content, clusterings.content(session, other))
    return Difference(other, found, flow_chart(found))


def _unfinished_jobs(
    jobs: JobService, session: Reader, tenant: Tenant, space: SpaceRecord
) -> list[JobRecord]:
    """The clusterings of the space that are under way, or wait."""
    return [
        job
        for state in ("running", "queued")
        for job in jobs.list(
            session, tenant, limit=_MAX_JOBS, state=state, kind=JOB_KIND, space=space.name
        ).items
    ]


def _parameters_text(policy: ClusteringPolicy | None) -> str:
    """The parameters of a policy's clusterings as JSON, for people."""
    given = {} if policy is None else policy.request
    return json.dumps({key: value for key, value in given.items() if key != "algorithm"}, indent=1)


def _policy(
    policies: PolicyService, session: Reader, space: SpaceRecord
) -> ClusteringPolicy | None:
    try:
        return policies.get(session, space)
    except ClusteringNotFound:
        return None
