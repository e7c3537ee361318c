"""Measure the explorer with 100,000 models: first paint, search as one types, and the map.

A service runs on a SQLite store; Chromium opens its pages, each time without anything in its cache.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Browser, Page

from benchmarks.explorer_space import SPACE, fill
from benchmarks.report import Findings, Row, Table, duration
from demo.service import choose_port, running
from tests.support.servers.browser import BROWSER, opened_browser

__all__ = ["LIBRARIES", "PAINT_S", "Visits", "run"]

LIBRARIES = ("numpy", "sqlalchemy", "playwright")

MODELS, QUICK_MODELS = 100_000, 300
ROUNDS, QUICK_ROUNDS = 5, 1
PAINT_S, TYPING_S, MAP_S = 1.0, 0.2, 3.0
_PAGES: Final = {
    "models": f"/spaces/{SPACE}",
    "models, found by a tag": f"/spaces/{SPACE}?q=tag:round-7",
    "models, found by a part of a name": f"/spaces/{SPACE}?q=del-0002",
    "models, found by an attribute": f"/spaces/{SPACE}?q=family%3D%22family+3%22",
    "one model": f"/spaces/{SPACE}/models/owner-007/model-000007",
    "map": f"/spaces/{SPACE}/map",
}
_TYPED: Final = ("owner-1", "model-00001", "del-0002", "round-3", "family", "org/base-1")
"""Texts that begin names, tags, attributes and bases, or are inside of names."""
_NOWHERE: Final = "zzzz"
"""A text that no name holds, so all of them are read."""
_TIMEOUT_S: Final = 60.0
_MAP_COLORS: Final = ("cluster", "tag", "attribute:family", "attribute:accuracy")
_FRAMES: Final = 20

_CLOCK: Final = """
const seen = new MutationObserver(() => {
  if (!window.mapReady && document.querySelector("#map-page[data-ready]")) {
    requestAnimationFrame(() => requestAnimationFrame(() => (window.mapReady = performance.now())));
  }
});
seen.observe(document, { subtree: true, childList: true, attributes: true });
"""
"""Notes when the map is drawn, with its colours, and takes what its visitor does."""
_PAINTED: Final = """
() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null
"""
_TYPE: Final = """
([id, text]) => new Promise((done) => {
  const input = document.getElementById(id);
  const list = input.parentElement.querySelector("[role=listbox]");
  const began = performance.now();
  const noted = () => {
    observer.disconnect();
    requestAnimationFrame(() => done(performance.now() - began));
  };
  const observer = new MutationObserver(noted);
  observer.observe(list, { childList: true });
  input.value = text;
  input.dispatchEvent(new Event("input"));
})
"""
_FRAME: Final = """
(frames) => new Promise((done) => {
  const map = document.getElementById("map");
  const times = [];
  const step = (before) => requestAnimationFrame((now) => {
    if (before) times.push(now - before);
    if (times.length === frames) return done(times);
    const at = { clientX: 500, clientY: 500, cancelable: true };
    map.dispatchEvent(new WheelEvent("wheel", { deltaY: -20, ...at }));
    step(now);
  });
  step(0);
})
"""


def run(quick: bool) -> Findings:
    """Fill a store, have its models mapped and clustered, and visit the pages."""
    if BROWSER is None:
        return Findings([], [Table("Not measured", ["what is missing"], [["Chromium"]])])
    models, rounds = (QUICK_MODELS, QUICK_ROUNDS) if quick else (MODELS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as folder:
        fill(Path(folder), models)
        with running(Path(folder), choose_port(0)) as service, opened_browser() as browser:
            drawn = _made(service.url, "maps")
            _made(service.url, "clusterings")
            visits = Visits(browser, service.url, rounds)
            some = slice(1) if quick else slice(None)
            rows = [visits.painted(what, path) for what, path in list(_PAGES.items())[some]]
            rows += [visits.typed(text) for text in _TYPED[some]]
            rows.append(visits.completed(_NOWHERE))
            rows += [visits.map_ready(color) for color in _MAP_COLORS[some]]
            rows += visits.on_the_map()
    return Findings(rows, [_job(models, drawn)])


class Visits:
    """Visits of pages, each by a new visitor.

    Args:
        browser: of all visitors.
        url: of the service.
        rounds: visits of each page.
    """

    def __init__(self, browser: Browser, url: str, rounds: int) -> None:
        self._browser = browser
        self._url = url
        self._rounds = rounds

    def painted(self, what: str, path: str) -> Row:
        """How long a page takes until something is seen."""
        return _row(f"first paint: {what}", self._each(path, _paint), PAINT_S)

    def typed(self, text: str) -> Row:
        """How long suggestions take, from the key to the picture."""
        what = f"search as one types: `{text}`"
        return _row(what, self._each(_PAGES["models"], _typing("search", text)), TYPING_S)

    def map_ready(self, color: str) -> Row:
        """How long the map takes until it is drawn in its colours and can be moved."""
        path = f"{_PAGES['map']}?color={color}"
        return _row(f"map interactive, by {color}", self._each(path, _ready), MAP_S)

    def on_the_map(self) -> list[Row]:
        """How long a frame takes while the map is zoomed, and the map's own search."""

        def frame(page: Page) -> float:
            _ready(page)
            times: list[float] = page.evaluate(_FRAME, _FRAMES)
            return statistics.median(times) / 1000

        def found(page: Page) -> float:
            _ready(page)
            return _typing("map-search", "model-00")(page)

        path = _PAGES["map"]
        return [
            _row("a frame of the map while it is zoomed", self._each(path, frame), None),
            _row("find on the map, as one types", self._each(path, found), TYPING_S),
        ]

    def _each(self, path: str, measure: Callable[[Page], float]) -> list[float]:
        seconds = []
        for _ in range(self._rounds):
            with self._browser.new_context(viewport={"width": 1280, "height": 900}) as visitor:
                visitor.add_init_script(_CLOCK)
                page = visitor.new_page()
                page.goto(self._url + path)
                seconds.append(measure(page))
        return seconds

    def completed(self, text: str) -> Row:
        """How long the service takes to find nothing to suggest."""
        path = f"/spaces/{SPACE}/completions"
        with httpx.Client(base_url=self._url, timeout=_TIMEOUT_S, trust_env=False) as http:
            answers = [http.get(path, params={"q": text}) for _ in range(self._rounds)]
        seconds = [answer.raise_for_status().elapsed.total_seconds() for answer in answers]
        return _row(f"search for `{text}`, the service alone", seconds, TYPING_S)


def _paint(page: Page) -> float:
    return _noted(page, _PAINTED)


def _ready(page: Page) -> float:
    return _noted(page, "() => window.mapReady ?? null")


def _noted(page: Page, expression: str) -> float:
    """Seconds that the page notes, once it has."""
    until = time.monotonic() + _TIMEOUT_S
    while (noted := page.evaluate(expression)) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{page.url} is not there after {_TIMEOUT_S:g} s")
        page.wait_for_timeout(20)
    return float(noted) / 1000


def _typing(field: str, text: str) -> Callable[[Page], float]:
    def measure(page: Page) -> float:
        return float(page.evaluate(_TYPE, [field, text])) / 1000

    return measure


def _made(url: str, what: str) -> httpx.Response:
    """The newest map or clustering, made by a job."""
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as http:
        job = http.post(f"/v1/spaces/{SPACE}/{what}", json={}).raise_for_status()
        while (answer := http.get(job.headers["Location"])).json()["finished_at"] is None:
            time.sleep(0.1)
        if answer.json()["state"] != "succeeded":
            raise RuntimeError(answer.text)
        return http.get(f"/v1/spaces/{SPACE}/{what}/latest").raise_for_status()


def _job(models: int, drawn: httpx.Response) -> Table:
    found = drawn.json()
    facts = [
        f"{models:,}",
        duration(found["seconds"]),
        f"{found['edges']:,}",
        f"{found['parts']:,}",
    ]
    columns = ["models", "the job", "edges", "parts", "bytes as JSON"]
    return Table("The map", columns, [[*facts, f"{len(drawn.content):,}"]])


def _row(what: str, seconds: list[float], target: float | None) -> Row:
    median, worst = statistics.median(seconds), max(seconds)
    ours = f"{duration(median)}, at most {duration(worst)}"
    if target is None:
        return Row(what, ours, "", "")
    return Row(what, ours, "", "", f"≤ {duration(target)}", worst <= target)
