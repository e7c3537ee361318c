"""The pages of what clusters have in common, learngenes and merges, in a real browser."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.app.ui.conftest import HOSTILE, Explorer
from tests.support.explorer.accessibility import assert_accessible
from tests.support.http_space import Space, family, ok
from tests.support.servers.browser import Visit, visiting

pytestmark = pytest.mark.browser

M = 10_000
TENSORS = [{"name": f"layers.{i}.weight", "shape": [20, 100]} for i in range(5)]


@dataclass(frozen=True)
class Averages:
    """A space with learngenes of two clusters and of all, and two merges.

    Attributes:
        clustering: that the clusters are of.
        source: the model whose donors are merged.
    """

    space: Space
    clustering: str
    source: str

    @property
    def pages(self) -> dict[str, str]:
        """The paths of the pages, by what they are."""
        here = f"/spaces/{self.space.name}"
        return {
            "learngenes": f"{here}/learngenes",
            "learngenes of no cluster": f"{here}/learngenes?cluster=7",
            "merges": f"{here}/merges",
            "a merge": f"{here}/merges/named",
            "a merge of donors": f"{here}/merges/donors",
            "a cluster": f"{here}/clusterings/latest?cluster=0",
        }


def manifest(number: int, **fields: Any) -> dict[str, Any]:
    """A manifest whose publisher says what a page must not run."""
    return {
        "digest": "sha256:" + hashlib.sha256(bytes([number])).hexdigest(),
        "bytes": 8100 + number,
        "tensors": [{"name": "layers.0.weight", "dtype": "F32", "shape": [20, 100]}],
        "reference": {"kind": "https", "url": f"https://files.example/{number}.safetensors"},
        "metrics": dict.fromkeys(HOSTILE, 0.5),
        "note": " ".join(HOSTILE),
        "rounds": number,
        **fields,
    }


@pytest.fixture(scope="module")
def averages(explorer: Explorer) -> Averages:
    """The space."""
    space = Space(explorer.http, M, layout=TENSORS)
    supports = family(31, M, 300, 6)
    space.put_all(supports)
    names = list(supports)
    wanted = {"algorithm": "agglomerative", "n_clusters": 2}
    job = explorer.http.post(space.path("clusterings"), json=wanted).json()["id"]
    end = time.monotonic() + 60
    while (done := ok(explorer.http.get(f"/v1/jobs/{job}")))["finished_at"] is None:
        assert time.monotonic() < end
        time.sleep(0.1)
    for number, cluster in enumerate((0, 0, 1, "all")):
        path = f"{space.path('clusters')}/{cluster}/learngene"
        ok(explorer.http.put(path, json=manifest(number)))
    for name, body in (("named", {"members": names[:4]}), ("donors", {"donors_of": names[0]})):
        ok(explorer.http.put(f"{space.path('merges')}/{name}", json=body))
    return Averages(space, done["result"]["clustering"], names[0])


def test_nothing_that_was_said_of_averages_runs(
    explorer: Explorer, averages: Averages, visit: Visit
) -> None:
    """Notes, metrics and references are text, at a desk and on a phone; links in it are seen."""
    for what, path in averages.pages.items():
        page = visit.open(explorer.address(path))
        assert not page.locator("main iframe, main script, main img, main [onload]").count(), what
        assert_accessible(page, what)


def test_a_keyboard_goes_from_a_space_to_a_learngene_and_its_cluster(
    explorer: Explorer, averages: Averages, visit: Visit
) -> None:
    """By links alone: the space, its learngenes, one cluster's, the cluster's members, and back."""
    here = explorer.address(f"/spaces/{averages.space.name}")
    page = visit.open(here)
    page.get_by_role("link", name="Learngenes", exact=True).press("Enter")
    page.wait_for_url(f"{here}/learngenes")
    expect(page.locator("#learngenes tbody tr")).to_have_count(4)
    page.get_by_role("link", name="0", exact=True).first.press("Enter")
    page.wait_for_url(f"{here}/learngenes?cluster=0")
    versions = page.locator("#learngenes tbody td:nth-child(2)").all_inner_texts()
    assert ["2", "1"] == versions
    page.get_by_role("link", name="Members of cluster 0").first.press("Enter")
    page.wait_for_url(f"{here}/clusterings/{averages.clustering}?cluster=0#members")
    page.get_by_role("link", name="version 2 of its learngene").press("Enter")
    page.wait_for_url(f"{here}/learngenes?cluster=0")


def test_a_learngene_shows_its_file(
    explorer: Explorer, averages: Averages, browser: Browser
) -> None:
    """Its digest and where its owner has it, as a link that leaves nothing behind; no script."""
    with visiting(browser, java_script_enabled=False) as visit:
        page = visit.open(explorer.address(averages.pages["learngenes"]))
        rows = page.locator("#learngenes tbody tr")
        assert 4 == rows.count()
        link = rows.first.get_by_role("link", name="https://files.example/3.safetensors")
        assert "noopener noreferrer external" == link.get_attribute("rel")
        assert manifest(3)["digest"] in rows.first.inner_text()
        assert HOSTILE[0] in rows.first.inner_text()
        visit.assert_quiet()


def test_a_merge_names_its_parties(explorer: Explorer, averages: Averages, visit: Visit) -> None:
    """Each is a link, and is awaited until it joins; donors lead to the model they are of."""
    page = visit.open(explorer.address(averages.pages["merges"]))
    page.get_by_role("link", name="named", exact=True).press("Enter")
    expect(page.locator("h1")).to_have_text("Merge named")
    merge = ok(explorer.http.get(f"{averages.space.path('merges')}/named"))
    rows = page.locator("#parties tbody tr")
    shown = [row.locator("td, th").all_inner_texts() for row in rows.all()]
    expected = sorted(party["name"] for party in merge["parties"])
    assert expected == sorted(cells[0] for cells in shown)
    assert {("no", "yes")} == {(cells[1], cells[4]) for cells in shown}
    page.goto(explorer.address(averages.pages["a merge of donors"]))
    page.locator(".lead").get_by_role("link", name=averages.source).press("Enter")
    page.wait_for_url(explorer.model(averages.source, averages.space.name))
