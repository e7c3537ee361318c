"""Sources, subscriptions and keys as pages: made, tried out, changed and deleted there."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from modelkin import Client
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.explorer.accessibility import faults
from tests.support.explorer.pages import address
from tests.support.servers.browser import Visit, visiting
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import receiving

pytestmark = pytest.mark.browser


def shown_secret(page: Page) -> str:
    """The secret that the page shows this once; then it is put away."""
    secret = page.get_by_role("dialog").get_by_label("Secret").input_value()
    assert not faults(page)
    page.keyboard.press("Escape")  # a secret is not lost by a slip
    page.get_by_role("button", name="I have it").press("Enter")
    return secret


def confirm(page: Page, act: str) -> None:
    """Say yes to the question of a page."""
    page.get_by_role("dialog").get_by_role("button", name=act).press("Enter")


def test_a_source_is_added_and_shows_what_it_refused(service: httpx.Client, visit: Visit) -> None:
    """Its secret is made and shown once; a forged event shows with its reason and what to do."""
    page = visit.open(address(service, "/sources"))
    page.get_by_label("Space of its models").fill("followed")
    page.get_by_role("button", name="Make one").press("Enter")
    page.get_by_role("button", name="Add the source").press("Enter")
    secret = shown_secret(page)
    assert 40 == len(secret)
    page.wait_for_url("**/sources/*")
    hook = page.get_by_label("address of the hook", exact=True).inner_text()
    assert hook.startswith(address(service, "/v1/hooks/"))
    expect(page.get_by_text("No event has come yet.")).to_be_visible()

    event = {"event": {"action": "update", "scope": "repo.content"}}
    event |= {"repo": {"type": "model", "name": "org/m"}}
    assert 401 == httpx.post(hook, json=event, headers={"X-Webhook-Secret": "no"}).status_code
    expect(page.get_by_role("heading", name="It refused an event")).to_be_visible()
    expect(page.locator("#source .error")).to_contain_text("not that of the source")
    assert 202 == httpx.post(hook, json=event, headers={"X-Webhook-Secret": secret}).status_code
    expect(page.locator("#events tbody tr")).to_contain_text("org/m")
    assert secret not in page.content()


def test_a_source_is_changed_polled_and_deleted(service: httpx.Client, visit: Visit) -> None:
    """What is saved is what the API answers; a poll is a job; a deletion asks first."""
    with receiving() as hub:
        body = {"kind": "mlflow", "space": "registry", "url": hub.url, "secret": "long"}
        made = service.post("/v1/sources", json=body | {"poll_seconds": None}).json()
        page = visit.open(address(service, f"/sources/{made['id']}"))
        page.get_by_text("Change", exact=True).press("Enter")
        page.get_by_text("Which models, and how they are kept").press("Enter")
        page.get_by_label("Names").fill("fraud-*\nloan-*")
        page.get_by_role("button", name="Save").press("Enter")
        expect(page.get_by_text("repos fraud-*, loan-*")).to_be_visible()
        found = service.get(f"/v1/sources/{made['id']}").json()
        assert {"repos": ["fraud-*", "loan-*"]} == found["filters"]
        page.get_by_role("button", name="Poll now").press("Enter")
        page.wait_for_url("**/jobs/*")
        page.get_by_role("link", name="Its source").press("Enter")
        expect(page.get_by_role("heading", name="The last error")).to_be_visible()
    page.get_by_role("button", name="Delete this source").press("Enter")
    confirm(page, "Delete")
    page.wait_for_url("**/sources")
    assert 404 == service.get(f"/v1/sources/{made['id']}").status_code


def test_a_subscription_is_made_pinged_and_replayed(service: httpx.Client, visit: Visit) -> None:
    """The secret is shown once; a ping shows with its answer; a replay sends it again."""
    with receiving() as receiver:
        page = visit.open(address(service, "/subscriptions"))
        page.get_by_label("Address of the receiver").fill(f"{receiver.url}/ok")
        page.get_by_label("neighbors.changed", exact=False).first.check()
        page.get_by_role("button", name="Subscribe").press("Enter")
        assert shown_secret(page).startswith("whsec_")
        page.wait_for_url("**/subscriptions/*")
        subscription = service.get("/v1/subscriptions").json()["items"][0]
        assert {"support.stored", "neighbors.changed"} == set(subscription["events"])

        page.get_by_role("button", name="Send a ping").press("Enter")
        row = page.locator("#deliveries-table tbody tr").first
        expect(row.locator(".verdict")).to_have_text("succeeded")
        with page.expect_navigation():  # what it did shows then
            row.get_by_role("button", name="Replay").press("Enter")
        expect(row.locator(".verdict")).to_have_text("succeeded")
        ids = [each.headers["webhook-id"] for each in receiver.at("/ok")]
        assert [2, 1] == [len(ids), len(set(ids))]

        page.get_by_text("Change", exact=True).press("Enter")
        page.get_by_label("Address of the receiver").fill(f"{receiver.url}/status/500")
        page.get_by_role("button", name="Save").press("Enter")
        expect(page.get_by_role("heading", name="/status/500")).to_be_visible()
        page.get_by_role("button", name="Send a ping").press("Enter")
        expect(row).to_contain_text("500")
        expect(row.locator(".verdict")).to_have_text("pending")
        row.locator("summary").press("Enter")
        expect(row.locator("li").first).to_contain_text("sorry")


def test_a_subscription_is_disabled_and_deleted(service: httpx.Client, visit: Visit) -> None:
    """A disabled one is not pinged and says why; a new secret is shown; a deletion asks first."""
    body = {"url": "http://127.0.0.1:9/", "events": ["support.stored"]}
    made = service.post("/v1/subscriptions", json=body).json()
    page = visit.open(address(service, f"/subscriptions/{made['id']}"))
    page.get_by_role("button", name="Disable").press("Enter")
    expect(page.get_by_text("Nothing is sent: it was disabled here.")).to_be_visible()
    assert not page.get_by_role("button", name="Send a ping").count()
    page.get_by_role("button", name="New secret").press("Enter")
    confirm(page, "Make it")
    assert made["secret"] != shown_secret(page)
    expect(page.get_by_text("signs until")).to_be_visible()
    page.get_by_role("button", name="Delete this subscription").press("Enter")
    confirm(page, "Delete")
    page.wait_for_url("**/subscriptions")
    assert 404 == service.get(f"/v1/subscriptions/{made['id']}").status_code


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("keys"), "--auth=required").start()
    yield running
    assert running.stop() == 0


def sign_in(page: Page, key: str) -> None:
    """Sign in on the page that asks for a key."""
    page.get_by_label("Key").fill(key)
    page.keyboard.press("Enter")


def test_a_key_is_made_and_revoked(browser: Browser, locked: Server) -> None:
    """It is shown once and opens what it says; revoked, it opens nothing and stays listed."""
    with visiting(browser) as visit:
        page = visit.open(f"{locked.url}/keys")
        sign_in(page, new_key(locked, "--scope=read", "--scope=admin"))
        page.get_by_text("Make a key").press("Enter")
        page.get_by_label("What it is for").fill("a reader <b>")
        assert not page.get_by_label("write", exact=False).count()
        page.get_by_role("button", name="Make the key").press("Enter")
        key = shown_secret(page)
        row = page.locator("#keys tbody tr").first
        expect(row).to_contain_text("a reader <b>")
        assert key not in page.content()
        headers = {"Authorization": f"Bearer {key}"}
        assert 200 == httpx.get(f"{locked.url}/v1/spaces", headers=headers).status_code
        row.get_by_role("button", name="Revoke").press("Enter")
        confirm(page, "Revoke")
        expect(row.locator(".verdict")).to_have_text("revoked")
        assert 401 == httpx.get(f"{locked.url}/v1/spaces", headers=headers).status_code
        visit.assert_quiet()


def test_a_key_that_may_not_manage_keys_learns_why(browser: Browser, locked: Server) -> None:
    """The page says which key it is, what it may do, and how to get another."""
    with visiting(browser) as visit:
        page = visit.open(f"{locked.url}/keys")
        sign_in(page, new_key(locked))
        expect(page.get_by_role("heading", name="may not manage keys")).to_be_visible()
        expect(page.get_by_text("scopes read, write")).to_be_visible()
        assert not page.locator("#keys").count()
        visit.assert_quiet()


def test_a_key_that_may_only_read_changes_nothing(browser: Browser, locked: Server) -> None:
    """The pages show what there is, and no form that the service would refuse; those that are about
    one say why it is not there.
    """
    with Client(locked.url, new_key(locked)) as client:
        client.ensure_space("seen", num_parameters=100)
    with visiting(browser) as visit:
        page = visit.open(f"{locked.url}/sources")
        sign_in(page, new_key(locked, "--scope=read"))
        expect(page.get_by_text("No hub is followed yet.")).to_be_visible()
        for path in ("/sources", "/subscriptions", "/jobs", "/check", "/spaces/seen/upload"):
            page.goto(locked.url + path)
            assert not page.locator("main form[data-action]").count(), path
            why = page.get_by_role("heading", name="Your key may not write")
            expect(why).to_have_count(0 if path in ("/jobs", "/check") else 1)
        visit.assert_quiet()


def test_a_service_without_keys_says_so(service: httpx.Client, visit: Visit) -> None:
    """Keys may be made there, and the page says that they open nothing more yet."""
    page = visit.open(address(service, "/keys"))
    expect(page.get_by_role("heading", name="asks for no key")).to_be_visible()
