"""Drifting supports against a real service: what goes over the wire, and what the revisions say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import Support
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

M, K, ROUNDS = 200_000, 20_000, 6


def rounds() -> list[Support]:
    """The supports of a client whose importance is an average over rounds, with the weight .8 of
    the paper on what was before.
    """
    random = np.random.default_rng(5)
    lasting = random.lognormal(sigma=1.5, size=M)
    importance = lasting.copy()
    supports = []
    for _ in range(ROUNDS):
        importance = 0.8 * importance + 0.2 * lasting * random.lognormal(sigma=0.5, size=M)
        supports.append(modelkin.select_support(importance.astype(np.float32), k=K))
    return supports


SUPPORTS = rounds()


class Counted:
    """Carries requests to a service and counts the bytes of their bodies, by method."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.sent: list[tuple[str, int]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append((request.method, len(request.content)))
        answer = self._http.send(
            self._http.build_request(
                request.method,
                request.url.raw_path.decode(),
                headers=request.headers,
                content=request.content,
            )
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service for the tests of this file."""
    running = Server(tmp_path_factory.mktemp("service")).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def counted(server: Server) -> Iterator[Counted]:
    """The way to the service."""
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        yield Counted(http)


@pytest.mark.slow
def test_rounds_of_drift_cost_a_fraction(
    counted: Counted, connect: Connect, request: pytest.FixtureRequest
) -> None:
    """Rounds at S of .95 to .98 go out in less than a fifth of their bytes, and are stored as they
    are; the client lists how far each drifted.
    """
    name = f"s-{request.node.callspec.id}"
    with connect("http://localhost", transport=httpx.MockTransport(counted)) as client:
        client.ensure_space(name, num_parameters=M)
        counted.sent.clear()
        for support in SUPPORTS:
            client.put_support(name, "org/a", support)
        assert ["PUT"] + ["PATCH"] * (ROUNDS - 1) == [method for method, _ in counted.sent]
        drift = [s.similarity_previous for s in client.revisions.list(name, "org/a")][:-1]
        assert min(drift) > 0.94
        assert max(drift) < 0.99
        whole = sum(len(support.to_bytes()) for support in SUPPORTS[1:])
        assert 5 * sum(size for _, size in counted.sent[1:ROUNDS]) < whole
        check(client, name)


def check(client: Any, space: str) -> None:
    """The revisions of the rounds are those that brute force computes."""
    revisions = client.revisions.list(space, "org/a")
    assert (ROUNDS, "org/a", 1) == (len(revisions), revisions.model, revisions.first_revision)
    assert SUPPORTS[-1] == client.supports.get(space, "org/a")
    for revision, support in zip(revisions, reversed(SUPPORTS), strict=True):
        assert (support.digest, support.k) == (revision.digest, revision.support_size)
        first = modelkin.similarity(SUPPORTS[0], support)
        assert pytest.approx(first, rel=1e-12) == revision.similarity_first
        if revision.kept:
            number = revision.revision
            assert support == client.supports.get(space, "org/a", revision=number)
    frame = revisions.to_pandas()
    assert list(range(ROUNDS, 0, -1)) == list(frame.revision)
    assert revisions[1].self_overlap_previous == frame.self_overlap_previous[1]
