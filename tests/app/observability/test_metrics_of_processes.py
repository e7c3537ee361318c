"""/metrics of a service of several processes: one scrape shows the sums of them all."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.soak.freshness import answering
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE
from tests.support.servers.server_process import Server

Values = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service of two processes."""
    server = Server(tmp_path, "--processes=2").start()
    yield server
    server.kill()


def scrape(text: str) -> Values:
    """The samples of each metric, by the values of their labels."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def livez(values: Values) -> float:
    """How often /livez was answered."""
    counts = values["modelkin_request_seconds_count"]
    return sum(count for labels, count in counts.items() if "/livez" in labels)


def clients_of(server: Server) -> dict[int, httpx.Client]:
    """A client with a connection to each process; finding them asks /livez."""
    clients: dict[int, httpx.Client] = {}
    while len(clients) < 2:
        client = httpx.Client(base_url=server.url, trust_env=False)
        if clients.setdefault(answering(client, server), client) is not client:
            client.close()
    return clients


def processes(values: Values) -> set[int]:
    """The processes that ``modelkin_info`` names."""
    return {int(part) for labels in values["modelkin_info"] for part in labels if part.isdigit()}


def test_a_scrape_sums_over_the_processes(server: Server, tmp_path: Path) -> None:
    """Whichever answers: counts of all of them, also of one that has died, and the state of those
    that live. A service of one process has the same metrics.
    """
    clients = clients_of(server)
    scraped = [scrape(client.get("/metrics").text) for client in clients.values()]
    assert [set(clients)] * 2 == [processes(each) for each in scraped]
    assert livez(scraped[0]) == livez(scraped[1]) >= 2
    assert [1.0] * 2 == [each["modelkin_requests_in_flight"][()] for each in scraped]
    memory = scraped[1]["process_resident_memory_bytes"][()]
    own = sum(resident(pid) for pid in clients)
    assert own / 2 < memory < 2 * own
    for client in clients.values():
        client.close()
    victim = min(clients)
    os.kill(victim, signal.SIGKILL)
    end = time.monotonic() + 60
    while victim in (now := processes(after := scrape_any(server))) or len(now) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert livez(after) == livez(scraped[0])
    assert after["process_cpu_seconds_total"][()] > scraped[1]["process_cpu_seconds_total"][()]
    (alone_in := tmp_path / "alone").mkdir()
    with open_app(alone_in, SQLITE) as app:
        app.http.get("/livez")
        alone = scrape(app.http.get("/metrics").text)
    assert {name for name in alone if not name.endswith("_created")} == set(after)


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def scrape_any(server: Server) -> Values:
    """The metrics as one of the processes shows them."""
    try:
        return scrape(httpx.get(f"{server.url}/metrics", trust_env=False).text)
    except httpx.TransportError:  # of one that has just died
        return {"modelkin_info": {}}
