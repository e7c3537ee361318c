"""Plots of answers: ``pip install 'modelkin[plots]'``.

    from modelkin import plots

    found = client.neighbors("wards", "ward-12")
    axes = plots.neighbors(found)
    axes.figure.savefig("neighbors.png")

Each function takes an answer of the client, draws it, and returns matplotlib axes; with
``backend="plotly"`` (``pip install 'modelkin[plotly]'``) a plotly figure. No function shows the
figure: a notebook does, and elsewhere you save it. All functions take these arguments:

- ``axes``: matplotlib axes to draw on; by default those of a new figure;
- ``backend``: ``"matplotlib"`` or ``"plotly"``;
- ``dark``: light marks on dark ground.

Readers with any colour vision distinguish the colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.errors import InvalidParameter
from modelkin.plots import charts, on_matplotlib, on_plotly
from modelkin.plots.anatomies import anatomy_chart
from modelkin.plots.chart import Chart
from modelkin.plots.style import DARK, LIGHT
from modelkin.types.clusterings import Clustering
from modelkin.types.kinship import Graph
from modelkin.types.lineages import Lineage
from modelkin.types.revisions import Revisions
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix

__all__ = [
    "anatomy",
    "coverage",
    "drift",
    "lineage",
    "map",
    "matrix",
    "neighbors",
    "stability",
    "tensor_overlap",
]

if TYPE_CHECKING:
    Backend: TypeAlias = Literal["matplotlib", "plotly"]
else:
    Backend = str

T = TypeVar("T")


def neighbors(
    found: Neighbors, *, axes: Any = None, backend: Backend = "matplotlib", dark: bool = False
) -> Any:
    """Draws neighbours as bars of S with their error bars; rings show the S of chance.

    Args:
        found: an answer of ``client.neighbors``; the first 40 are drawn.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    given = _check(found, Neighbors, "found", "client.neighbors")
    return _draw(charts.neighbors_chart(given), axes, backend, dark)


def matrix(
    values: SimilarityMatrix,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    axes: Any = None,
    backend: Backend = "matplotlib",
    dark: bool = False,
) -> Any:
    """Draws a matrix with the dendrogram of average linkage, near models side by side.

    Args:
        values: an answer of ``client.similarity``.
        vmin: the value of the first colour; by default the least value of two models. Give ``vmin``
            and ``vmax`` to compare two matrices.
        vmax: the value of the last colour; by default the largest value of two models.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    given = _check(values, SimilarityMatrix, "values", "client.similarity")
    return _draw(charts.matrix_chart(given, vmin, vmax), axes, backend, dark)


def map(  # noqa: A001
    graph: Graph,
    groups: Clustering | Mapping[str, Any] | None = None,
    *,
    axes: Any = None,
    backend: Backend = "matplotlib",
    dark: bool = False,
) -> Any:
    """Draws the models of a space in a plane, similar models near each other.

    Args:
        graph: an answer of ``client.spaces.graph``, of up to 2,000 models.
        groups: the groups to colour by: a clustering, or a group for each name, such as a tag.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.

    Raises:
        InvalidParameter: the graph has more models.
    """
    given = _check(graph, Graph, "graph", "client.spaces.graph")
    if isinstance(groups, Clustering):
        return _draw(charts.map_chart(given, groups.labels, "cluster"), axes, backend, dark)
    if groups is not None and not isinstance(groups, Mapping):
        raise InvalidParameter(
            f"groups must be a Clustering or a mapping of names, not {type(groups).__name__}",
            field="groups",
        )
    return _draw(charts.map_chart(given, groups), axes, backend, dark)


def tensor_overlap(
    overlap: Overlap, *, axes: Any = None, backend: Backend = "matplotlib", dark: bool = False
) -> Any:
    """Draws the similarity of two models tensor by tensor, over the depth of the network.

    Layouts of files have tensors by name; then they are drawn in the order that names suggest.

    Args:
        overlap: an answer of ``client.overlap``, in a space with a layout.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.

    Raises:
        InvalidParameter: the space has no layout.
    """
    given = _check(overlap, Overlap, "overlap", "client.overlap")
    return _draw(charts.tensor_chart(given), axes, backend, dark)


def coverage(
    importance: Any,
    *,
    at: float = 0.8,
    axes: Any = None,
    backend: Backend = "matplotlib",
    dark: bool = False,
) -> Any:
    """Draws C(K), the share of an importance that its K largest entries hold.

    Args:
        importance: see ``modelkin.select_support``.
        at: the coverage whose K is marked.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    return _draw(charts.coverage_chart(importance, at), axes, backend, dark)


def stability(
    resamples: Sequence[Any],
    *,
    at: float = 0.8,
    sizes: Sequence[int] | None = None,
    axes: Any = None,
    backend: Backend = "matplotlib",
    dark: bool = False,
) -> Any:
    """Draws rho(K), how much supports of K have in common when the importance is estimated again.

    Args:
        resamples: two or more independent estimates of one importance.
        at: the coverage whose K is marked; the title has rho at this K, and rho by chance.
        sizes: the sizes K to compare at; by default 24, up to half of M.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    return _draw(charts.stability_chart(resamples, sizes, at), axes, backend, dark)


def drift(
    revisions: Revisions, *, axes: Any = None, backend: Backend = "matplotlib", dark: bool = False
) -> Any:
    """Draws the similarity of each revision of a model to the revision before and to the first.

    Args:
        revisions: an answer of ``client.revisions.list``.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    given = _check(revisions, Revisions, "revisions", "client.revisions.list")
    return _draw(charts.drift_chart(given), axes, backend, dark)


def lineage(
    found: Lineage, *, axes: Any = None, backend: Backend = "matplotlib", dark: bool = False
) -> Any:
    """Draws the nearest models of a lineage, the usual S, and the S above which a model stands out.

    Args:
        found: an answer of ``client.lineage``.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    given = _check(found, Lineage, "found", "client.lineage")
    return _draw(charts.lineage_chart(given), axes, backend, dark)


def anatomy(
    found: Anatomy,
    *,
    name: str = "",
    axes: Any = None,
    backend: Backend = "matplotlib",
    dark: bool = False,
) -> Any:
    """Draws the tensors of a checkpoint by layer and kind, coloured by the model they come from.

    A cell is filled as far as its lines are found; grey ones are unknown. Tensors that cannot be
    compared are left out.

    Args:
        found: an answer of ``modelkin.anatomy``.
        name: the name of the checkpoint, for the title.
        axes: see :mod:`modelkin.plots`; ``backend`` and ``dark`` too.
    """
    given = _check(found, Anatomy, "found", "modelkin.anatomy")
    return _draw(anatomy_chart(given, name), axes, backend, dark)


def _check(value: Any, kind: type[T], name: str, source: str) -> T:
    """Return the answer that a plot draws.

    Raises:
        InvalidParameter: the value is something else.
    """
    if not isinstance(value, kind):
        raise InvalidParameter(
            f"{name} must be the {kind.__name__} that {source} answers, not {type(value).__name__}",
            field=name,
        )
    return value


def _draw(chart: Chart, axes: Any, backend: Backend, dark: bool) -> Any:
    theme = DARK if dark else LIGHT
    if backend == "matplotlib":
        return on_matplotlib.draw(chart, theme, axes)
    if backend != "plotly":
        raise InvalidParameter(
            f"backend must be 'matplotlib' or 'plotly', not {backend!r}", field="backend"
        )
    if axes is not None:
        raise InvalidParameter("axes are matplotlib's: leave them out with plotly", field="axes")
    return on_plotly.draw(chart, theme)
