"""Charts of clusterings: points of the right height, and ribbons as thick as their models."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from app.kinship.clustering.comparison import ClusteringComparison, Flow
from app.kinship.clustering.records import ClusteringRecord
from app.ui.cluster_charts import MAX_SIDE, flow_chart, history


def record(number: int, silhouette: float | None, clusters: int, scope: str = "") -> Any:
    """A clustering."""
    quality = {"silhouette": silhouette, "davies_bouldin": None, "calinski_harabasz": None}
    return ClusteringRecord(
        id=str(number),
        space_id=1,
        number=number,
        scope=scope,
        algorithm="leiden",
        parameters={},
        chosen={},
        version=1,
        similarity="exact",
        models=40,
        clusters=clusters,
        noise=0,
        quality={**quality, "models": 40},
        previous=None,
        agreement=None,
        seconds=1.0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_history_goes_from_left_to_right() -> None:
    """Oldest first; a silhouette is as high as its share of the axis; without one is left out."""
    quality, counts = history([record(3, 0.5, 4), record(2, None, 1), record(1, 1.0, 2)])
    assert [(0.0, 0.0), (960.0, 75.0)] == [(dot.x, dot.y) for dot in quality.dots]
    assert [75.0, 112.5, 0.0] == [dot.y for dot in counts.dots]
    assert ["0", "2", "4"] == [text for _, text in counts.levels]
    assert ("0.0,0.0 960.0,75.0",) == quality.lines


def test_lines_join_clusterings_of_the_same_models() -> None:
    """Those of a tag have a line of their own, and a single one has none."""
    records = [record(n, 0.2, 3, scope="" if n % 2 else "tagged") for n in (4, 3, 2, 1)]
    quality, _ = history([record(5, 0.2, 3, scope="other"), *records])
    assert 2 == len(quality.lines)


def test_a_negative_silhouette_has_room() -> None:
    """The axis begins at -1 then."""
    quality, _ = history([record(1, -0.5, 2)])
    assert ["-1", "0", "1"] == [text for _, text in quality.levels]
    assert 112.5 == quality.dots[0].y


def comparison(*flows: Flow) -> ClusteringComparison:
    """A comparison with these flows."""
    return ClusteringComparison(sum(f.models for f in flows), 0, 0, 0.5, 1, flows)


def test_ribbons_fill_their_blocks() -> None:
    """Each is as thick at both ends as its share of the models; together they fill each block."""
    flows = Flow(0, 7, 6, True), Flow(0, 8, 2, False), Flow(1, 8, 4, True)
    chart = flow_chart(comparison(*flows))
    assert chart is not None
    thick = {side.id: side.height for side in (*chart.old, *chart.new)}
    assert thick[0] == pytest.approx(2 * thick[1])
    assert thick[7] == pytest.approx(thick[8])
    for side, attribute in ((chart.old, "old"), (chart.new, "new")):
        for block in side:
            ribbons = [r for r in chart.ribbons if getattr(r.flow, attribute) == block.id]
            assert block.height == pytest.approx(sum(map(_thickness, ribbons)), abs=0.2)


def _thickness(ribbon: Any) -> float:
    """How far a path is from its upper edge to its lower one, at its right end."""
    points = re.findall(r"[-\d.]+,([-\d.]+)", ribbon.path)
    return float(points[4]) - float(points[3])


def test_too_many_clusters_have_no_chart() -> None:
    """A table says more then; nor is there a chart without a common model."""
    flows = [Flow(0, cluster, 1, False) for cluster in range(MAX_SIDE + 1)]
    assert flow_chart(comparison(*flows)) is None
    assert flow_chart(comparison()) is None
