"""The explorer below a path of a proxy that cuts the path off: links, forms and scripts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Route, expect
from safetensors.numpy import save_file

from modelkin import Client, Support
from tests.app.server.test_path_prefix import PREFIX, Proxy
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.servers.browser import Visit, visiting
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.browser

M = 1000


class Through(Proxy):
    """Cuts the path off; a browser that leaves a page leaves its answers unread."""

    cuts = True

    def answer(self) -> None:
        """Pass one request on, and its answer back if it is still wanted."""
        with contextlib.suppress(ConnectionError):
            super().answer()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that knows its path, and asks for keys."""
    folder = tmp_path_factory.mktemp("below")
    running = Server(folder, "--auth=required", f"--root-path={PREFIX}").start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def url(service: Server) -> Iterator[str]:
    """Its address behind the proxy."""
    handler = type("Handler", (Through,), {"service": service.url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}"
        server.shutdown()


@pytest.fixture(scope="module")
def key(service: Server, url: str) -> str:
    """A key that may do all, and has put three models."""
    key = new_key(service, "--scope=read", "--scope=write", "--scope=admin")
    with Client(url, key) as client:
        client.ensure_space("below", num_parameters=M)
        for at in range(3):
            client.put_support("below", f"org/m{at}", Support.from_indices(range(at, 400), M))
    return key


@pytest.fixture
def below(browser: Browser, url: str, key: str) -> Iterator[Visit]:
    """A visitor who has signed in; whatever a test does, it stays below the path."""
    with visiting(browser) as visit:
        page = visit.open(f"{url}/jobs")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Sign out").wait_for()
        yield visit
        visit.assert_quiet()
        assert not [each for each in visit.requests if not urlsplit(each).path.startswith(PREFIX)]


def test_models_are_found_edited_and_uploaded(below: Visit, url: str, tmp_path: Path) -> None:
    """A suggestion, a form that reloads, and a file lead through the proxy."""
    page = below.page
    page.get_by_role("link", name="Spaces", exact=True).first.click()
    page.get_by_role("link", name="below", exact=True).click()
    page.wait_for_url(f"{url}/spaces/below")  # until its scripts have run, keys are lost
    page.keyboard.press("/")
    page.keyboard.type("m1")
    expect(page.get_by_role("option", name="org/m1")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/spaces/below/models/org/m1")
    page.get_by_text("Edit", exact=True).press("Enter")
    page.get_by_label("Tags").fill("through")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator(".tag").first).to_have_text("through")
    (tmp_path / "sent.mksp").write_bytes(Support.from_indices(range(90), M).to_bytes())
    page.goto(f"{url}/spaces/below/upload")
    page.get_by_label("Drop files here").set_input_files(tmp_path / "sent.mksp")
    page.get_by_role("button", name="Send 1 file").press("Enter")
    page.get_by_role("link", name="sent", exact=True).press("Enter")
    page.wait_for_url(f"{url}/spaces/below/models/sent")


def test_a_checkpoint_is_compared_through_the_proxy(below: Visit, url: str, tmp_path: Path) -> None:
    """What its script asks for leads through it, too."""
    save_file({"weight": np.arange(M, dtype="f4")}, tmp_path / "dropped.safetensors")
    page = below.page
    page.goto(f"{url}/check")
    page.get_by_label("Drop checkpoints here").set_input_files(tmp_path / "dropped.safetensors")
    row = page.locator("#checks > li")
    expect(row).to_contain_text("Compared with what is stored")
    row.get_by_role("button", name="Store").press("Enter")
    expect(row).to_contain_text("Stored as dropped")


def test_what_operators_do_leads_through_the_proxy(below: Visit, url: str) -> None:
    """A source, its hook and its deletion; a key; signing out."""
    page = below.page
    page.get_by_role("link", name="Sources", exact=True).click()
    page.get_by_label("Space of its models").fill("below")
    page.get_by_label("Secret of its webhook").fill("long and random")
    page.get_by_role("button", name="Add the source").press("Enter")
    page.get_by_role("button", name="I have it").press("Enter")
    page.wait_for_url(f"{url}/sources/*")
    hook = page.get_by_label("address of the hook", exact=True).inner_text()
    event = {"event": {"action": "update", "scope": "repo"}, "repo": {"name": "a/b"}}
    headers = {"X-Webhook-Secret": "long and random"}
    assert 202 == httpx.post(hook, json=event, headers=headers, trust_env=False).status_code
    expect(page.locator("#events tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Delete this source").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    page.wait_for_url(f"{url}/sources")
    page.goto(f"{url}/nowhere")
    page.get_by_role("link", name="All spaces").click()
    page.wait_for_url(f"{url}/spaces")
    page.get_by_role("button", name="Sign out").press("Enter")
    page.wait_for_url(f"{url}/sign-in")


def test_a_job_is_followed_through_the_proxy(below: Visit, url: str) -> None:
    """Its page comes to its end, though this proxy holds events back until the stream ends."""
    page = below.page
    job = page.evaluate(
        """async (path) => (await (await fetch(path, {method: "POST", body: "{}",
        headers: {"Content-Type": "application/json"}})).json()).id""",
        f"{PREFIX}/v1/spaces/below/clusterings",
    )
    page.goto(f"{url}/jobs/{job}")
    expect(page.get_by_role("heading", name="It has succeeded")).to_be_visible()
    page.get_by_role("link", name="Space below").click()
    page.wait_for_url(f"{url}/spaces/below")


def test_plots_work_below_the_path(below: Visit, url: str) -> None:
    """A graph grows, a cell leads to its pair, a map is drawn, a clustering is followed."""
    page = below.open(f"{url}/spaces/below/graph?of=org/m0&k=1")
    page.get_by_role("link", name="Expand org/m1").press("Enter")
    expect(page.locator("#graph .expanded")).to_have_count(2)
    page.locator("#node").get_by_role("button", name="Lineage").press("Enter")
    expect(page.locator("#node .verdict")).to_be_visible()
    page.goto(f"{url}/spaces/below/matrix")
    page.locator("#cells").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/spaces/below/pairs?*")
    page.goto(f"{url}/spaces/below/map")
    page.get_by_role("button", name="Draw the map").press("Enter")
    page.locator("#map-page[data-complete]").wait_for()
    page.locator("#map-search").fill("m1")
    page.keyboard.press("Enter")
    page.locator("#map").press("Enter")
    page.wait_for_url(f"{url}/spaces/below/models/org/m1")
    page.goto(f"{url}/spaces/below/clusterings")
    page.get_by_role("button", name="Start").press("Enter")
    page.wait_for_url(f"{url}/spaces/below/clusterings/*")
    expect(page.locator("h1")).to_contain_text("of below")


def test_the_apis_page_works_below_the_path(below: Visit, url: str) -> None:
    """Swagger UI finds the document there, and tries an operation through the proxy.

    Of the document it is shown that operation alone: all of them take seconds to draw.
    """
    below.page.route("**/openapi.json", _with_livez_alone)
    page = below.open(f"{url}/docs")
    operation = page.locator("[id$='livez']")
    operation.wait_for()
    for part in ("button.opblock-summary-control", "button.try-out__btn", "button.execute"):
        operation.locator(part).click()
    operation.locator(".live-responses-table .response-col_status").first.wait_for()
    assert f"{url}/livez" in below.requests


def _with_livez_alone(route: Route) -> None:
    answer = route.fetch()
    document = answer.json()
    paths = {"/livez": document["paths"]["/livez"]}
    route.fulfill(response=answer, json={**document, "paths": paths})


def test_the_key_stays_below_the_path(below: Visit, url: str) -> None:
    """What else the proxy has on this host gets no cookie, and signing out deletes it."""
    page = below.open(f"{url}/")
    [cookie] = page.context.cookies()
    assert PREFIX == cookie.get("path")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    assert not page.context.cookies()
