"""``/spaces/{space}/graph?of=..``: a model with its nearest, from which one goes on to theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic_core import to_json

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.infra.http.turns import heavy_if
from app.kinship.clustering.service import ClusteringService
from app.kinship.findings.service import FindingService
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.search.service import SearchService
from app.search.standing import with_standing
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_model_name
from modelkin.types.kinship import Graph, GraphEdge, GraphNode

__all__ = ["data", "routes"]

routes = PageRoutes()
data = Routes(include_in_schema=False)
"""The data that the page's script requests, as JSON."""

_MAX_EXPANDED: Final = 30
_MAX_LIGHT: Final = 4
"""Expanded models beyond which the searches of one page take as long as a matrix."""
_MAX_SUGGESTED: Final = 200
_K: Final = 8

Names = Annotated[list[str], Query(max_length=_MAX_EXPANDED)]
RemovedNames = Annotated[list[str], Query(max_length=500)]
Near = Annotated[int, Query(ge=1, le=30)]


@dataclass(frozen=True, slots=True)
class _Around:
    """Finds the neighbours of models of one space, for one request."""

    reader: ModelReader
    search: SearchService
    findings: FindingService
    session: Reader
    space: SpaceRecord
    k: int
    deadline: Deadline

    def graph(self, name: str) -> Graph:
        """Return a model, its nearest ``k`` with the edges to them, and the bases it declares.

        Raises:
            ModelNotFound: there is no such model.
        """
        subject = self.reader.stored_subject(self.session, self.space, name)
        found = self.search.neighbors(
            self.session, self.space, subject, k=self.k, deadline=self.deadline
        )
        found = with_standing(self.session, self.space, subject, found)
        names = [name, *(item.model for item in found.items)]
        declared = self.reader.model(self.session, self.space, name).bases[: self.k]
        names += [base for base in declared if base not in names]
        known = self.reader.find(self.session, self.space, names)
        edges = (
            GraphEdge(
                min(name, item.model),
                max(name, item.model),
                item.similarity,
                item.estimate,
                item.standard_error,
                item.expected,
                item.kappa,
                item.covered,
                item.log10_p,
                None if item.log10_p is None else item.unrelated,
            )
            for item in found.items
            if item.model in known
        )
        return Graph(
            nodes=tuple(_node(known[each]) for each in names if each in known),
            edges=tuple(edges),
            k=self.k,
            version=self.space.version,
            note=found.note,
            truncated=found.truncated,
        )

    def node_link(self, graph: Graph) -> dict[str, Any]:
        """The data of a graph, and the declared bases in it that are contradicted."""
        declaring = [node.model for node in graph.nodes if node.base_models]
        contradicted = self.findings.contradicted(self.session, self.space, declaring)
        return {**graph.to_node_link(), "contradicted": contradicted}


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The model that a graph begins with where none is asked for.

    Attributes:
        cluster_size: how many models are in the cluster that it stands for; None for the model that
            changed last.
        names: the models that a visitor may begin with instead, the first of them.
    """

    model: str
    cluster_size: int | None
    names: list[str]


@routes.get(
    "/spaces/{space}/graph",
    turn=heavy_if(lambda query: len(query.getlist("of")) > _MAX_LIGHT),
)
def graph(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    findings: Service[FindingService],
    clusterings: Service[ClusteringService],
    space_name: SpaceName,
    request: Request,
    of: Names = [],  # noqa: B006 - FastAPI copies it
    without: RemovedNames = [],  # noqa: B006
    k: Near = _K,
) -> HTMLResponse:
    """The models that were expanded, with their nearest; without any, those of the largest cluster
    or of the newest model.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        expanded = [check_model_name(name, field="of") for name in dict.fromkeys(of) if name]
        beginning = None
        if not expanded:
            beginning = _beginning(reader, clusterings, session, space)
            if beginning is None:
                return render(request, "graph_start.html", space=space)
            expanded = [beginning.model]
        around = _Around(reader, search, findings, session, space, k, context.deadline)
        found = [around.graph(name) for name in expanded]
        linked = [around.node_link(each) for each in found]
        removed = [name for name in dict.fromkeys(without) if name not in expanded]
    return render(
        request,
        "graph.html",
        space=space,
        beginning=beginning,
        expanded=expanded,
        removed=removed,
        k=k if k != _K else None,
        edges=_edges(found, set(removed)),
        note=found[0].note,
        data={
            "expanded": expanded,
            "removed": removed,
            "k": k,
            "usual_k": _K,
            "most": _MAX_EXPANDED,
            "around": dict(zip(expanded, linked, strict=True)),
        },
    )


def _beginning(
    reader: ModelReader, clusterings: ClusteringService, session: Reader, space: SpaceRecord
) -> _Beginning | None:
    """The exemplar of the largest cluster, if it is one of several, else the newest model."""
    newest = reader.models(session, space, limit=1, cursor=None, order="newest").items
    if not newest:
        return None
    names = [m.name for m in reader.models(session, space, limit=_MAX_SUGGESTED, cursor=None).items]
    clustering = clusterings.newest(session, space)
    if clustering is not None:
        content = clusterings.content(session, clustering)
        size = Counter(content.labels)[content.clusters[0]] if content.clusters else 0
        if size > 1 and reader.find(session, space, content.exemplars[:1]):
            return _Beginning(content.exemplars[0], size, names)
    return _Beginning(newest[0].name, None, names)


@data.get("/spaces/{space}/graph/around")
def around(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    findings: Service[FindingService],
    space_name: SpaceName,
    of: Annotated[str, Query(max_length=800)],
    k: Near = _K,
) -> Response:
    """One model with its nearest, as node-link data."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        around = _Around(reader, search, findings, session, space, k, context.deadline)
        found = around.node_link(around.graph(check_model_name(of, field="of")))
    return Response(to_json(found), media_type="application/json")


def _node(model: ModelRecord) -> GraphNode:
    return GraphNode(
        model.name, model.kind, model.support_size, model.tags, model.base_model, model.bases
    )


def _edges(graphs: Sequence[Graph], removed: set[str]) -> list[GraphEdge]:
    """The edges of all graphs, each once, most similar first."""
    found = {
        (edge.a, edge.b): edge
        for graph in graphs
        for edge in graph.edges
        if not removed & {edge.a, edge.b}
    }
    return sorted(found.values(), key=lambda edge: (-edge.similarity, edge.a, edge.b))
