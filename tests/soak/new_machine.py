"""A machine that comes new to a database and a bucket with many models: when does it serve?

``python -m tests.soak.new_machine`` stores supports through one service. Another then starts that
shares nothing with it but Postgres and the bucket. It must name the neighbours that the first does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.object_server import object_server
from modelkin import Client, Support
from tests.support.backends import PostgresBackend
from tests.support.http_space import family
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

__all__ = ["new_machine", "supports"]

M, K = 100_000, 500
_FAMILY = 50
_SPACE = "s"
_ASKED = 20
_TRIES = 5
"""Of a query whose supports did not come in time."""
_READY_S = 15.0
"""What the design promises for 100,000 models."""
_LATENCY_S = 0.002
_BYTES_A_SECOND = 500e6


def supports(models: int) -> Iterator[tuple[str, Support]]:
    """So many supports, in families whose members have different distances from a base."""
    for number in range(-(-models // _FAMILY)):
        for name, support in family(number, M, K, min(_FAMILY, models - number * _FAMILY)).items():
            yield f"family-{number}/{name}", support


def new_machine(models: int, folder: Path) -> tuple[float, float, int]:
    """Seconds until a new machine is ready, seconds of its first query, and wrong answers."""
    with (
        postgres_server() as postgres,
        object_server(latency_s=_LATENCY_S, bytes_a_second=_BYTES_A_SECOND) as variables,
        ExitStack() as stack,
    ):

        def machine(name: str) -> Server:
            own = folder / name
            own.mkdir()
            server = Server(
                folder,
                "--blob-url=s3://bucket/modelkin",
                backend=PostgresBackend(postgres),
                **variables,
                MODELKIN_BLOB_CACHE_DIR=str(own / "fetched"),
                MODELKIN_DOWNLOAD_DIR=str(own / "downloads"),
            )
            server.log = own / "service.log"
            stack.callback(server.stop)
            return server.start()

        first = machine("first")
        with Client(first.url, idle_timeout=600) as client:
            client.ensure_space(_SPACE, num_parameters=M)
            assert not client.put_many(_SPACE, supports(models)).failed
        began = time.monotonic()
        second = machine("second")
        ready = time.monotonic() - began
        began = time.monotonic()
        nearest(second, "family-0/m000")
        asked = time.monotonic() - began
        names = [f"family-{number}/m000" for number in range(models // _FAMILY)][:_ASKED]
        wrong = sum(nearest(first, name) != nearest(second, name) for name in names)
    return ready, asked, wrong


def nearest(server: Server, model: str) -> list[tuple[str, float]]:
    """The neighbours that a service names, and how similar they are, once none is estimated."""
    params: dict[str, str | int] = {"model": model, "k": 10}
    url = f"{server.url}/v1/spaces/{_SPACE}/neighbors"
    for _ in range(_TRIES):
        found = httpx.get(url, params=params, timeout=60, trust_env=False).raise_for_status().json()
        if not found["degraded"]:
            break
    return [(item["model"], item["similarity"]) for item in found["items"]]


def main() -> int:
    """Print a line; 1 if the machine was late, or an answer wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100_000)
    models: int = parser.parse_args().models
    with tempfile.TemporaryDirectory() as folder:
        ready, asked, wrong = new_machine(models, Path(folder))
    print(
        f"{models:,} models: ready in {ready:.1f} s, first query in {asked:.2f} s, "
        f"{wrong} of {_ASKED} queries wrong"
    )
    return 1 if ready > _READY_S or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
