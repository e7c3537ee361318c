"""The graph of a space: which models are near which, for whoever draws or analyses networks.

Edges are the k nearest neighbours of every model, or all pairs from a threshold on. ``edges`` finds
them; here the models are read, as many of their supports opened as is wise, and limits are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from app.catalog.reader import ModelReader
from app.catalog.repositories.candidates import Candidate
from app.errors import Unavailable
from app.infra.db.database import Reader
from app.kinship import repository
from app.kinship.graph_edges import MOST_EDGES, Edges, Found, Models
from app.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.schemes import value_dtype
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import Graph, GraphEdge, GraphNode

__all__ = ["MOST_EDGES", "MOST_NODES", "GraphService"]

log = logging.getLogger(__name__)

MOST_NODES = 10_000
DEFAULT_K = 10

_MATRIX_NODES, _MATRIX_WORK = 1_000, 8 << 30
"""So many models are compared with each other, while that reads so many bytes at most."""
_MAPPED, _READ_BELOW, _READ = 1_000, 1 << 16, 512 << 20
"""Supports open at a time: so many that hold a file descriptor; or, where each is small and is read
instead, so many bytes.
"""


class GraphService:
    """The use case that tells all neighbourhoods at once."""

    def __init__(self, library: ModelReader) -> None:
        self._library = library

    def graph(
        self,
        session: Reader,
        space: SpaceRecord,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Sequence[str] = (),
    ) -> Graph:
        """The graph of the models that carry all of ``tags``.

        Args:
            k: neighbours of each model, 1 to 1,000; 10 where there is no threshold either.
            threshold: the least S of an edge, above 0.

        Raises:
            InvalidParameter: k and threshold together, one of them out of range, or more nodes or
                edges than a graph takes.
        """
        if k is None and threshold is None:
            k = DEFAULT_K
        _check(k, threshold)
        _check_size(space, repository.count_nodes(session, space, tags), k)
        nodes = repository.nodes(session, space, tags)
        edges: list[GraphEdge] = []
        if len(nodes) > 1:
            models = self._models(space, nodes)
            found = Edges(models).nearest(k) if k else Edges(models).beyond(threshold or 0.0)
            edges = _edges(models, found)
        return Graph(
            nodes=tuple(_node(node) for node in nodes),
            edges=tuple(edges),
            k=k,
            threshold=threshold,
            version=space.version,
        )

    def _models(self, space: SpaceRecord, nodes: Sequence[repository.Node]) -> Models:
        dtype = value_dtype(space.signature.scheme)
        joined = np.frombuffer(b"".join(node.values for node in nodes), dtype.newbyteorder("<"))
        sizes = [node.support_size for node in nodes if node.blob_key is not None]
        each = min(-(-space.num_parameters // 8), 8 * max(sizes, default=0))
        work = len(sizes) ** 2 // 2 * each
        whole_matrix = len(nodes) <= _MATRIX_NODES and work <= _MATRIX_WORK
        small = each < _READ_BELOW and len(sizes) * each <= _READ
        supports: list[PackedSupport | None] = [None] * len(nodes)
        if whole_matrix or small or len(sizes) <= _MAPPED:
            supports = [self._open(space, node) for node in nodes]
        return Models(
            names=[node.name for node in nodes],
            values=joined.reshape(len(nodes), -1).astype(dtype, copy=False),
            supports=supports,
            bytes_each=each,
            whole_matrix=whole_matrix,
        )

    def _open(self, space: SpaceRecord, node: repository.Node) -> PackedSupport | None:
        if node.blob_key is None:
            return None
        known = Candidate(0, node.name, node.support_size, node.blob_key, 0)
        try:
            return self._library.packed(space, known)
        except Unavailable as error:  # its signature stands in
            log.error("%s", error)
            return None


def _node(node: repository.Node) -> GraphNode:
    return GraphNode(node.name, node.kind, node.support_size, node.tags, node.base_model)


def _edges(models: Models, found: Found) -> list[GraphEdge]:
    num_perm, names = models.values.shape[1], models.names
    similarity = found.pairs.similarity
    jaccard = similarity / (2.0 - similarity)
    spread = np.sqrt(jaccard * (1.0 - jaccard) / num_perm)
    errors = np.where(found.exact, 0.0, 2.0 / (1.0 + jaccard) ** 2 * spread)
    kinds = np.where(found.exact, "exact", "signature")
    columns = (similarity, kinds, errors)
    rows = zip(found.pairs.ends.tolist(), *(column.tolist() for column in columns), strict=True)
    return [GraphEdge(names[a], names[b], *told) for (a, b), *told in rows]


def _check(k: int | None, threshold: float | None) -> None:
    if k is not None and threshold is not None:
        raise InvalidParameter(
            "edges are made by k or by threshold: give one of them", field="threshold"
        )
    if k is not None and not 1 <= k <= 1000:
        raise InvalidParameter(f"k must be 1 to 1000, not {k}", field="k")
    if threshold is not None and not 0 < threshold <= 1:
        raise InvalidParameter(
            f"threshold must be above 0 and at most 1, not {threshold}", field="threshold"
        )


def _check_size(space: SpaceRecord, count: int, k: int | None) -> None:
    if count > MOST_NODES:
        raise InvalidParameter(
            f"{count} models of space {space.name!r} are asked for, and a graph takes "
            f"{MOST_NODES}: choose some by tag",
            field="tag",
        )
    if k is not None and min(k, count) * count > MOST_EDGES:
        raise InvalidParameter(
            f"{k} neighbours of {count} models are more than {MOST_EDGES} edges: ask for k of "
            f"{MOST_EDGES // count} or fewer, or choose models by tag",
            field="k",
        )
