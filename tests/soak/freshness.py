"""Writes through one process, each read at once through another: how many reads are stale?

``python -m tests.soak.freshness`` (``make soak``) counts 10,000 of them on each kind of service.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np

from modelkin import Signature
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.http_space import SIGNATURE, random_support
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

__all__ = ["Checked", "answering", "processes", "services"]

M, K, H = 10_000, 64, 32
_MODELS = 40
_SPACE = {"name": "s", "num_parameters": M, "signature": {"num_perm": H}}
_ESTABLISHED = "01"
_PROCESS = re.compile(r"server process \[(\d+)\]")


class Checked:
    """A space that is changed through one client and read through another.

    Args:
        writer: of one process.
        reader: of another one over the same stores.
        seed: of what is written.
    """

    def __init__(self, writer: httpx.Client, reader: httpx.Client, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.stale: list[str] = []
        self._writer, self._reader = writer, reader
        self._random = np.random.default_rng(seed)
        self._known: dict[str, tuple[Signature, str]] = {}
        self._make_space()

    def run(self, writes: int) -> None:
        """So many writes, each followed by the reads that would show that it is not there yet."""
        while self.done.total() < writes:
            name = f"org/m{self._random.integers(_MODELS)}"
            chance = self._random.random()
            if chance < 0.002:
                self._replace_space()
            elif name not in self._known or chance < 0.5:
                self._put(name)
            elif chance < 0.8:
                self._tag(name)
            else:
                self._delete(name)

    def swap(self) -> None:
        """From now on the reader writes."""
        self._writer, self._reader = self._reader, self._writer

    def _put(self, name: str) -> None:
        before = self._known.get(name)
        signature = random_support(self._random, M, K).signature(num_perm=H)
        tag = "old" if before is None else before[1]
        self._write(
            "replace" if before else "create",
            "PUT",
            f"/signatures/{name}?tag={tag}",
            content=signature.to_bytes(),
            headers={"Content-Type": SIGNATURE},
        )
        self._known[name] = signature, tag
        self._expect(self._has(signature, name), f"{name} is not found by what it is now")
        if before is not None:
            self._expect(not self._has(before[0], name), f"{name} is found by what it was")

    def _tag(self, name: str) -> None:
        signature, before = self._known[name]
        tag = f"t{self.done.total()}"
        self._write("tag", "PATCH", f"/models/{name}", json={"tags": [tag]})
        self._known[name] = signature, tag
        self._expect(self._has(signature, name, tag), f"{name} is not found by its tag")
        self._expect(not self._has(signature, name, before), f"{name} is found by its old tag")

    def _delete(self, name: str) -> None:
        self._write("delete", "DELETE", f"/models/{name}")
        signature, _ = self._known.pop(name)
        self._expect(not self._has(signature, name), f"{name} is found though it is gone")
        answer = self._reader.get(f"/v1/spaces/s/models/{name}")
        self._expect(answer.status_code == 404, f"{name} is there though it is gone")

    def _replace_space(self) -> None:
        """Delete the space; one of the same name, and models of the same names, begin empty."""
        self._write("delete space", "DELETE", "")
        gone = self._reader.get("/v1/spaces/s").status_code == 404
        self._expect(gone, "the space is there though it is gone")
        before, self._known = self._known, {}
        self._make_space()
        for name, (signature, _) in list(before.items())[:3]:
            self._expect(not self._has(signature, name), f"{name} survived its space")

    def _make_space(self) -> None:
        assert self._writer.post("/v1/spaces", json=_SPACE).status_code == 201

    def _write(self, kind: str, method: str, path: str, **request: object) -> None:
        url = f"/v1/spaces/s{path}"
        answer = self._writer.request(method, url, **request)  # type: ignore[arg-type]
        assert answer.is_success, answer.text
        self.done[kind] += 1

    def _has(self, signature: Signature, name: str, *tags: str) -> bool:
        """Whether the reader finds the model as one that equals ``signature``: by a scan and in the
        LSH buckets, which have to agree.
        """
        scanned, bucketed = (self._finds(m, signature, name, *tags) for m in ("scan", "lsh"))
        self._expect(scanned == bucketed, f"{name} is found by one of scan and lsh alone")
        return scanned

    def _finds(self, method: str, signature: Signature, name: str, *tags: str) -> bool:
        answer = self._reader.post(
            "/v1/spaces/s/neighbors",
            params={"k": 2, "method": method, "min_similarity": 1.0, "tag": list(tags)},
            content=signature.to_bytes(),
            headers={"Content-Type": SIGNATURE},
        )
        assert answer.status_code == 200, answer.text
        self.answered[answer.json()["method"]] += 1
        return name in [item["model"] for item in answer.json()["items"]]

    def _expect(self, fresh: bool, otherwise: str) -> None:
        if not fresh:
            self.stale.append(f"after {self.done.total()} writes: {otherwise}")


@contextmanager
def services(folder: Path, backend: Backend) -> Iterator[list[httpx.Client]]:
    """A client for each of two services over the same stores."""
    with ExitStack() as stack:
        clients = []
        for name in ("first", "second"):
            server = Server(folder, backend=backend)
            server.log = folder / f"{name}.log"
            server.start()
            stack.callback(server.stop)
            clients.append(stack.enter_context(_client(server)))
        yield clients


@contextmanager
def processes(folder: Path, backend: Backend) -> Iterator[list[httpx.Client]]:
    """A client for each process of one service of two: a connection stays with its process."""
    with ExitStack() as stack:
        server = Server(folder, "--processes=2", backend=backend).start()
        stack.callback(server.stop)
        clients: dict[int, httpx.Client] = {}
        end = time.monotonic() + 60
        while len(clients) < 2:
            assert time.monotonic() < end, "one process never answers"
            client = stack.enter_context(_client(server))
            clients.setdefault(answering(client, server), client)
        yield list(clients.values())


def answering(client: httpx.Client, server: Server) -> int:
    """The process of the service that has the connection of a client.

    Both ends name it: other connections may have the client's port to another server.
    """
    stream = client.get("/livez").extensions["network_stream"]
    ends = [f"{stream.get_extra_info(end)[1]:04X}" for end in ("server_addr", "client_addr")]
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    (socket,) = {
        f"socket:[{row[9]}]"
        for row in rows
        if [address[-4:] for address in row[1:3]] == ends and row[3] == _ESTABLISHED
    }
    for pid in set(map(int, _PROCESS.findall(server.log.read_text()))):
        with suppress(OSError):  # it has ended
            if any(os.readlink(file) == socket for file in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    raise AssertionError("no process of the service has the connection")


def _client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False)


def main() -> int:
    """Print a line for each kind of service; 1 if any read was stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=10_000)
    writes: int = parser.parse_args().writes
    stale = 0
    with postgres_server() as server, tempfile.TemporaryDirectory() as root:
        for backend in (SQLITE, PostgresBackend(server)):
            for kind in (processes, services):
                folder = Path(root) / f"{backend.name}-{kind.__name__}"
                folder.mkdir()
                with kind(folder, backend) as (first, second):
                    checked = Checked(first, second, seed=1)
                    checked.run(writes // 2)
                    checked.swap()
                    checked.run(writes)
                stale += len(checked.stale)
                print(
                    f"{backend.name:8} two {kind.__name__:9} {checked.done.total():6} writes "
                    f"{dict(checked.done)}, read by {dict(checked.answered)}: "
                    f"{len(checked.stale)} stale",
                    flush=True,
                )
                print(*checked.stale[:5], sep="\n", end="")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
