"""The pictures of what the demo has not: a source, a subscription, keys, anatomies.

It writes to the service, which has the models of the demo and may call this machine
(``MODELKIN_EGRESS_ALLOW=127.0.0.1``)::

    python -m docs.screenshots_of_operations http://127.0.0.1:8000
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

from modelkin import Support
from tests.support.explorer.anatomies import put_family
from tests.support.servers.browser import BROWSER
from tests.support.servers.webhook_receiver import receiving

_FOLDER: Final = Path(__file__).parent / "images"
_DESK: Final = (1180, 800)


def main(url: str) -> None:
    """Draw them from the service at ``url``, which may call this machine."""
    with (
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        receiving() as others,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        _jobs(browser, http, others.url)
        _source(browser, http)
        _subscription(browser, http, others.url)
        others.released.set()
        _keys(browser, http)
        _upload(browser, http)
        _anatomies(browser, http)
        browser.close()


def _jobs(browser: Browser, http: httpx.Client, others: str) -> None:
    body = {"kind": "mlflow", "space": "fraud", "url": f"{others}/held/200", "secret": "long"}
    http.post("/v1/sources", json=body).raise_for_status()
    http.post("/v1/spaces/digits-cnn/clusterings", json={"algorithm": "leiden"}).raise_for_status()
    page = _page(browser, http, "/jobs", (1180, 520))
    expect(page.locator("#jobs")).to_contain_text("listing models")
    _draw(page, "explorer-jobs")


def _source(browser: Browser, http: httpx.Client) -> None:
    body = {"kind": "huggingface", "space": "llama-8b", "secret": "long"}
    source = http.post("/v1/sources", json=body | {"filters": {"owners": ["acme"]}}).json()
    for name, secret in (("acme/bert", "long"), ("other/bert", "long"), ("acme/t5", "no")):
        event = {"event": {"action": "update", "scope": "repo.content"}}
        event |= {"repo": {"type": "model", "name": name}}
        http.post(source["hook"], json=event, headers={"X-Webhook-Secret": secret})
    page = _page(browser, http, f"/sources/{source['id']}", (1180, 860))
    expect(page.locator("#source")).to_contain_text("It refused an event")
    _draw(page, "explorer-source")


def _subscription(browser: Browser, http: httpx.Client, others: str) -> None:
    body = {"url": f"{others}/status/500", "events": ["support.stored", "neighbors.changed"]}
    made = http.post("/v1/subscriptions", json=body | {"space": "digits-cnn"}).json()
    path = f"/v1/subscriptions/{made['id']}"
    http.post(f"{path}/ping").raise_for_status()
    page = _page(browser, http, path.removeprefix("/v1"), _DESK)
    expect(page.locator("#deliveries")).to_contain_text("500")
    http.patch(path, json={"url": f"{others}/ok"}).raise_for_status()
    http.post(f"{path}/ping").raise_for_status()
    expect(page.locator("#deliveries .verdict.good").first).to_be_visible()
    _draw(page, "explorer-subscription")


def _anatomies(browser: Browser, http: httpx.Client) -> None:
    put_family(http)
    for name, path in (
        ("explorer-anatomy", "/anatomies/mixer/assembled"),
        ("explorer-family", "/family?of=acme/base"),
    ):
        _draw(_page(browser, http, path, _DESK), name)


def _keys(browser: Browser, http: httpx.Client) -> None:
    for label, scopes, days in (
        ("dashboard", ["read"], 365),
        ("training in the cluster", ["read", "write"], 90),
        ("a laptop that was lost", ["read", "write", "admin"], 30),
    ):
        body = {"label": label, "scopes": scopes, "valid_for_seconds": days * 86400}
        key = http.post("/v1/keys", json=body).json()
    http.delete(f"/v1/keys/{key['prefix']}").raise_for_status()
    _draw(_page(browser, http, "/keys", (1180, 560)), "explorer-keys")


def _upload(browser: Browser, http: httpx.Client) -> None:
    space = {"name": "uploads", "num_parameters": 100_000}
    http.post("/v1/spaces", json=space).raise_for_status()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("birds.mksp", "roads.safetensors", "old.pt")]
        files[0].write_bytes(Support.from_indices(range(0, 60_000, 7), 100_000).to_bytes())
        files[1].write_bytes(bytes(40_000))
        files[2].write_bytes(bytes(9_000))
        page = _page(browser, http, "/spaces/uploads/upload", (1180, 1100))
        page.get_by_label("Drop files here").set_input_files(files)
        page.get_by_label("Owner").fill("acme")
        page.get_by_label("Tags").fill("round-1")
        page.get_by_role("button", name="Send 1 file").click()
        expect(page.get_by_text("Stored as")).to_be_visible()
        page.evaluate("scrollTo(0, 0)")
        _draw(page, "explorer-upload")


def _page(browser: Browser, http: httpx.Client, path: str, size: tuple[int, int]) -> Page:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme="light")
    page.goto(f"{str(http.base_url).rstrip('/')}{path}")
    return page


def _draw(page: Page, name: str) -> None:
    page.screenshot(path=_FOLDER / f"{name}.png")
    print(f"{name}.png")
    page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
