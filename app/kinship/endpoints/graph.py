"""/v1/spaces/{space}/graph: the nearest pairs of models, as node-link JSON or as GraphML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated
from xml.sax.saxutils import escape, quoteattr

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from app.infra.errors import NotAcceptable
from app.infra.http.answers import AnswerMemory, streamed_answer
from app.infra.http.dependencies import Accept
from app.infra.http.fields import (
    ConstantTensors,
    Covered,
    Expected,
    Kappa,
    Log10P,
    Note,
    Similarity,
    StandardError,
)
from app.infra.http.requests.negotiation import choose
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.graph import FoundGraph, GraphService
from app.models.catalog.dependencies import TagFilter
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.models.subspaces.dependencies import CompareBy
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin import wire
from modelkin.types.kinship import Graph

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/graph",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

GRAPHML = "application/graphml+xml"

_BYTES_OF_A_NODE, _BYTES_OF_AN_EDGE = 512, 40
"""Memory of a node and of an edge before they are written, which happens while they are sent."""
_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_NODE_KEYS = {
    "kind": "string",
    "support_size": "long",
    "tags": "string",
    "base_model": "string",
    "base_models": "string",
}
_EDGE_KEYS = {
    "similarity": "double",
    "standard_error": "double",
    "estimate": "string",
    "expected": "double",
    "kappa": "double",
    "covered": "double",
    "log10_p": "double",
    "unrelated": "boolean",
}


class NodeOut(BaseModel):
    id: str = Field(description="the name of a model")
    kind: str = Field(description="what it sent: support, signature or subspace")
    support_size: int = Field(description="K; of a data subspace, its columns")
    tags: list[str] = Field(description="in order of the alphabet")
    base_model: str | None = Field(description="the declared base; null where there are several")
    base_models: list[str] = Field(description="all declared bases")


class EdgeOut(BaseModel):
    source: str = Field(description="the name of one model")
    target: str = Field(description="the name of the other model")
    similarity: Similarity
    estimate: str = Field(description="exact or signature")
    standard_error: StandardError
    expected: Expected
    kappa: Kappa
    covered: Covered
    log10_p: Log10P
    unrelated: bool | None = Field(
        description="as near as chance makes two models: P times all pairs of the graph is .05 or "
        "more; null where kappa is"
    )


class GraphFactsOut(BaseModel):
    k: int | None = Field(
        description="edges to the k nearest of each; null where a threshold was given"
    )
    threshold: float | None = Field(description="the least S of an edge; null where k was given")
    version: int = Field(description="of the space")
    note: Note
    constant_tensors: ConstantTensors = []
    truncated: bool = Field(
        description="the time for the answer was over: models may lack edges, and edges that could "
        "be exact may be estimates"
    )


class GraphOut(BaseModel):
    """Node-link data, as `networkx.node_link_graph` takes it."""

    model_config = ConfigDict(title="Graph")

    directed: bool = Field(description="false: an edge is of both")
    multigraph: bool = Field(description="false: two models have one edge at most")
    graph: GraphFactsOut = Field(description="what the graph was made with")
    nodes: list[NodeOut] = Field(description="the models")
    edges: list[EdgeOut] = Field(description="pairs of near models")


@routes.get(
    "",
    operation_id="get_graph",
    summary="Show the graph of nearest neighbours",
    response_model=GraphOut,
    refuses=(NotAcceptable,),
    responses={
        200: {"content": {GRAPHML: {"schema": {"type": "string"}}}},
    },
    turn="heavy",
)
def graph(
    context: ReadingContext,
    spaces: Service[SpaceService],
    graphs: Service[GraphService],
    space_name: SpaceName,
    memory: AnswerMemory,
    tags: TagFilter,
    k: Annotated[
        int | None,
        Query(ge=1, le=1000, description="edges to the k nearest of each; 10 without a threshold"),
    ] = None,
    threshold: Annotated[
        float | None,
        Query(gt=0, le=1, allow_inf_nan=False, description="or between all with this S or more"),
    ] = None,
    compare: CompareBy = None,
    accept: Accept = None,
) -> Response:
    """All models and who is near whom; JSON by default, GraphML by `Accept`.

    Once the time for an answer is over it has the edges that were found, and `truncated`.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        media_type = choose(accept, (wire.JSON, GRAPHML))
        found = graphs.graph(
            session,
            space,
            k=k,
            threshold=threshold,
            tags=tags,
            compare=compare,
            deadline=context.deadline,
        )
        pieces = _json(found) if media_type == wire.JSON else _graphml(found)
        memory.take(_BYTES_OF_A_NODE * len(found.nodes) + _BYTES_OF_AN_EDGE * found.edge_count)
    return streamed_answer(pieces, media_type, {"Vary": "Accept"})


def _json(graph: FoundGraph) -> Iterator[bytes]:
    """The node-link JSON, piece by piece: one call for all would hold up every other thread."""
    facts = dict(graph.facts.to_node_link())
    del facts["nodes"], facts["edges"]
    yield to_json(facts)[:-1]
    yield b',"nodes":['
    yield from _join(graph.node_pieces())
    yield b'],"edges":['
    yield from _join(graph.edge_pieces())
    yield b"]}"


def _join(parts: Iterable[Graph]) -> Iterator[bytes]:
    for place, part in enumerate(parts):
        linked = part.to_node_link()
        yield b"," * (place > 0) + to_json([*linked["nodes"], *linked["edges"]])[1:-1]


def _graphml(graph: FoundGraph) -> Iterator[bytes]:
    """GraphML, piece by piece."""
    yield from _encode_lines(_head(graph.facts))
    for piece in graph.node_pieces():
        yield from _encode_lines(_node_lines(piece))
    for piece in graph.edge_pieces():
        yield from _encode_lines(_edge_lines(piece))
    yield b"</graph></graphml>\n"


def _encode_lines(lines: Iterator[str]) -> Iterator[bytes]:
    yield "".join(f"{line}\n" for line in lines).encode()


def _head(graph: Graph) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<graphml xmlns="{_NAMESPACE}">'
    for kind, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS)):
        for name, of in keys.items():
            yield f'<key id="{name}" for="{kind}" attr.name="{name}" attr.type="{of}"/>'
    yield '<key id="truncated" for="graph" attr.name="truncated" attr.type="boolean"/>'
    if graph.constant_tensors:
        yield (
            '<key id="constant_tensors" for="graph" attr.name="constant_tensors" '
            'attr.type="string"/>'
        )
    if graph.note is not None:
        yield '<key id="note" for="graph" attr.name="note" attr.type="string"/>'
    yield '<graph edgedefault="undirected">'
    yield _data("truncated", str(graph.truncated).lower())
    if graph.constant_tensors:
        yield _data("constant_tensors", ",".join(graph.constant_tensors))
    if graph.note is not None:
        yield _data("note", graph.note)


def _node_lines(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        data = _data("kind", node.kind) + _data("support_size", node.support_size)
        data += _data("tags", ",".join(node.tags))
        if node.base_model is not None:
            data += _data("base_model", node.base_model)
        if node.base_models:
            data += _data("base_models", ",".join(node.base_models))
        yield f"<node id={quoteattr(node.model)}>{data}</node>"


def _edge_lines(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        values = ((name, getattr(edge, name)) for name in _EDGE_KEYS)
        data = "".join(_data(name, _text(value)) for name, value in values if value is not None)
        yield f"<edge source={quoteattr(edge.a)} target={quoteattr(edge.b)}>{data}</edge>"


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _data(key: str, value: object) -> str:
    return f'<data key="{key}">{escape(str(value))}</data>'
