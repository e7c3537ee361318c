"""Plots: the data of their marks against other libraries, and that each is drawn by both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

import modelkin
from docs.plots import GROUPS, answers, fingerprint, importance, models
from modelkin import plots
from modelkin.errors import InvalidParameter, MissingExtra
from modelkin.plots import arithmetic
from modelkin.plots.chart import Rule
from modelkin.plots.charts import coverage_chart, matrix_chart, stability_chart
from modelkin.types.search import Neighbor, Neighbors

mpl.use("agg")
from matplotlib import pyplot

GIVEN = answers()
GROUP_OF = {name: name.split("/")[0] for name in models()}
ESTIMATES = [importance(0, seed) for seed in range(3)]
DRAWN: dict[str, tuple[Any, ...]] = {
    "neighbors": (GIVEN["neighbors"],),
    "matrix": (GIVEN["matrix"],),
    "map": (GIVEN["map"], GROUP_OF),
    "tensor_overlap": (GIVEN["tensor_overlap"],),
    "coverage": (ESTIMATES[0],),
    "stability": (ESTIMATES,),
    "drift": (GIVEN["drift"],),
    "lineage": (GIVEN["lineage"],),
    "anatomy": (GIVEN["anatomy"],),
}


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """No figure outlives its test."""
    yield
    pyplot.close("all")


@pytest.mark.parametrize("name", plots.__all__)
@pytest.mark.parametrize("dark", [False, True])
def test_every_plot_is_drawn_and_not_shown(
    name: str, dark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a title, draws without a warning, and leaves showing to the caller."""
    monkeypatch.setattr(pyplot, "show", lambda: pytest.fail("it was shown"))
    axes = getattr(plots, name)(*DRAWN[name], dark=dark)
    axes.figure.canvas.draw()
    assert axes.get_title(loc="left")
    assert ("#0d1117" if dark else "#ffffff") == mpl.colors.to_hex(axes.figure.get_facecolor())


@pytest.mark.slow
@pytest.mark.parametrize("name", plots.__all__)
def test_both_libraries_draw_the_same(name: str) -> None:
    """The title and the names of the axes are the same with plotly, and so are bars and points."""
    axes = getattr(plots, name)(*DRAWN[name])
    figure = getattr(plots, name)(*DRAWN[name], backend="plotly")
    assert axes.get_title(loc="left") == figure.layout.title.text
    assert axes.get_xlabel() == (figure.layout.xaxis.title.text or "")
    bars = [trace for trace in figure.data if trace.type == "bar"]
    lengths = [
        patch.get_width() if bars[0].orientation == "h" else patch.get_height()
        for patch in axes.patches
    ]
    values = [x for bar in bars for x in (bar.x if bar.orientation == "h" else bar.y)]
    assert lengths == pytest.approx(values, nan_ok=True)
    assert figure.to_json()


def test_bars_of_neighbors_are_their_similarities() -> None:
    """The first neighbour is at the top, and error bars are standard errors."""
    axes = plots.neighbors(GIVEN["neighbors"])
    assert [each.similarity for each in GIVEN["neighbors"]] == [
        bar.get_width() for bar in axes.patches
    ]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert [each.model for each in GIVEN["neighbors"]] == names
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_a_plot_goes_on_given_axes() -> None:
    """Several plots share one figure."""
    _, (left, right) = pyplot.subplots(1, 2)
    assert left is plots.drift(GIVEN["drift"], axes=left)
    assert right is plots.lineage(GIVEN["lineage"], axes=right)
    assert [1.0, *range(2, 8)] == list(left.lines[0].get_xdata())


@pytest.mark.parametrize("seed", range(5))
def test_trees_are_those_of_scipy(seed: int) -> None:
    """Heights of merges and clusters of every cut, against scipy's average linkage."""
    distances = np.random.default_rng(seed).random((14, 14))
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    order, lines = arithmetic.tree(distances)
    expected = hierarchy.linkage(squareform(distances), "average")
    bars = lines[2::3]
    assert np.allclose(np.sort(expected[:, 2]), np.sort(bars[:, 0, 1]))
    assert sorted(order) == list(range(14))
    for count in (2, 4, 7):  # a cluster of any cut is a run of leaves
        labels = hierarchy.fcluster(expected, count, "maxclust")[order]
        assert len(set(labels.tolist())) == 1 + int((np.diff(labels) != 0).sum())


def test_lines_of_a_tree_meet() -> None:
    """Uprights begin at a leaf or on a bar below, and end on their own bar."""
    _, lines = arithmetic.tree(1 - GIVEN["matrix"].values)
    bars = {round(height, 9) for height in lines[2::3, 0, 1]}
    for (x0, low), (x1, high) in np.concatenate([lines[0::3], lines[1::3]]):
        assert x0 == x1
        assert low <= high
        assert low == 0 or round(low, 9) in bars


def test_groups_are_blocks_of_the_matrix() -> None:
    """Planted groups lie side by side, and cells keep the values of their models."""
    chart = matrix_chart(GIVEN["matrix"])
    heat: Any = chart.marks[0]
    runs = [name.split("/")[0] for name in heat.names]
    assert 3 == 1 + sum(a != b for a, b in pairwise(runs))
    at = [GIVEN["matrix"].models.index(name) for name in heat.names]
    assert np.array_equal(GIVEN["matrix"].values[np.ix_(at, at)], heat.values)


def test_groups_are_near_in_the_map() -> None:
    """Planted groups are nearer within than to each other, and the same each time."""
    axes = plots.map(GIVEN["map"], GROUP_OF)
    groups = [np.asarray(each.get_offsets()) for each in axes.collections[1:]]
    assert 3 == len(groups)
    within = max(np.linalg.norm(one[:, None] - one, axis=2).max() for one in groups)
    between = min(
        np.linalg.norm(one[:, None] - other, axis=2).min() for one, other in combinations(groups, 2)
    )
    assert within < 2 * between
    again = plots.map(GIVEN["map"], GROUP_OF).collections[1].get_offsets()
    assert np.array_equal(groups[0], np.asarray(again))


def test_a_chain_is_laid_out_as_one() -> None:
    """Distances in the picture follow those in the graph."""
    chain = [(n, n + 1, 1.0) for n in range(7)]
    where = arithmetic.positions(8, chain)
    apart = np.linalg.norm(where[:, None] - where, axis=2)
    hops = np.array([[abs(a - b) for a in range(8)] for b in range(8)])
    assert np.corrcoef(apart.ravel(), hops.ravel())[0, 1] > 0.8
    assert np.abs(where).max() <= 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_small_graphs_have_a_layout(count: int) -> None:
    """No model, and one alone, have finite places."""
    where = arithmetic.positions(count, [(0, 1, 0.5)] if count == 2 else [])
    assert (count, 2) == where.shape
    assert np.isfinite(where).all()


def test_a_map_of_too_many_says_what_to_do() -> None:
    """The refusal names the limit, and how to ask for fewer."""
    with pytest.raises(InvalidParameter, match=r"2,000 models at most, this graph 2,001.*tags="):
        arithmetic.positions(2001, [])


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 1.0])
def test_coverage_is_what_selection_reaches(level: float) -> None:
    """The title and its rule have the K of ``select``, exactly, and the curve crosses there."""
    sizes, shares = arithmetic.coverage_curve(ESTIMATES[0])
    k = modelkin.select(ESTIMATES[0], coverage=level, k_max=1.0, kind="fisher").k
    assert sizes[shares < level - 1e-12].max() < k <= sizes[shares >= level - 1e-12].min()
    chart = coverage_chart(ESTIMATES[0], level)
    assert f"the {k:,} largest of {len(ESTIMATES[0]):,} entries hold {level:.0%}" in chart.title
    upright = {
        mark.name: mark.at for mark in chart.marks if isinstance(mark, Rule) and mark.upright
    }
    capped = modelkin.select(ESTIMATES[0], coverage=level, kind="fisher").k
    cap = {f"k_max = {capped:,}": capped} if capped < k else {}
    assert {f"K = {k:,}": k, **cap} == upright


def test_names_of_near_rules_are_below_each_other() -> None:
    """Where k_max is little less than K, neither name of a rule hides the other one."""
    values = np.random.default_rng(1).lognormal(size=1000)
    chart = coverage_chart(values, 0.6)
    names = [mark.name for mark in chart.marks if isinstance(mark, Rule) and mark.upright]
    near = [mark.at for mark in chart.marks if isinstance(mark, Rule) and mark.upright]
    assert 2 == len(names)
    assert near[0] < 1.5 * near[1]
    axes = plots.coverage(values, at=0.6)
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text().strip() in names]
    assert 2 == len(boxes)
    assert not boxes[0].overlaps(boxes[1])
    figure = plots.coverage(values, at=0.6, backend="plotly")
    shifts = {note.text: note.yshift or 0 for note in figure.layout.annotations}
    assert abs(shifts[names[0]] - shifts[names[1]]) >= 15


def test_stability_is_that_of_supports() -> None:
    """Each point is Eq. 1 of supports of that size."""
    sizes, found = arithmetic.stability_curve(ESTIMATES, [10, 500, 2000])
    for k, value in zip(sizes, found, strict=True):
        supports = [modelkin.select_support(each, k=int(k), kind="fisher") for each in ESTIMATES]
        assert value == modelkin.stability(supports)


@pytest.mark.parametrize("level", [0.5, 0.8])
def test_stability_is_marked_where_coverage_is_reached(level: float) -> None:
    """The title has the K that the mean has for a coverage, rho there, and what chance gives."""
    mean = np.mean(ESTIMATES, axis=0)
    k = modelkin.select_support(mean, coverage=level, k_max=1.0, kind="fisher").k
    supports = [modelkin.select_support(each, k=k, kind="fisher") for each in ESTIMATES]
    rho, chance = modelkin.stability(supports), k / len(mean)
    chart = stability_chart(ESTIMATES, [10, 100], level)
    assert f"at K = {k:,}, where C = {level:g}, rho is {rho:.2f} (by chance {chance:.2f})" in (
        chart.title
    )
    rules = [mark.at for mark in chart.marks if isinstance(mark, Rule)]
    assert [0.8, k] == rules


@pytest.mark.parametrize(
    ("given", "ends"), [({}, None), ({"vmin": 0.0, "vmax": 1.0}, (0.0, 1.0)), ({"vmax": 2}, None)]
)
def test_colors_reach_over_the_values(given: dict[str, Any], ends: Any) -> None:
    """From the least to the largest of two models, in both libraries; given ends stand."""
    values = GIVEN["matrix"].values
    others = values[~np.eye(len(values), dtype=bool)]
    expected = ends or (others.min(), given.get("vmax", others.max()))
    drawn = plots.matrix(GIVEN["matrix"], **given).images[0]
    assert expected == pytest.approx(drawn.get_clim())
    heat = plots.matrix(GIVEN["matrix"], backend="plotly", **given).data[0]
    assert expected == pytest.approx((heat.zmin, heat.zmax))


@pytest.mark.parametrize("fill", [0.4, np.nan, 1.0])
def test_colors_of_equal_values_are_finite(fill: float) -> None:
    """Models that are all alike, or none of which has a kappa, are drawn without a warning."""
    values = np.full((3, 3), fill)
    np.fill_diagonal(values, 1.0)
    matrix = replace(GIVEN["matrix"], models=("a", "b", "c"), values=values)
    low, high = plots.matrix(matrix).images[0].get_clim()
    assert low < high
    with pytest.raises(InvalidParameter, match="vmin must be below vmax"):
        plots.matrix(matrix, vmin=1.0, vmax=0.5)


@pytest.mark.parametrize("name", sorted(set(plots.__all__) - {"coverage", "stability"}))
def test_another_answer_is_refused_by_its_type(name: str) -> None:
    """The message names the answer that the plot draws, and the call that has it."""
    with pytest.raises(
        InvalidParameter, match=r"must be the \w+ that (client|modelkin)\.\S+ answers"
    ):
        getattr(plots, name)("org/model")


def test_groups_of_a_map_are_named() -> None:
    """The legend says what its colours are; what cannot be groups is refused."""
    assert "group" == plots.map(GIVEN["map"], GROUP_OF).get_legend().get_title().get_text()
    figure = plots.map(GIVEN["map"], GROUP_OF, backend="plotly")
    assert "group" == figure.layout.legend.title.text
    with pytest.raises(InvalidParameter, match="a Clustering or a mapping of names, not list"):
        plots.map(GIVEN["map"], ["chest"])  # type: ignore[arg-type]


def test_words_stand_on_the_ground_of_the_page() -> None:
    """Names of rules and of points have a ground of their own above bars and edges."""
    for axes in (plots.tensor_overlap(GIVEN["tensor_overlap"]), plots.map(GIVEN["map"])):
        assert axes.texts
        for text in axes.texts:
            ground = text.get_bbox_patch()
            assert ground is not None
            assert "#ffffff" == mpl.colors.to_hex(ground.get_facecolor())


def test_tensors_stand_in_the_order_of_the_network() -> None:
    """A bar each, also where neither model has an index."""
    axes = plots.tensor_overlap(GIVEN["tensor_overlap"])
    tensors = GIVEN["tensor_overlap"].tensors
    assert [t.name for t in tensors] == [each.get_text() for each in axes.get_xticklabels()]
    shown = [bar.get_height() for bar in axes.patches]
    assert [t.similarity for t in tensors if t.similarity is not None] == [
        height for height in shown if not np.isnan(height)
    ]


def test_names_are_no_markup() -> None:
    """A name with dollars and tags is drawn letter by letter."""
    name = r"org/$\frac{1}$<b>x"
    found = Neighbors(
        items=(Neighbor(name, 0.5, 0.3, "exact", 0.0),),
        model=name,
        method="exact",
        candidates=1,
        degraded=False,
    )
    axes = plots.neighbors(found)
    axes.figure.canvas.draw()
    assert name in axes.get_title(loc="left")
    shown = plots.neighbors(found, backend="plotly").layout
    assert "<b>" not in shown.title.text + shown.yaxis.ticktext[0]


def test_cells_of_an_anatomy_are_the_tensors_by_layer_and_kind() -> None:
    """Each is filled by the share of its lines, in the colour of the model they come from."""
    axes = plots.anatomy(GIVEN["anatomy"], name="child")
    assert "Where the tensors of child come from" == axes.get_title(loc="left")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert ["embed", "attention.q"] == [name.rpartition("  ")[0] for name in names[:2]]
    filled = {
        (patch.get_x() + patch.get_width() / 2, round(patch.get_y() - 0.45)): patch
        for patch in axes.patches
        if patch.get_alpha() is None
    }
    of_kind = [filled[layer, 1] for layer in range(11)]
    assert pytest.approx([0.9] * 6) == [-patch.get_height() for patch in of_kind[:6]]
    assert all(0.1 < -patch.get_height() < 0.8 for patch in of_kind[6:8])
    colors = [mpl.colors.to_hex(patch.get_facecolor()) for patch in of_kind]
    assert ["#0072b2"] * 10 + ["#e69f00"] == colors
    assert (11, 1) not in filled
    assert 12 == pytest.approx(filled[5.5, 0].get_width(), abs=0.1)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "unknown, 6 tensors" == legend[-1]


def test_experts_of_a_layer_share_a_cell() -> None:
    """Each has a slice of it, and the mouse names it."""
    draw = np.random.default_rng(0)
    experts = {
        f"layers.{i}.experts.{j}.up": draw.standard_normal((64, 64), np.float32)
        for i in (3, 90)
        for j in range(4)
    }
    whole = fingerprint(experts)
    cut = modelkin.anatomy(whole, {"base": whole})
    axes = plots.anatomy(cut)
    assert 8 * [pytest.approx(0.23)] == [patch.get_width() for patch in axes.patches[:8]]
    assert "layers, in their order" == axes.get_xlabel()  # numbers with wide gaps are counted
    hover = plots.anatomy(cut, backend="plotly").data[0].hovertext
    assert "layers.3.experts.0.up: 100% of base layers.3.experts.0.up" == hover[0]


def test_an_anatomy_that_compares_nothing_is_refused() -> None:
    """In one line."""
    norms = fingerprint({"norm": np.ones(9, np.float32)})
    with pytest.raises(InvalidParameter, match="no tensor of this anatomy can be compared"):
        plots.anatomy(modelkin.anatomy(norms, {"base": norms}))


def test_an_overlap_without_tensors_is_refused() -> None:
    """The message says why there is nothing to draw."""
    with pytest.raises(InvalidParameter, match="without a layout"):
        plots.tensor_overlap(replace(GIVEN["tensor_overlap"], tensors=None))


def test_wrong_backends_are_refused() -> None:
    """The words that are known are named."""
    with pytest.raises(InvalidParameter, match="'matplotlib' or 'plotly', not 'bokeh'"):
        plots.drift(GIVEN["drift"], backend="bokeh")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="axes are matplotlib's"):
        plots.drift(GIVEN["drift"], backend="plotly", axes=pyplot.gca())


@pytest.mark.parametrize(
    ("module", "backend", "extra"),
    [("matplotlib.pyplot", "matplotlib", "plots"), ("plotly.graph_objects", "plotly", "plotly")],
)
def test_a_missing_library_names_its_extra(
    module: str, backend: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'modelkin\[{extra}\]'"):
        plots.drift(GIVEN["drift"], backend=backend)


def test_groups_have_colours_of_their_own() -> None:
    """Each group has a colour; models without one are grey, and last in the legend."""
    groups = {name: group for name, group in GROUP_OF.items() if group != "hand"}
    axes = plots.map(GIVEN["map"], groups)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [*sorted(set(GROUPS) - {"hand"}), "none"] == legend
    colours = {mpl.colors.to_hex(each.get_facecolor()[0]) for each in axes.collections[1:]}
    assert 3 == len(colours)
    assert "#8c8c8c" in colours
    assert nx.number_connected_components(nx.Graph([(e.a, e.b) for e in GIVEN["map"].edges])) <= 3


EVIL = "$\\frac{$<a href='javascript:alert(1)'>\x1b[2J\u202e</a>"


@pytest.mark.parametrize("name", ["neighbors", "matrix", "map"])
def test_names_in_plots_are_texts(name: str) -> None:
    """Names with tags, formulas and marks of direction are drawn as they are written."""
    near = Neighbor(EVIL, 0.5, 0.3, "exact", 0.0, 2)
    graph = GIVEN["map"]
    nodes = tuple(replace(node, model=node.model + EVIL) for node in graph.nodes)
    edges = tuple(replace(edge, a=edge.a + EVIL, b=edge.b + EVIL) for edge in graph.edges)
    groups = {node.model: f"{EVIL}{at % 2}" for at, node in enumerate(nodes)}
    given: dict[str, tuple[Any, ...]] = {
        "neighbors": (
            Neighbors(items=(near,), method="exact", candidates=1, degraded=False, model=EVIL),
        ),
        "matrix": (
            replace(GIVEN["matrix"], models=tuple(m + EVIL for m in GIVEN["matrix"].models)),
        ),
        "map": (replace(graph, nodes=nodes, edges=edges), groups),
    }
    axes = getattr(plots, name)(*given[name])
    axes.figure.canvas.draw()
    assert axes.get_title(loc="left").isprintable()
    shown = getattr(plots, name)(*given[name], backend="plotly").to_json()
    assert "<a href" not in shown
    assert "$" not in shown
    assert "\\u202e" not in shown.replace("\\\\u202e", "")
