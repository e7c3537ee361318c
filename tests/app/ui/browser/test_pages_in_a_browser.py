"""Pages in a real browser, on real data: nothing stored runs, and they show what is so."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.explorer.accessibility import DESK, PHONE, faults, show
from tests.support.explorer.pages import HOSTILE, HOSTILE_NAMES, Explorer, pages_of
from tests.support.servers.browser import Visit, visiting

pytestmark = pytest.mark.browser

SWAGGERS_OWN = {
    "color-contrast": "white on the grey of the version and on the colours of methods",
    "heading-order": "tags are of the third level, below the first",
    "nested-interactive": "the button of each operation holds a link",
    "region": "its description and its filter stand outside its main part",
}
"""What Swagger UI itself breaks on ``/docs``: its files are used bit for bit."""


FAULTY = """
<!doctype html> <html lang="en"> <title>Faulty</title>
<main><h1>Faulty</h1> <button></button> <p style="color: #ddd">Hardly to be read.</p></main>
"""
"""A page with two faults."""
SHADOWS = """
part => {
  const style = getComputedStyle(part);
  return [part.scrollWidth > part.clientWidth, style.backgroundAttachment, style.backgroundImage];
}
"""
"""Whether more lies sideways, and how the background shows it."""


def test_what_is_wrong_with_a_page_is_found(browser: Browser) -> None:
    """Every rule is tried but those that are ignored."""
    page = browser.new_page()
    page.set_content(FAULTY)
    found = {fault.partition(" ")[0] for fault in faults(page)}
    rest = faults(page, ignored={"color-contrast"})
    page.close()
    assert {"button-name", "color-contrast"} == found
    assert ["button-name (critical): <button></button>"] == rest


@pytest.mark.slow
def test_nothing_that_was_stored_runs(explorer: Explorer, visit: Visit) -> None:
    """Names, tags, attributes, sources, bases and tensors are text: no dialog and no violation."""
    space = explorer.hostile.name
    paths = [f"/spaces/{space}", f"/spaces/{space}/about"]
    paths += [f"/spaces/{space}/models/{quote(name)}" for name in HOSTILE_NAMES]
    paths += [f"/spaces/{space}?q={quote(text)}" for text in HOSTILE]
    paths += [f"/{quote(text, safe='')}" for text in HOSTILE]
    paths += [f"/spaces/{space}/matrix", f"/spaces/{space}/clusterings"]
    paths += [f"/spaces/{space}/clusterings/latest?cluster=0&than=latest"]
    jobs = explorer.http.get("/v1/jobs", params={"space": space}).json()["items"]
    paths += [f"/jobs/{job['id']}" for job in jobs]
    paths += [f"/spaces/{space}/graph", f"/spaces/{space}/graph?of={quote(HOSTILE_NAMES[0])}"]
    paths.append(f"/spaces/{space}/pairs?a={quote(HOSTILE_NAMES[0])}&b={quote(HOSTILE_NAMES[1])}")
    paths.append(f"/spaces/{space}/upload")
    paths += ["/", "/new", "/findings", "/findings?show=doubted", "/findings?show=undeclared"]
    paths += ["/anatomies", "/duplicates", "/check", f"/spaces/{space}/lineages?show=all"]
    paths += ["/keys", "/sources", f"/sources/{explorer.source}"]
    paths += ["/subscriptions", f"/subscriptions/{explorer.subscription}"]
    for name in map(quote, HOSTILE_NAMES[:2]):
        paths += [f"/anatomies/{name}", f"/family?of={name}", f"/relatives?of={name}"]
        paths.append(f"/tensors?a={name}&b={quote(HOSTILE_NAMES[0])}")
    for path in paths:
        page = visit.open(explorer.address(path))
        assert_nothing_runs(page)
    page = visit.open(explorer.model(HOSTILE_NAMES[0], space))
    assert HOSTILE[0] in page.locator("main").inner_text()
    for text in ("javascript", *HOSTILE):
        with page.expect_response("**/completions?*"):
            page.locator("#search").fill(text)
        if text == "javascript":
            page.locator("#search-options [role=option]").first.wait_for()
        assert_nothing_runs(page)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_on_a_map_runs(explorer: Explorer, visit: Visit, text: str) -> None:
    """The script draws names, values and attributes of models as text."""
    path = f"/spaces/{explorer.hostile.name}/map?color=attribute:{quote(text)}"
    page = visit.open(explorer.address(path))
    page.locator("#map-legend li").first.wait_for()
    assert text in page.locator("#map-legend").inner_text()
    page.locator("#map-search").fill("a")
    page.locator("#map-found [role=option]").first.wait_for()
    assert_nothing_runs(page)


def assert_nothing_runs(page: Page) -> None:
    """No text has become an element that could run something."""
    found = page.locator("main iframe, main script, main img, main [onload]")
    assert not found.count(), page.url


def test_pages_are_read_without_scripts(explorer: Explorer, browser: Browser) -> None:
    """Everything is there to be read, and what needs a script is not."""
    with visiting(browser, java_script_enabled=False) as visit:
        page = visit.open(explorer.model("org1/m001"))
        assert page.locator("#neighbors tbody tr").count() > 3
        assert page.locator("#drift circle").count() == 5
        assert page.get_by_text("consistent").first.is_visible()
        assert not page.locator(".scripted:visible").count()
        page.goto(explorer.address("/"))
        page.locator("#search").fill(explorer.models.name)
        page.locator("#search").press("Enter")
        page.get_by_role("link", name=explorer.models.name, exact=True).click()
        assert page.url.endswith(f"/spaces/{explorer.models.name}")
        visit.assert_quiet()


@pytest.mark.smoke
def test_a_bar_is_as_long_as_its_similarity(explorer: Explorer, visit: Visit) -> None:
    """The first bar's share of its track is the similarity beside it."""
    page = visit.open(explorer.model("org0/m000"))
    row = page.locator("#neighbors tbody tr").first
    value, track = (row.locator(f".{part}").bounding_box() for part in ("value", "track"))
    assert value is not None
    assert track is not None
    shown = float(row.locator("td.n").first.inner_text().split()[0])
    assert shown == pytest.approx(value["width"] / track["width"], abs=0.01)


def test_a_pair_is_drawn_tensor_by_tensor(explorer: Explorer, visit: Visit) -> None:
    """Each bar is as high as the S that the API answers for its tensor."""
    page = visit.open(explorer.address(pages_of(explorer)["a pair"]))
    query = {"a": "org0/m000", "b": "org1/m001"}
    overlap = explorer.http.get(explorer.models.path("overlap"), params=query).json()
    heights = page.locator("#depth rect.value").evaluate_all(
        "bars => bars.map(bar => Number(bar.getAttribute('height')) / 240)"
    )
    expected = [tensor["similarity"] for tensor in overlap["tensors"]]
    assert expected == pytest.approx(heights, abs=0.005)


def test_the_apis_page_works_from_its_own_files(explorer: Explorer, visit: Visit) -> None:
    """Swagger UI shows every operation, and tries one, under its policy."""
    page = visit.open(explorer.address("/docs"))
    page.locator(".opblock").first.wait_for(timeout=120_000)  # all are drawn at once: half a minute
    paths = explorer.http.get("/openapi.json").json()["paths"].values()
    assert sum(map(len, paths)) == page.locator(".opblock").count()
    assert not faults(page, ignored=SWAGGERS_OWN)
    show(page, "dark", PHONE)
    page.locator("html.dark-mode").wait_for()
    assert not faults(page, ignored=SWAGGERS_OWN)
    show(page, "dark", DESK)
    operation = page.locator("[id$='livez']")
    for part in ("button.opblock-summary-control", "button.try-out__btn", "button.execute"):
        operation.locator(part).click()
    operation.locator(".live-responses-table .response-col_status").first.wait_for()
    assert explorer.address("/livez") in visit.requests


def test_the_answers_of_the_api_are_quiet(explorer: Explorer, visit: Visit) -> None:
    """A browser that opens one runs nothing and asks nothing of another origin."""
    for path in ("/livez", "/v1/spaces", "/openapi.json"):
        assert visit.open(explorer.address(path)).inner_text("body")


def test_a_rebound_name_reads_nothing(explorer: Explorer, visit: Visit) -> None:
    """A browser takes the page's name for this machine: the service does not."""
    page = visit.open(f"http://rebound.example:{explorer.http.base_url.port}/v1/spaces")
    assert "misdirected" in page.inner_text("body")


def test_an_audit_fits_a_desk_with_its_reasons(explorer: Explorer, visit: Visit) -> None:
    """No column is outside of the page at 1,280 pixels, and no verdict is broken."""
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/lineages?show=all"))
    page.locator("#lineages").wait_for()
    beyond = "e => e.scrollWidth - e.clientWidth"
    assert 0 == page.locator(".scroll", has=page.locator("#lineages")).evaluate(beyond)
    heights = "all => Math.max(...all.map(e => e.getClientRects().length * e.offsetHeight))"
    assert page.locator("#lineages .verdict").evaluate_all(heights) < 40


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/anatomies", "#anatomies"),
        ("/relatives?of=acme/base", "#relatives"),
        ("/spaces/{space}/pairs?a=org0/m000&b=org0/m003", "#depth"),
        ("/spaces/{space}/models/org0/m003", "#neighbors"),
        ("/spaces/{space}/models/org0/m003", "#donors"),
    ],
)
def test_a_shadow_says_that_more_lies_sideways(
    explorer: Explorer, visit: Visit, path: str, table: str
) -> None:
    """One of either side that stays, below a cover that moves along with the content."""
    show(visit.page, "light", PHONE)
    page = visit.open(explorer.address(path.format(space=explorer.models.name)))
    part = page.locator(".scroll", has=page.locator(table))
    scrolls, attachment, image = part.evaluate(SHADOWS)
    assert scrolls
    assert "local, local, scroll, scroll" == attachment
    assert 4 == image.count("linear-gradient")


def test_an_audit_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """Each reason has most of the width, and its verdict beside the name."""
    show(visit.page, "light", PHONE)
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/lineages?show=all"))
    row = page.locator("#lineages tbody tr").first
    expect(row.locator("th .verdict")).to_be_visible()
    expect(row.locator("td .verdict")).to_be_hidden()
    why = page.locator("#lineages td.why p").first.bounding_box()
    assert why is not None
    assert why["width"] > 0.75 * PHONE[0]
    beyond = "e => e.scrollWidth - e.clientWidth"
    assert 0 == page.locator(".scroll", has=page.locator("#lineages")).evaluate(beyond)
    assert 0 <= why["x"] <= PHONE[0] - why["width"]


def test_a_reason_has_the_width_of_the_page(explorer: Explorer, visit: Visit) -> None:
    """It stands below the figures of its finding, and goes with them where the table is sorted."""
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    page = visit.open(explorer.address(f"/spaces/{explorer.models.name}/lineages?show=all"))
    findings = page.locator("#lineages tbody")
    why = findings.first.locator("td.why")
    assert why.evaluate("e => e.offsetWidth / e.closest('table').offsetWidth") > 0.95
    reasons = "all => all.map(e => [e.rows[0].cells[0].dataset.value, e.rows[1].innerText])"
    before = findings.evaluate_all(reasons)
    page.get_by_role("button", name="model").click()
    page.get_by_role("button", name="model").click()
    after = findings.evaluate_all(reasons)
    assert sorted(before, reverse=True) == after
    assert len(after) > 1


def test_what_was_found_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """Beside the names of the models, half of the screen is for the sentence."""
    show(visit.page, "light", PHONE)
    page = visit.open(explorer.address("/anatomies"))
    found = page.locator("#anatomies td.long").first.bounding_box()
    assert found is not None
    assert found["width"] > PHONE[0] / 2
    assert found["x"] + found["width"] < PHONE[0]


def test_why_an_event_was_ignored_is_read_on_a_phone(explorer: Explorer, visit: Visit) -> None:
    """The model stands below the event, and the outcome with its reason has the room."""
    show(visit.page, "light", PHONE)
    page = visit.open(explorer.address(f"/sources/{explorer.source}"))
    row = page.locator("#events tbody tr").first
    assert row.locator("td.long").evaluate("e => e.offsetWidth") > 0.4 * PHONE[0]
    expect(row.locator("td").first).to_be_hidden()


@pytest.mark.parametrize("width", [720, 1000, 1180, 1280])
def test_the_header_fits_every_width(explorer: Explorer, visit: Visit, width: int) -> None:
    """The box of the search is never a stub, and no link of the header is on two lines."""
    visit.page.set_viewport_size({"width": width, "height": 800})
    visit.open(explorer.address("/spaces"))
    box = visit.page.locator("#search").bounding_box()
    assert box is not None
    assert box["width"] >= 200
    heights = visit.page.locator("nav[aria-label=Explorer] a").evaluate_all(
        "links => links.map(each => each.offsetHeight)"
    )
    assert 1 == len(set(heights))
