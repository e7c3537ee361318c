"""Calls about kin: donors, kinship graphs and lineages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from modelkin._validation import check_model_name, quote_model
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import decode, reader
from modelkin.client._protocol.calls.requests import Query
from modelkin.client._transport.messages import Request, Response
from modelkin.errors import InvalidName
from modelkin.types.kinship import Donors, Graph, GraphEdge, GraphNode
from modelkin.types.lineages import FingerprintLineage, Lineage
from modelkin.types.paging import Page
from modelkin.types.reports.audits import LineageFinding, LineageTotals
from modelkin.types.tensors import SpaceTensors
from modelkin.types.vocabulary import Estimate, ModelKind
from modelkin.wire import JSON

__all__ = [
    "acknowledge",
    "donors",
    "fingerprint_lineage",
    "graph",
    "graphml",
    "lineage",
    "lineage_totals",
    "lineages",
    "tensors",
    "withdraw",
]

_GRAPHML: Final = "application/graphml+xml"
_PAGE_SIZE: Final = ("limit", "1000")
"""Of findings, the most: an audit is read whole, and the service counts all for each page."""


def donors(
    space: str, target: Query, tags: Iterable[str], exclude: Iterable[str], **options: Any
) -> Call[Donors]:
    """Ranks the donors of a target."""
    if isinstance(exclude, str):
        raise InvalidName("exclude is one string; give a list of model names", field="exclude")
    params = [
        *_params(options),
        *requests.tag_params(tags),
        *(
            ("exclude", check_model_name(name, field=f"exclude[{position}]"))
            for position, name in enumerate(exclude)
        ),
    ]
    request = requests.query(f"{requests.space_path(space)}/donors", "target", target, params)
    return Call(request, reader(Donors))


def graph(
    space: str,
    k: int | None,
    threshold: float | None,
    tags: Iterable[str],
    compare: str | None = None,
) -> Call[Graph]:
    """Reads the kinship graph of a space."""
    return Call(_graph_request(space, k, threshold, tags, compare, JSON), _read_graph)


def graphml(
    space: str,
    k: int | None,
    threshold: float | None,
    tags: Iterable[str],
    compare: str | None = None,
) -> Call[str]:
    """Reads the kinship graph of a space as GraphML."""
    request = _graph_request(space, k, threshold, tags, compare, _GRAPHML)
    return Call(request, lambda response: content_of(response, _GRAPHML).decode())


def lineage(space: str, model: str) -> Call[Lineage]:
    """Checks the declared base of a model."""
    path = f"{requests.space_path(space)}/lineage"
    return Call(requests.get(path, _of(model)), reader(Lineage))


def fingerprint_lineage(model: str) -> Call[FingerprintLineage]:
    """Checks the declared bases of a fingerprint."""
    request = requests.get(f"/v1/fingerprints/{quote_model(model)}/lineage")
    return Call(request, reader(FingerprintLineage))


def lineages(
    space: str, verdicts: Iterable[str], base_model: str | None, acknowledged: bool | None
) -> Call[Page[LineageFinding]]:
    """Lists the findings of a space, page by page."""
    wanted = [verdicts] if isinstance(verdicts, str) else verdicts
    params = [_PAGE_SIZE, *(("verdict", str(verdict)) for verdict in wanted)]
    params += [*_base_param(base_model), *_params({"acknowledged": acknowledged})]
    request = requests.get(f"{requests.space_path(space)}/lineages", params)
    return Call(request, reader(Page[LineageFinding]))


def lineage_totals(space: str, base_model: str | None) -> Call[LineageTotals]:
    """Counts the findings of a space."""
    params = [("limit", "1"), *_base_param(base_model)]
    request = requests.get(f"{requests.space_path(space)}/lineages", params)
    return Call(request, lambda response: decode(response, _Totals).totals)


def acknowledge(space: str, model: str, note: str | None) -> Call[LineageFinding]:
    """Acknowledges the finding of a model."""
    body = requests.json_bytes({} if note is None else {"note": note})
    request = requests.write("PUT", _acknowledgement(space), body, JSON, _of(model))
    return Call(request, reader(LineageFinding))


def withdraw(space: str, model: str) -> Call[None]:
    """Has the finding of a model open again."""
    request = requests.write("DELETE", _acknowledgement(space), params=_of(model))
    return Call(request, read_nothing)


def _acknowledgement(space: str) -> str:
    return f"{requests.space_path(space)}/lineage/acknowledgement"


def _of(model: str) -> list[tuple[str, str]]:
    return [("model", check_model_name(model))]


def _base_param(base_model: str | None) -> list[tuple[str, str]]:
    if base_model is None:
        return []
    return [("base_model", check_model_name(base_model, field="base_model"))]


def tensors(space: str) -> Call[SpaceTensors]:
    """Reads the tensors of a space."""
    request = requests.get(f"{requests.space_path(space)}/tensors")
    return Call(request, reader(SpaceTensors))


def _graph_request(
    space: str,
    k: int | None,
    threshold: float | None,
    tags: Iterable[str],
    compare: str | None,
    accept: str,
) -> Request:
    asked = _params({"k": k, "threshold": threshold, "compare": compare})
    params = [*asked, *requests.tag_params(tags)]
    return requests.get(f"{requests.space_path(space)}/graph", params, accept)


def _params(options: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in options.items() if value is not None]


def _text(value: Any) -> str:
    """A value in the form of a query; the label ``True`` is spelled as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Totals(msgspec.Struct):
    """A page of findings, of which only the totals are read."""

    totals: LineageTotals


class _Node(msgspec.Struct):
    id: str
    kind: ModelKind
    support_size: int
    tags: tuple[str, ...]
    base_model: str | None = None
    base_models: tuple[str, ...] = ()


class _Edge(msgspec.Struct):
    source: str
    target: str
    similarity: float
    estimate: Estimate
    standard_error: float
    expected: float | None = None
    kappa: float | None = None
    covered: float | None = None


class _Facts(msgspec.Struct):
    version: int
    k: int | None = None
    threshold: float | None = None
    note: str | None = None
    truncated: bool = False
    constant_tensors: tuple[str, ...] = ()


class _NodeLink(msgspec.Struct):
    """A graph on the wire, in networkx's node-link form."""

    graph: _Facts
    nodes: tuple[_Node, ...]
    edges: tuple[_Edge, ...]


def _read_graph(response: Response) -> Graph:
    body = decode(response, _NodeLink)
    return Graph(
        nodes=tuple(GraphNode(*msgspec.structs.astuple(node)) for node in body.nodes),
        edges=tuple(GraphEdge(*msgspec.structs.astuple(edge)) for edge in body.edges),
        k=body.graph.k,
        threshold=body.graph.threshold,
        version=body.graph.version,
        note=body.graph.note,
        truncated=body.graph.truncated,
        constant_tensors=body.graph.constant_tensors,
    )
