"""The pages of clusterings as they come, without scripts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.app.ui.conftest import Explorer


def page(explorer: Explorer, path: str, status: int = 200) -> str:
    """The text of a page below the clusterings of the space."""
    answer = explorer.http.get(f"/spaces/{explorer.models.name}/clusterings{path}")
    assert status == answer.status_code
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


def latest(explorer: Explorer) -> Any:
    """The newest clustering, as the API answers it."""
    return explorer.http.get(explorer.models.path("clusterings", "latest")).json()


def rows_of(text: str, table: str) -> list[list[str]]:
    """The texts of the cells of a table's body."""
    body = text.partition(f'<table id="{table}"')[2].partition("<tbody>")[2].partition("</tbody>")
    rows = re.findall(r"<tr>(.*?)</tr>", body[0], re.DOTALL)
    cells = (re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in cells]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f", 404),
        ("/latest?than=nowhere", 404),
        ("/latest?cluster=x", 422),
        ("/latest?start=-1", 422),
    ],
)
def test_a_wrong_address_is_a_page(explorer: Explorer, path: str, status: int) -> None:
    """Clusterings that are not there, and what is no number."""
    assert "All spaces" in page(explorer, path, status)


def test_a_clustering_is_listed_with_its_figures(explorer: Explorer) -> None:
    """The number of models and clusters, whether there is a note, the silhouette, and how the
    similarities were found.
    """
    found = latest(explorer)
    [row] = [row for row in rows_of(page(explorer, ""), "clusterings") if row[0] == "1"]
    quality = found["quality"]["silhouette"]
    expected = ["" if quality is None else f"{quality:.3f}", found["similarity"]]
    assert f"{found['models']} models" == row[3]
    clusters = f"{found['num_clusters']}{' note' if found['note'] else ''}"
    assert [clusters, str(found["noise"])] == row[4:6]
    assert expected == [row[6], row[10]]


def test_the_mean_within_a_cluster_is_of_its_pairs(explorer: Explorer) -> None:
    """Of two different members: S to itself does not count."""
    found = latest(explorer)
    rows = rows_of(page(explorer, "/latest"), "clusters")
    assert len(found["clusters"]) == len(rows)
    for cluster, row in zip(found["clusters"], rows, strict=True):
        members = cluster["members"]
        body = {"models": members}
        answer = explorer.http.post(explorer.models.path("similarity"), json=body)
        values = np.array(answer.json()["similarity"])
        mean = values[~np.eye(len(members), dtype=bool)].mean() if len(members) > 1 else None
        assert [str(cluster["cluster"]), str(cluster["size"]), cluster["exemplar"]] == row[:3]
        assert ("" if mean is None else f"{mean:.3f}") == row[3]


def test_members_are_listed_from_anywhere(explorer: Explorer) -> None:
    """From the third on those are left that follow, and the page says so."""
    cluster = latest(explorer)["clusters"][0]
    shown = page(explorer, f"/latest?cluster={cluster['cluster']}&start=2")
    listed = shown.partition('<ul class="members">')[2].partition("</ul>")[0]
    assert cluster["members"][2:] == re.findall(r">([^<>]+)</a>", listed)
    assert f"3 to {cluster['size']} of {cluster['size']}" in shown
    assert "no such models" in page(explorer, "/latest?cluster=-9")


def test_the_page_opens_with_the_groups_of_the_newest(explorer: Explorer) -> None:
    """The table of its clusters comes before the list, and a chart over time only of several."""
    found = latest(explorer)
    shown = page(explorer, "")
    rows = rows_of(shown, "clusters")
    assert [str(each["size"]) for each in found["clusters"][:12]] == [row[1] for row in rows]
    assert [each["exemplar"] for each in found["clusters"][:12]] == [row[2] for row in rows]
    assert shown.index('id="clusters"') < shown.index('id="clusterings"')
    several = len(rows_of(shown, "clusterings")) > 1
    assert several == ('id="history"' in shown)


def test_the_axis_of_sizes_counts_whole_models(explorer: Explorer) -> None:
    """No cluster has one model and a half."""
    chart = page(explorer, "/latest").partition('id="sizes"')[2].partition("</svg>")[0]
    marks = re.findall(r'text-anchor="end">(.*?)</text>', chart)
    assert marks[0] == "0"
    assert all(mark.isdigit() for mark in marks)
