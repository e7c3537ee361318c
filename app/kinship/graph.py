"""The graph of a space: pairs of near models, for drawing and network analysis.

Edges are the k nearest neighbours of every model, or all pairs from a threshold on. This module
reads the models, opens as many supports as is affordable, and keeps the limits;
:mod:`app.kinship.graph_edges` finds the edges.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import Unavailable
from app.infra.storage.guarded_maps import intact_maps
from app.kinship import repository
from app.kinship.graph_edges import (
    MAX_NEAREST_EDGES,
    EdgeFinder,
    EdgeSet,
    GraphModels,
    subspace_edges,
)
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories.candidates import Candidate
from app.models.catalog.repositories.tensor_counts import decode, dtype_of
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts
from app.models.subspaces.service import check_compare, common_compare
from app.search.constants import Constants, SpaceConstants
from app.search.similarity import partial_note
from modelkin.core.estimators import standard_errors
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import expected_of_pairs, kappas
from modelkin.core.similarity.edges import covered_by_pairs, growth_of_pairs
from modelkin.core.similarity.strangers import is_at_chance, log10_ps, trials
from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import Graph, GraphEdge, GraphNode
from modelkin.types.vocabulary import Compare

__all__ = ["MAX_NODES", "FoundGraph", "GraphService"]

log = logging.getLogger(__name__)

MAX_NODES = 100_000
DEFAULT_K = 10

_MAX_MATRIX_NODES, _MAX_MATRIX_BYTES = 1_000, 8 << 30
"""The most models that are all compared with each other, and the most bytes that this may read."""
_MAX_MAPPED_SUPPORTS, _MIN_MAPPED_BYTES, _MAX_READ_BYTES = 1_000, 1 << 16, 512 << 20
"""Supports open at a time: the most mapped ones, each of which holds a file descriptor. Smaller
supports than the second size are read instead, up to the third number of bytes in all.
"""
_MAX_COUNTS = 1 << 25
"""Beyond this many (model, tensor) counts, edges get no kappa. They take 2 x 4 bytes: 256 MiB."""
_PIECE_SIZE = 1_000
"""Nodes or edges that are made at a time: others wait for the interpreter's lock meanwhile."""


@dataclass(frozen=True, slots=True)
class FoundGraph:
    """A graph whose nodes and edges are made a piece at a time, while they are sent.

    Attributes:
        facts: the graph without its nodes and edges.
        nodes: the nodes, by name.
        edges: the pairs of nodes; None if there are none.
        expected: S by chance of each edge; NaN where it is not known.
        covered: the share of the parameters that both ends of each edge have; NaN for all.
        num_perm: the number h of values of the signatures.
        sizes: how many indices of each node are compared, at least 1; empty where chance is not
            known.
    """

    facts: Graph
    nodes: Sequence[repository.Node] = ()
    edges: EdgeSet | None = None
    expected: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    covered: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    num_perm: int = 0
    sizes: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return self.expected.size

    def node_pieces(self) -> Iterator[Graph]:
        """The graph with some of its nodes, piece by piece."""
        for begin in range(0, len(self.nodes), _PIECE_SIZE):
            some = self.nodes[begin : begin + _PIECE_SIZE]
            yield replace(self.facts, nodes=tuple(_node(node) for node in some))

    def edge_pieces(self) -> Iterator[Graph]:
        """The graph with some of its edges, piece by piece."""
        for begin in range(0, self.edge_count, _PIECE_SIZE):
            some = slice(begin, begin + _PIECE_SIZE)
            yield replace(self.facts, edges=tuple(_some_edges(self, some)))


class GraphService:
    """The use case that returns all neighbourhoods at once."""

    def __init__(self, reader: ModelReader, constants: SpaceConstants) -> None:
        self._reader = reader
        self._constants = constants

    def graph(
        self,
        session: Reader,
        space: SpaceRecord,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Sequence[str] = (),
        compare: Compare | None = None,
        deadline: Deadline = NEVER,
    ) -> FoundGraph:
        """Find the graph of the models that carry all of ``tags``.

        The view of the database ends before the edges are sought.

        Args:
            k: neighbours of each model, 1 to 1,000; 10 if there is no threshold either.
            threshold: the least S of an edge, above 0.
            tags: tags that every node carries.
            compare: the blocks of data subspaces that meet; None for the space's default.
            deadline: the time after which the graph has only the edges found by then.

        Raises:
            InvalidParameter: k and threshold together, one of them out of range, or more nodes or
                edges than a graph takes.
            ClientLeft: the client has gone.
        """
        if k is None and threshold is None:
            k = DEFAULT_K
        _check(k, threshold)
        check_compare(space, compare)
        count = repository.count_nodes(session, space, tags)
        _check_size(space, count, k)
        sizes = layouts.tensor_sizes(session, space)
        if sizes is not None and count * sizes.size > _MAX_COUNTS:
            sizes = None  # counts by tensor of so many models do not fit into memory
        constants = self._constants.of(session, space)
        nodes, values, subspaces = _read_nodes(session, space, tags, counted=sizes is not None)
        session.release()
        edges, expected, covered = None, np.empty(0), np.empty(0)
        compared = np.empty(0)
        supports: Sequence[PackedSupport | None] = ()
        if len(nodes) > 1 and subspaces:
            chosen = common_compare(space, subspaces, compare)
            edges = subspace_edges(subspaces, chosen, k, threshold or 0.0, deadline)
            expected = covered = np.full(len(edges.pairs), np.nan)
        elif len(nodes) > 1:
            with intact_maps():
                models = self._models(space, nodes, values, deadline, constants)
                finder = EdgeFinder(models, deadline)
                edges = finder.nearest(k) if k else finder.beyond(threshold or 0.0)
                expected, compared = _similarity_by_chance(
                    space, sizes, nodes, edges, deadline, models
                )
                supports = models.supports
                covered = covered_by_pairs(models.by_row, edges.pairs.ends)
        deadline.require_client()
        estimated = edges is not None and not edges.exact.all()
        facts = Graph(
            nodes=(),
            edges=(),
            k=k,
            threshold=threshold,
            version=space.version,
            note=partial_note(constants.note(space, estimated=estimated), supports),
            truncated=deadline.passed(),
            constant_tensors=constants.names,
        )
        h = space.signature.num_perm
        return FoundGraph(facts, nodes, edges, expected, covered, h, compared)

    def _models(
        self,
        space: SpaceRecord,
        nodes: Sequence[repository.Node],
        values: bytearray,
        deadline: Deadline,
        constants: Constants,
    ) -> GraphModels:
        dtype = value_dtype(space.signature.scheme)
        joined = np.frombuffer(values, dtype.newbyteorder("<"))
        sizes = [node.support_size for node in nodes if node.blob_key is not None]
        each = min(-(-space.num_parameters // 8), 8 * max(sizes, default=0))
        work = len(sizes) ** 2 // 2 * each
        whole_matrix = len(nodes) <= _MAX_MATRIX_NODES and work <= _MAX_MATRIX_BYTES
        small = each < _MIN_MAPPED_BYTES and len(sizes) * each <= _MAX_READ_BYTES
        supports: list[PackedSupport | None] = [None] * len(nodes)
        if whole_matrix or small or len(sizes) <= _MAX_MAPPED_SUPPORTS:
            self._reader.fetch([_to_candidate(node) for node in nodes], deadline.left())
            for row, node in enumerate(deadline.until(nodes)):
                supports[row] = self._open(space, node)
        return GraphModels(
            names=[node.name for node in nodes],
            values=joined.reshape(len(nodes), -1).astype(dtype, copy=False),
            supports=supports,
            bytes_each=each,
            whole_matrix=whole_matrix,
            constants=constants,
        )

    def _open(self, space: SpaceRecord, node: repository.Node) -> PackedSupport | None:
        if node.blob_key is None:
            return None
        try:
            return self._reader.find_packed(space, _to_candidate(node), mapped=True)
        except Unavailable as error:  # its signature is used instead
            log.error("%s", error)
            return None


def _read_nodes(
    session: Reader, space: SpaceRecord, tags: Sequence[str], *, counted: bool
) -> tuple[list[repository.Node], bytearray, list[Subspace]]:
    """Read the models that carry all tags, with what they are compared by.

    Args:
        counted: whether the nodes have their counts by tensor.

    Returns:
        The nodes; the values of their signatures, one after another; and their data subspaces. A
        space has only one of the last two, and the other is empty.
    """
    nodes, values, subspaces = list[repository.Node](), bytearray(), list[Subspace]()
    for node, its_values in repository.nodes(session, space, tags, counted=counted):
        nodes.append(node)
        if space.kind == "subspaces":
            subspaces.append(Subspace.from_bytes(its_values))
        else:
            values += its_values
    return nodes, values, subspaces


def _to_candidate(node: repository.Node) -> Candidate:
    return Candidate(0, node.name, node.support_size, node.blob_key, 0, node.digest)


def _node(node: repository.Node) -> GraphNode:
    return GraphNode(
        node.name, node.kind, node.support_size, node.tags, node.base_model, node.base_models
    )


def _similarity_by_chance(
    space: SpaceRecord,
    sizes: npt.NDArray[np.uint64] | None,
    nodes: Sequence[repository.Node],
    found: EdgeSet,
    deadline: Deadline,
    models: GraphModels,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return S by chance of each edge; NaN where it is unknown, and after the deadline.

    It is unknown, too, of estimates that cannot leave out constants.

    Args:
        sizes: the sizes of the tensors; None if they do not count.

    Returns:
        That, and how many indices of each node are compared, as :class:`FoundGraph` has both.
    """
    if sizes is None or deadline.passed():
        return np.full(len(found.pairs), np.nan), np.empty(0)
    constants = models.constants
    counts = np.zeros((len(nodes), sizes.size), dtype_of(space))
    for row, node in enumerate(deadline.until(nodes)):
        if node.tensor_counts is not None:
            counts[row] = decode(space, node.tensor_counts)
    counts = constants.without(counts)
    compared = np.maximum(1.0, counts.sum(axis=1, dtype=np.float64))
    expected = expected_of_pairs(
        counts, found.pairs.ends, sizes.astype(np.float64), deadline.passed
    )
    supports = models.by_row
    if any(support.gaps for support in supports.values()):
        expected *= growth_of_pairs(supports, found.pairs.ends, constants.gaps)
    return np.where(found.exact, expected, np.nan) if constants else expected, compared


def _some_edges(graph: FoundGraph, some: slice) -> Iterator[GraphEdge]:
    assert graph.edges is not None  # there are edges
    pairs, nodes, expected = graph.edges.pairs, graph.nodes, graph.expected[some]
    similarity, exact = pairs.similarity[some], graph.edges.exact[some]
    jaccard = similarity / (2.0 - similarity)
    errors = np.where(exact, 0.0, standard_errors(jaccard, graph.num_perm))
    kinds = np.where(exact, "exact", "signature")
    chance = (_or_none(expected), _or_none(kappas(similarity, expected)))
    covered = _or_none(graph.covered[some])
    log10_p, unrelated = _unrelated(graph, pairs.ends[some], similarity, expected, exact)
    columns = (similarity.tolist(), kinds.tolist(), errors.tolist(), *chance, covered)
    rows = zip(pairs.ends[some].tolist(), *columns, log10_p, unrelated, strict=True)
    return (GraphEdge(nodes[a].name, nodes[b].name, *figures) for (a, b), *figures in rows)


def _unrelated(
    graph: FoundGraph,
    ends: npt.NDArray[np.int64],
    similarity: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    exact: npt.NDArray[np.bool_],
) -> tuple[list[float | None], list[bool | None]]:
    """The P of each edge, and whether it is that of unrelated models."""
    if not graph.sizes.size:
        return [None] * len(ends), [None] * len(ends)
    a, b = graph.sizes[ends].T
    evidence = trials(a, b, np.where(exact, np.inf, graph.num_perm))
    found = _or_none(log10_ps(similarity, expected, a, b, evidence))
    pairs = len(graph.nodes) * (len(graph.nodes) - 1) // 2
    return found, [None if each is None else is_at_chance(each, pairs) for each in found]


def _or_none(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


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
    if count > MAX_NODES:
        raise InvalidParameter(
            f"the request selects {count} models of space {space.name!r}, and a graph takes "
            f"{MAX_NODES}: choose some by tag",
            field="tag",
        )
    if k is not None and min(k, count) * count > MAX_NEAREST_EDGES:
        raise InvalidParameter(
            f"{k} neighbours of {count} models are more than {MAX_NEAREST_EDGES} edges: ask for k "
            f"of {MAX_NEAREST_EDGES // count} or fewer, or choose models by tag",
            field="k",
        )
