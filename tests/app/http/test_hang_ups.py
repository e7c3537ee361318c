"""A client that closes its socket ends what is computed for it, in a process of the service."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from modelkin import Support, wire
from tests.support.servers.server_process import Server

_MODELS, _NUM_PERM = 800, 4096
_HANGS_UP_AFTER_S = 0.3
_ATTEMPTS = 5


class Busy:
    """A service, with a space whose matrix takes seconds: estimates from long signatures."""

    def __init__(self, server: Server) -> None:
        self.server = server
        support = Support.from_indices(np.arange(50), 1000)
        content = wire.signature_to_json(support.signature(num_perm=_NUM_PERM))
        line = json.dumps({"model": "m", "signature": content})
        lines = [line.replace('"m"', f'"m{i}"', 1) for i in range(_MODELS)]
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
            signature = {"scheme": "affine32", "num_perm": _NUM_PERM, "seed": 1}
            space = {"name": "s", "num_parameters": 1000, "signature": signature}
            http.post("/v1/spaces", json=space).raise_for_status()
            for at in range(0, _MODELS, 250):
                answer = http.post(
                    "/v1/spaces/s/batch",
                    content="\n".join(lines[at : at + 250]),
                    headers={"Content-Type": "application/jsonl"},
                )
                assert '"error"' not in answer.raise_for_status().text

    def ask_and_hang_up(self, path: str, after_s: float) -> None:
        """Ask for the matrix of all models and close the socket a while later."""
        address = urlsplit(self.server.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as client:
            body = json.dumps({"models": [f"m{i}" for i in range(_MODELS)]})
            head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            line = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(f"{line}{head}{body}".encode())
            time.sleep(after_s)

    def served_s(self, path: str, within_s: float) -> float | None:
        """How long the service was busy with the request of a path, as its log says.

        None without a line of it: on a busy machine a client may hang up before it is heard.
        """
        line = rf"POST {path} 400 ([\d.]+) ms"
        end = time.monotonic() + within_s
        while not (found := re.search(line, self.server.log.read_text())):
            if time.monotonic() >= end:
                return None
            time.sleep(0.05)
        return float(found[1]) / 1000


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    flags = "--embedded-worker=off", "--query-timeout-seconds=25"
    server = Server(tmp_path_factory.mktemp("busy"), *flags).start()
    yield Busy(server)
    server.kill()


@pytest.mark.slow
def test_a_client_that_closes_its_socket_ends_a_matrix(busy: Busy) -> None:
    """The matrix would take seconds; within one nothing of it is computed any more."""
    for _ in range(_ATTEMPTS):
        busy.ask_and_hang_up("/v1/spaces/s/similarity", _HANGS_UP_AFTER_S)
        served = busy.served_s("/v1/spaces/s/similarity", within_s=10)
        if served is not None:
            break
    assert served is not None, "it is still computed"
    # What had ended before would be logged with 200; a busy service begins later than it is asked.
    took = served - _HANGS_UP_AFTER_S
    assert took < 3, f"it ended {took:.2f} s after the hang-up"
