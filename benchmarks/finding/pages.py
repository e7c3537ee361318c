"""Measure the explorer's pages of anatomies with 100,000 models: the server's processor, and bytes.

``python -m benchmarks.finding --pages [--models 100000] [--folder FOLDER]``; the folder keeps the
store for the next time. To plant it takes a quarter of an hour and 3 GB.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx
from playwright.sync_api import Browser

from benchmarks.finding.planted import PlantedHub
from benchmarks.report import Findings, Row, Table, duration
from demo.service import Service, choose_port, running
from modelkin._validation import quote_model
from tests.support.servers.browser import opened_browser

__all__ = ["LIBRARIES", "measure"]

LIBRARIES = ("sqlalchemy", "playwright")

_ROUNDS: Final = 5
_TARGET_S: Final = 0.5
_TIMEOUT_S: Final = 120.0
_BUILT_S: Final = 1200.0
_READY: Final = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
"""When the page can be used: its scripts have run by then."""


def measure(models: int, folder: Path) -> Findings:
    """Plant a hub if the folder has none, and visit its pages."""
    hub = PlantedHub(models, min(10_001, models // 5))
    if not (folder / "modelkin.db").exists():
        hub.fill(folder)
    rows, facts = list[Row](), list[list[str]]()
    with running(folder, choose_port(0)) as service, opened_browser() as browser:
        server = _Server(service)
        server.warm(f"/anatomies/{quote_model(hub.popular)}")
        for what, path in _paths(hub):
            size, seconds, cpu = server.asked(path)
            ready = [_ready(browser, service.url + path) for _ in range(_ROUNDS)]
            told = f"≤ {duration(_TARGET_S)}"
            rows.append(Row(what, duration(cpu), "", "", told, cpu <= _TARGET_S))
            usable = duration(statistics.median(ready))
            facts.append([what, f"{size:,}", duration(seconds), usable])
        for what, path in _files(hub):
            size, seconds, cpu = server.asked(path, rounds=1)
            rows.append(Row(what, duration(cpu), "", ""))
            facts.append([what, f"{size:,}", duration(seconds), ""])
    columns = ["page", "bytes", "answer", "until it can be used"]
    return Findings(rows, [Table("Pages and files", columns, facts)])


def _paths(hub: PlantedHub) -> Iterator[tuple[str, str]]:
    base, child = hub.popular, hub.child()
    yield "all models", "/anatomies"
    yield "models by a part of their name", "/anatomies?q=del-0999"
    yield "a name that no model has", "/anatomies?q=zzzz"
    yield "models that are copies", "/anatomies?found=copy"
    yield "a verdict that no model has", "/anatomies?found=assembled"
    yield "anatomy of a base of 10,000", f"/anatomies/{quote_model(base)}"
    yield "anatomy of its child", f"/anatomies/{quote_model(child)}"
    yield "anatomy of a stranger", f"/anatomies/{quote_model(hub.stranger())}"
    yield "family of the base", _path("/family", of=base)
    yield "family of the child", _path("/family", of=child)
    yield "relatives of the base", _path("/relatives", of=base)
    yield "its last relatives", _path("/relatives", of=base, after="9900")
    yield "duplicates", "/duplicates"
    yield "two models by tensor", _path("/tensors", a=child, b=base)


def _files(hub: PlantedHub) -> Iterator[tuple[str, str]]:
    yield "all models as CSV", "/anatomies.csv"
    yield "relatives of the base as CSV", _path("/relatives.csv", of=hub.popular)


def _path(path: str, **query: str) -> str:
    return f"{path}?{urlencode(query)}"


class _Server:
    """The service, and the time that its process computes."""

    def __init__(self, service: Service) -> None:
        self._http = httpx.Client(base_url=service.url, timeout=_TIMEOUT_S, trust_env=False)
        self._times = Path(f"/proc/{service.pid}/stat")

    def warm(self, path: str) -> None:
        """Ask until the finding index is built, which takes several questions."""
        end = time.monotonic() + _BUILT_S
        while self._http.get(path).status_code == httpx.codes.SERVICE_UNAVAILABLE:
            if time.monotonic() > end:
                raise TimeoutError(f"the index is not built after {_BUILT_S:g} s")

    def asked(self, path: str, rounds: int = _ROUNDS) -> tuple[int, float, float]:
        """The bytes of an answer, the seconds until it is there, and those of the processor."""
        self._http.get("/anatomies").raise_for_status()
        walls, busy = list[float](), list[float]()
        size = 0
        for _ in range(rounds):
            before, began = self._busy(), time.perf_counter()
            size = len(self._http.get(path).raise_for_status().content)
            walls.append(time.perf_counter() - began)
            busy.append(self._busy() - before)
        return size, statistics.median(walls), statistics.median(busy)

    def _busy(self) -> float:
        user, system = self._times.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _ready(browser: Browser, address: str) -> float:
    """Seconds until a new visitor can use a page."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as visitor:
        page = visitor.new_page()
        page.set_default_timeout(_TIMEOUT_S * 1000)
        page.goto(address)
        return float(page.evaluate(_READY)) / 1000
