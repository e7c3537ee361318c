"""Answers about kin: donors with their reasons, and graphs."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from modelkin._graphml import graphml
from modelkin._printing import Printed
from modelkin._whole_files import write_whole
from modelkin.errors import MissingExtra
from modelkin.types.paging import table
from modelkin.types.search import Ranking
from modelkin.types.vocabulary import (
    DonorMethod,
    DonorWeights,
    Estimate,
    ModelKind,
)

if TYPE_CHECKING:
    import networkx
    import pandas

__all__ = [
    "Donor",
    "DonorExplanation",
    "Donors",
    "Graph",
    "GraphEdge",
    "GraphNode",
    "SimilarityBaseline",
]


@dataclass(frozen=True, slots=True)
class SimilarityBaseline:
    """The usual similarity of a space to one model.

    Attributes:
        similarity: the mean of S over the other models; in a lineage the median, without declared
            relatives.
        deviation: the standard deviation of S over models; 0 where there is none.
        models: how many these are.
    """

    similarity: float
    deviation: float
    models: int


_NO_BASELINE: Final = SimilarityBaseline(0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class DonorExplanation:
    """The reasons why a model is a donor. A field that the method does not use has no value.

    Attributes:
        sentence: the reason in words.
        shared_indices: how many indices it shares with the target; None where that is an estimate.
        z_score: how many standard deviations its S is above the mean of the space; None where the
            models of the space do not differ.
        rarity: for ``"idf"``, the share of the target that it holds, each index weighed by how rare
            it is in the space.
        rarity_gain: how rare what they share is, against the average index of the target: above 1
            it is rarer.
        explained: for ``"cover"``, the share of the target that it holds and no donor before it.
        cumulative: the share of the target that it and the donors before it hold together.
        shapley: for ``"knn_shapley"``, the donor's Shapley value.
        worth: what it is worth to the target by itself: 1 where its label is the target's, else 0;
            or its metric.
        label: the donor's label, where labels decide.
    """

    sentence: str
    shared_indices: int | None = None
    z_score: float | None = None
    rarity: float | None = None
    rarity_gain: float | None = None
    explained: float | None = None
    cumulative: float | None = None
    shapley: float | None = None
    worth: float | None = None
    label: str | None = None


_NO_EXPLANATION: Final = DonorExplanation("")
"""The reason of a service that gives none."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A model that another may learn from, with its share of the mixture.

    Attributes:
        similarity: S to the target, 0 to 1.
        weight: the donor's share of the mixture; the weights of all donors sum to 1, or to 0 if
            every one is unrelated.
        estimate: as in :class:`modelkin.Neighbor`.
        standard_error: the standard error of ``similarity``; 0 where it is exact.
        why: the reason.
        expected, kappa: S by chance and S beyond it, as in :class:`modelkin.Neighbor`.
        unrelated: whether it is as near as chance makes two models: kappa is below .1, or not
            surely above. Where kappa is unknown, it is what it would be if the space were one
            tensor. It weighs nothing unless asked for.
        covered: the share of the parameters that both have, as in :class:`modelkin.Neighbor`.
        log10_p: the decimal logarithm of the P of so much between unrelated models, which have a
            kappa of .1 at the most; None where kappa is unknown.
    """

    model: str
    similarity: float
    weight: float
    estimate: Estimate
    standard_error: float
    why: DonorExplanation = _NO_EXPLANATION
    expected: float | None = None
    kappa: float | None = None
    unrelated: bool = False
    covered: float | None = None
    log10_p: float | None = None


_DONOR_COLUMNS: Final = (
    *("model", "similarity", "weight", "kappa", "expected", "z_score"),
    *("explained", "cumulative", "shapley", "rarity", "sentence"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Donors(Ranking[Donor]):
    """Ranked donors of a target; their weights sum to 1, or to 0 if all are unrelated.

    Attributes:
        items: the donors; the object itself is a sequence of them too.
        target: the model of the query; None for a support or signature that is not stored.
        method: how they were chosen.
        weights: what the weights are computed from.
        usual: the similarity of the whole space to the target, which z-scores are taken against.
        candidates: how many models were considered.
        left_out: how many more were near enough, and could not be: without a support, or without
            the label or metric of the request.
        degraded: whether the donors were found another way than usual, or a stored support could
            not be read and its signature stood in.
        note: a caveat in words: the space does not state the importance of its supports, or it has
            no donor to learn from; else None.
        truncated: the time for the answer was over before all candidates were compared: others may
            be better donors.
        constant_tensors: the tensors that no training changed, which S and chance leave out.
        no_p: why a donor has no P; None where all have one.
    """

    _row: ClassVar[type[Any]] = Donor
    _first_columns: ClassVar[tuple[str, ...]] = _DONOR_COLUMNS
    items: tuple[Donor, ...]
    target: str | None = None
    method: DonorMethod
    weights: DonorWeights = "similarity"
    usual: SimilarityBaseline = _NO_BASELINE
    candidates: int = 0
    left_out: int = 0
    degraded: bool = False
    note: str | None = None
    truncated: bool = False
    constant_tensors: tuple[str, ...] = ()
    no_p: str | None = None

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with one row a donor; its reasons are columns too.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(map(_flat, self.items), _FlatDonor)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A model in a graph.

    Attributes:
        kind: ``"support"`` or ``"signature"``.
        base_model: the declared base; None where there are several.
        base_models: all declared bases.
    """

    model: str
    kind: ModelKind
    support_size: int
    tags: tuple[str, ...]
    base_model: str | None = None
    base_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Two models that are near each other; ``a`` comes before ``b`` by name.

    Attributes:
        similarity: S, 0 to 1.
        estimate: ``"exact"`` or ``"signature"``.
        standard_error: the standard error of ``similarity``; 0 where it is exact.
        expected, kappa: S by chance and S beyond it, as in :class:`modelkin.Neighbor`.
        covered: the share of the parameters that both have, as in :class:`modelkin.Neighbor`.
        log10_p: the decimal logarithm of the P of so much between unrelated models, which have a
            kappa of .1 at the most; None where kappa is unknown.
        unrelated: whether they are as near as chance makes two models, all pairs of the graph being
            compared; None where kappa is unknown.
    """

    a: str
    b: str
    similarity: float
    estimate: Estimate
    standard_error: float
    expected: float | None = None
    kappa: float | None = None
    covered: float | None = None
    log10_p: float | None = None
    unrelated: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Graph(Printed):
    """The graph of models that are near each other.

    Attributes:
        nodes: the models, by name; also those without an edge.
        edges: pairs, by name, each once.
        k: how many nearest neighbours of each model make edges; None where a threshold does.
        threshold: the least S of an edge; None where k decides.
        version: that of the space when it was read.
        note: a caveat in words: the space does not state the importance of its supports; else None.
        truncated: the time for the answer was over: models may lack edges, and edges that could be
            exact may be estimates.
        constant_tensors: the tensors that no training changed, which S and chance leave out.
    """

    _printed_rows: ClassVar[str | None] = "edges"
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    k: int | None = None
    threshold: float | None = None
    version: int
    note: str | None = None
    truncated: bool = False
    constant_tensors: tuple[str, ...] = ()

    def to_pandas(self) -> pandas.DataFrame:
        """The edges as a ``pandas.DataFrame``.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.edges, GraphEdge)

    def to_networkx(self) -> networkx.Graph:
        """A ``networkx.Graph`` with the fields of nodes and edges as their attributes.

        Raises:
            MissingExtra: networkx is not installed.
        """
        try:
            library = importlib.import_module("networkx")
        except ImportError as error:
            raise MissingExtra("networkx", "networkx") from error
        made: networkx.Graph = library.node_link_graph(self.to_node_link(), edges="edges")
        return made

    def to_graphml(self, path: str | os.PathLike[str] | None = None) -> str:
        """A GraphML document, for Gephi, yEd and others.

        Args:
            path: a file to write the document to as well.
        """
        document = graphml(self.to_node_link())
        if path is not None:
            write_whole(path, document.encode())
        return document

    def to_node_link(self) -> Mapping[str, Any]:
        """Node-link data, as ``networkx.node_link_graph`` takes it."""
        return {
            "directed": False,
            "multigraph": False,
            "graph": {
                "k": self.k,
                "threshold": self.threshold,
                "version": self.version,
                "note": self.note,
                "truncated": self.truncated,
                "constant_tensors": list(self.constant_tensors),
            },
            "nodes": [
                {
                    "id": node.model,
                    "kind": node.kind,
                    "support_size": node.support_size,
                    "tags": list(node.tags),
                    "base_model": node.base_model,
                    "base_models": list(node.base_models),
                }
                for node in self.nodes
            ],
            "edges": [
                {
                    "source": edge.a,
                    "target": edge.b,
                    "similarity": edge.similarity,
                    "estimate": edge.estimate,
                    "standard_error": edge.standard_error,
                    "expected": edge.expected,
                    "kappa": edge.kappa,
                    "covered": edge.covered,
                    "log10_p": edge.log10_p,
                    "unrelated": edge.unrelated,
                }
                for edge in self.edges
            ],
        }


_OWN = [field.name for field in dataclasses.fields(Donor) if field.name != "why"]
_REASONS = [field.name for field in dataclasses.fields(DonorExplanation)]
_FlatDonor = dataclasses.make_dataclass("_FlatDonor", [*_OWN, *_REASONS])


def _flat(donor: Donor) -> Any:
    """A donor and its reasons side by side."""
    own, reasons = (
        [getattr(value, name) for name in names]
        for value, names in ((donor, _OWN), (donor.why, _REASONS))
    )
    return _FlatDonor(*own, *reasons)
