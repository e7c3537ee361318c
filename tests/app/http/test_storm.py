"""A storm of requests at every operation: what is answered stands in the OpenAPI document."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from modelkin import Support
from tests.support.backends import Backend
from tests.support.declared_problems import OPERATIONS, Operation
from tests.support.http_space import JSON, RAW, SIGNATURE, SUPPORT, Space
from tests.support.provocations import VALID
from tests.support.servers.server_process import Server

DOCUMENT: Final = json.loads(
    (Path(__file__).resolve().parents[3] / "docs" / "openapi.json").read_text()
)
_REQUESTS: Final = 14
"""Of each operation, with one of each kind of mistake at least."""
GOOD = Support.from_indices(range(0, 10_000, 7), 10_000)

PLACES: Final[dict[str, tuple[str, ...]]] = {
    "space": ("s", "layered", "gone", "S%20"),
    "model": ("stored", "signed", "gone", "a//b", "%00"),
    "clustering": ("latest", "gone"),
}
BODIES: Final[tuple[tuple[str, bytes], ...]] = (
    ("", b""),
    ("text/plain", b"x"),
    (JSON, b"{}"),
    (JSON, b'{"a":1,"a":2}'),
    (JSON, b"[" * 2000),
    (JSON, b" " * (1 << 20) + b" "),
    (JSON, b'{"indices":[1,2]}'),
    (JSON, b'{"models":["stored","signed","gone"]}'),
    (SUPPORT, GOOD.to_bytes()),
    (SUPPORT, b"junk"),
    (RAW, b"\0\0\0\1"),
    (SIGNATURE, GOOD.signature().to_bytes()),
    ("application/vnd.modelkin.sketch", b"junk"),
    ("application/jsonl", b'{"model":"x"}\nnonsense\n'),
)
HEADERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"Accept": "image/png"},
    {"If-Match": '"nothing"'},
    {"If-Match": "*", "If-None-Match": "*"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "elsewhere.example"},
    {"If-Match": '"0"'},
    {"Accept": "text/html"},
    {"Authorization": "Bearer mk_nonsense"},
)
QUERIES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"unknown": "1"},
    {"k": "-1", "limit": "x"},
    {"model": "stored"},
    {"model": "gone"},
    {"model": "signed", "method": "exact"},
    {"target": "signed", "objective": "cover"},
    {"a": "stored", "b": "signed"},
    {"cursor": "junk"},
)


def requests(operation: Operation, rng: random.Random) -> Iterator[dict[str, Any]]:
    """A valid request, and requests with any of the mistakes."""
    valid = VALID.get(operation.name, {})
    for number in range(_REQUESTS):
        path = operation.path
        for name in ("space", "model", "clustering", "job", "source", "subscription", "delivery"):
            places = PLACES.get(name, ("gone",))
            place = places[0] if number % 2 else rng.choice(places)
            path = path.replace(f"{{{name}}}", place)
        request = {key: value for key, value in valid.items() if key != "at"}
        if number:
            kind, body = BODIES[(number * 5 + rng.randrange(3)) % len(BODIES)]
            headers = rng.choice(HEADERS)
            if rng.random() < 0.7 and operation.method not in ("GET", "DELETE"):
                request = {"content": body, "params": request.get("params", {})}
                headers = {**headers, **({"Content-Type": kind} if kind else {})}
            request["headers"] = {**request.get("headers", {}), **headers}
            request["params"] = {**request.get("params", {}), **rng.choice((*QUERIES, *[{}] * 12))}
        yield {"method": operation.method, "url": path, **request}


@pytest.fixture
def server(backend: Backend, tmp_path: Path) -> Iterator[Server]:
    """A service that can keep secrets; without a key its hooks are a 503."""
    settings = {"MODELKIN_ENCRYPTION_KEYS": "5a" * 32}
    running = Server(tmp_path, "--embedded-worker=off", backend=backend, **settings).start()
    yield running
    running.kill()


@pytest.mark.long
@pytest.mark.slow
def test_a_storm_is_answered_by_what_the_document_says(server: Server) -> None:
    """No operation answers a status that the published document leaves out, and none a 5xx."""
    rng = random.Random(13)
    answered: Counter[int] = Counter()
    unsaid: set[str] = set()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        plain = Space(http, name="s")
        plain.name = "s"
        plain.put("stored", GOOD)
        http.put(
            "/v1/spaces/s/signatures/signed",
            content=GOOD.signature().to_bytes(),
            headers={"Content-Type": SIGNATURE},
        )
        layout = [{"name": "w", "shape": [100, 100]}]
        http.post("/v1/spaces", json={"name": "layered", "layout": layout})
        operations = sorted(OPERATIONS.values(), key=lambda each: each.method == "DELETE")
        for operation in operations:
            said = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
            for request in requests(operation, rng):
                if request["url"].endswith("/events"):
                    continue
                status = http.request(**request).status_code
                answered[status] += 1
                if str(status) not in said or status >= 500:
                    unsaid.add(f"{operation.name}: {status}")
    assert not unsaid, sorted(unsaid)
    assert {200, 403, 404, 406, 412, 413, 415, 421, 422} <= answered.keys(), answered
