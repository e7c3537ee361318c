"""Restarts of two services behind the proxy of compose.objects.yaml: how many calls fail?

``python -m tests.soak.proxy`` (``make soak``) needs Caddy. Two services on one Postgres and one
bucket are restarted in turn, behind a Caddy with the file of the recipe, while clients call it and
repeat nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.soak.restarts import Callers
from tests.support.backends import Backend, PostgresBackend
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import postgres_server
from tests.support.servers.s3_server import s3_server
from tests.support.servers.server_process import Server
from tests.support.servers.waiting import wait_for

_CADDYFILE = Path(__file__).parents[2] / "docs" / "recipes" / "Caddyfile"
_TIMEOUT_S = 60.0
_SEEN_READY_S = 3.0
"""The proxy asks a service each second whether it is ready."""


@contextmanager
def caddy(folder: Path, services: list[str]) -> Iterator[str]:
    """The URL of a Caddy with the file of the recipe, before services at these addresses."""
    port = free_port()
    text = _CADDYFILE.read_text()
    for recipe, own in (("first:8000 second:8000", " ".join(services)), (":8000 {", f":{port} {{")):
        assert 1 == text.count(recipe)
        text = text.replace(recipe, own)
    file = folder / "Caddyfile"
    file.write_text(text)
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]
    own_folders = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PATH": os.environ["PATH"]}
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen(command, env=own_folders, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: _is_ready(url))
        yield url
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)


def measure(folder: Path, backend: Backend, bucket: str, variables: dict[str, str]) -> Callers:
    """Restart both services, and one of them once more, under load."""
    with ExitStack() as stack:
        services, addresses = [], []
        for name in ("first", "second"):
            own = folder / name
            own.mkdir()
            addresses.append(f"127.0.0.1:{free_port()}")
            flags = f"--blob-url={bucket}", f"--port={addresses[-1].rpartition(':')[2]}"
            settings = {
                **variables,
                "MODELKIN_BLOB_CACHE_DIR": str(own / "fetched"),
                "MODELKIN_DOWNLOAD_DIR": str(own / "downloads"),
                "MODELKIN_DRAIN_SECONDS": "5",  # as where other machines connect
            }
            service = Server(folder, *flags, backend=backend, **settings)
            service.log = own / "service.log"
            services.append(service.start())
            stack.callback(service.stop)
        url = stack.enter_context(caddy(folder, addresses))
        callers = Callers(url, clients=4, pause=0.1)
        with callers.running():
            for service in (*services, services[0]):
                assert service.stop() == 0
                service.start()
                time.sleep(_SEEN_READY_S)
    return callers


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def main() -> int:
    """Print what was counted; 1 if a call failed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if shutil.which("caddy") is None:
        print("NOT RUN: caddy is not installed")
        return 0
    with postgres_server() as server, s3_server() as s3, tempfile.TemporaryDirectory() as root:
        callers = measure(Path(root), PostgresBackend(server), s3.bucket(), s3.variables())
    print(
        f"{len(callers.failed)} of {callers.done.total()} calls failed in three restarts of two "
        f"services behind Caddy",
        *callers.failed[:5],
        sep="\n  ",
    )
    return 1 if callers.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
