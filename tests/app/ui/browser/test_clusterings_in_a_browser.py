"""The pages of clusterings: started by keyboard, compared, taken along."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.app.ui.conftest import Explorer, M
from tests.support.http_space import Space, family
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser


@pytest.fixture
def own(explorer: Explorer) -> Space:
    """A space that a test may change."""
    space = Space(explorer.http, M)
    space.put_all(family(5, M, 200, 8))
    return space


def test_a_keyboard_starts_a_clustering(explorer: Explorer, visit: Visit, own: Space) -> None:
    """The form takes an algorithm and its parameter; the result opens; a second one is compared."""
    path = explorer.address(f"/spaces/{own.name}/clusterings")
    page = visit.open(path)
    expect(page.locator("#n_clusters")).to_be_hidden()
    page.get_by_label("Algorithm").first.select_option("agglomerative")
    page.get_by_role("spinbutton", name="Number of clusters").fill("2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/clusterings/*-*")
    expect(page.locator("h1")).to_contain_text("Clustering 1 of")
    expect(page.locator("#clusters tbody tr")).to_have_count(2)
    page.goto(path)
    page.get_by_label("Algorithm").first.select_option("agglomerative")
    page.get_by_role("spinbutton", name="Number of clusters").fill("3")
    page.get_by_role("button", name="Start").press("Enter")
    page.wait_for_url("**/clusterings/*-*")
    page.get_by_role("button", name="Compare").press("Enter")
    page.wait_for_url("**?than=*")
    latest = explorer.http.get(f"/v1/spaces/{own.name}/clusterings/latest").json()
    assert f"{latest['agreement']:.3f}" in page.locator("#difference dd").first.inner_text()
    assert page.locator("#flow .block").count() == 5
    expect(page.locator("#difference")).to_contain_text("of 8 models")


def test_a_refused_clustering_says_why(explorer: Explorer, visit: Visit, own: Space) -> None:
    """More clusters than models are refused beside the form, and nothing is lost."""
    page = visit.open(explorer.address(f"/spaces/{own.name}/clusterings"))
    page.get_by_label("Algorithm").first.select_option("agglomerative")
    page.get_by_role("spinbutton", name="Number of clusters").fill("99")
    page.get_by_role("button", name="Start").press("Enter")
    expect(page.locator("#start .outcome")).to_contain_text("n_clusters is 99")
    assert "99" == page.get_by_role("spinbutton", name="Number of clusters").input_value()


def test_a_policy_is_set_and_ended(explorer: Explorer, visit: Visit, own: Space) -> None:
    """What the page saves is what the API has; the page says when the space is clustered."""
    page = visit.open(explorer.address(f"/spaces/{own.name}/clusterings"))
    page.get_by_text("Cluster it regularly").press("Enter")
    page.get_by_label("After so many changes").fill("1000000")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.get_by_text("after 1,000,000 changes")).to_be_visible()
    policy = explorer.http.get(f"/v1/spaces/{own.name}/clustering-policy").json()
    assert (1_000_000, None) == (policy["after_changes"], policy["every_seconds"])
    page.get_by_text("Change", exact=True).press("Enter")
    page.get_by_role("button", name="Stop").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_text("on request alone")).to_be_visible()
    assert 404 == explorer.http.get(f"/v1/spaces/{own.name}/clustering-policy").status_code


def test_labels_are_taken_along(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """The CSV of all models has the labels that the API answers; the chart is a picture."""
    name = explorer.models.name
    page = visit.open(explorer.address(f"/spaces/{name}/clusterings/latest"))
    with page.expect_download() as got:
        page.get_by_role("button", name="CSV of all models").click()
    got.value.save_as(tmp_path / "labels.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text("utf-8-sig"))))
    latest = explorer.http.get(f"/v1/spaces/{name}/clusterings/latest").json()
    assert latest["labels"] == {row["model"]: int(row["cluster"]) for row in rows}
    page.goto(explorer.address(f"/spaces/{name}/clusterings"))
    with page.expect_download() as got:
        page.locator("[data-png=sizes]").click()
    got.value.save_as(tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
