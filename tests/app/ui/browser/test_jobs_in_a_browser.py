"""Jobs as pages: listed, followed to their end, cancelled."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.explorer.keyboard import tab_to
from tests.support.explorer.pages import address
from tests.support.http_space import Space, family, ok
from tests.support.servers.browser import Visit
from tests.support.servers.webhook_receiver import receiving

pytestmark = pytest.mark.browser


def new_source(http: httpx.Client, url: str) -> str:
    """The id of a source whose first poll begins at once."""
    body = {"kind": "mlflow", "space": "followed", "url": url, "secret": "long and random"}
    source: str = ok(http.post("/v1/sources", json=body))["id"]
    return source


def test_a_job_is_followed_to_its_end(service: httpx.Client, visit: Visit) -> None:
    """Its stage comes while it runs; its failure comes in words, with what to do, unasked."""
    with receiving() as hub:
        new_source(service, f"{hub.url}/held/200")
        page = visit.open(address(service, "/jobs"))
        row = page.locator("#jobs-table tbody tr").first
        expect(row).to_contain_text("listing models")
        tab_to(page, "poll of a source")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="It runs")).to_be_visible()
        expect(page.locator(".stage")).to_contain_text("listing models")
        hub.released.set()
        expect(page.get_by_role("heading", name="It has failed")).to_be_visible()
    expect(page.locator("#job .error")).to_contain_text("answered no JSON")
    expect(page.locator("#job")).to_contain_text("Look whether the address of the source")
    expect(page.locator("#announcer")).to_have_text("It has failed")
    expect(page.locator("#stages")).to_contain_text("listing models")
    assert not page.get_by_role("button", name="Cancel this job").count()
    page.get_by_role("link", name="Its source").wait_for()


def test_a_job_is_cancelled_after_a_question(service: httpx.Client, visit: Visit) -> None:
    """The button asks first; then the job ends, and the page says so."""
    with receiving() as hub:
        new_source(service, f"{hub.url}/held/200")
        job = service.get("/v1/jobs", params={"kind": "poll"}).json()["items"][0]["id"]
        page = visit.open(address(service, f"/jobs/{job}"))
        expect(page.get_by_role("heading", name="It runs")).to_be_visible()
        tab_to(page, "Cancel this job")
        page.keyboard.press("Enter")
        tab_to(page, "Cancel the job")
        page.keyboard.press("Enter")
        expect(page.locator("#job .verdict")).to_have_text("cancelling")
        hub.released.set()
        expect(page.get_by_role("heading", name="It was cancelled")).to_be_visible()


def test_a_result_is_a_link(service: httpx.Client, visit: Visit) -> None:
    """A finished job of a space leads to what it made; the space has it among its jobs."""
    space = Space(service, 1000)
    for name, support in family(3, 1000, 60, 4).items():
        space.put(name, support)
    job = service.post(space.path("clusterings"), json={}).json()["id"]
    page = visit.open(address(service, f"/jobs/{job}"))
    expect(page.get_by_role("heading", name="It has succeeded")).to_be_visible()
    made = page.get_by_role("link", name="The clustering").get_attribute("href")
    assert f"/spaces/{space.name}/clusterings/{job}" == made
    drawing = service.post(space.path("maps"), json={}).json()["id"]
    page.goto(address(service, f"/jobs/{drawing}"))
    expect(page.get_by_role("heading", name="It has succeeded")).to_be_visible()
    made = page.get_by_role("link", name="The map").get_attribute("href")
    assert f"/spaces/{space.name}/map" == made
    page.goto(address(service, f"/spaces/{space.name}/jobs?state=succeeded"))
    # Workers may judge the new models meanwhile, as a job of its own.
    for each in (job, drawing):
        assert 1 == page.locator(f'#jobs-table a[href="/jobs/{each}"]').count()
    page.goto(address(service, f"/jobs?state=failed&space={space.name}"))
    expect(page.get_by_text("No job is found by this.")).to_be_visible()
