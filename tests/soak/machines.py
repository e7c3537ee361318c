"""Two machines that share Postgres and a bucket, and no disk: is a read stale, a support missing?

``python -m tests.soak.machines`` (``make soak``) makes 2,000 random changes through one service,
each read at once through the other. Services are killed while they store a model, and after each
hundred changes a worker of either machine clusters the space.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from modelkin import Client, Support
from tests.support.backends import Backend, PostgresBackend
from tests.support.http_space import SUPPORT, random_support
from tests.support.servers.forkserver import ModuleProcess
from tests.support.servers.postgres import postgres_server
from tests.support.servers.s3_server import s3_server
from tests.support.servers.server_process import Server, environment

__all__ = ["Changes", "Machine", "machines"]

M, K = 40_000, 2_000
_MODELS = 30
_SPACE = "s"
_PUT_S = 0.05
"""About what it takes to store a model."""
_CHANGES_OF_A_CLUSTERING = 100


@dataclass(frozen=True, slots=True)
class Machine:
    """A service, with a folder of its own for all that it caches, and a client of it."""

    server: Server
    http: httpx.Client

    def restart(self) -> None:
        """Kill the service, and start it again at another address."""
        self.server.kill()
        self.server.start()
        self.http.base_url = httpx.URL(self.server.url)


@contextmanager
def machines(
    folder: Path, backend: Backend, bucket: str, variables: dict[str, str]
) -> Iterator[tuple[Machine, Machine]]:
    """Two machines, each with a service and a worker, over one database and one bucket.

    Args:
        folder: has a folder for each of them.
        backend: the kind of the database.
        bucket: the URL of the store of supports.
        variables: of the store's clients.
    """
    with ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            own = folder / name
            own.mkdir()
            settings = {
                **variables,
                "MODELKIN_BLOB_CACHE_DIR": str(own / "fetched"),
                "MODELKIN_DOWNLOAD_DIR": str(own / "downloads"),
                "MODELKIN_KERNELS": "reference",
            }
            server = Server(folder, f"--blob-url={bucket}", backend=backend, **settings)
            server.log = own / "service.log"
            server.start()
            stack.callback(server.stop)
            stores = f"--database-url={server.database_url}", f"--blob-url={bucket}"
            log = own / "worker.log"
            worker = ModuleProcess(
                "workers", *stores, env=environment(**settings), stdout=log, stderr=log
            )
            worker.start()
            stack.callback(worker.kill)
            http = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
            made.append(Machine(server, stack.enter_context(http)))
        yield made[0], made[1]


class Changes:
    """A space that is changed through one machine and read through the other.

    Args:
        writer: one machine.
        reader: the other.
        seed: of what is written.
    """

    def __init__(self, writer: Machine, reader: Machine, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.known: dict[str, Support] = {}
        self._writer, self._reader = writer, reader
        self._random = np.random.default_rng(seed)
        body = {"name": _SPACE, "num_parameters": M}
        assert 201 == writer.http.post("/v1/spaces", json=body).status_code

    def run(self, changes: int, *, kill_every: int = 0) -> None:
        """So many changes in turn through either machine, each read through the other.

        Args:
            changes: how many.
            kill_every: after so many the machine that wrote is killed while it stores a model.
        """
        for number in range(1, changes + 1):
            name = f"org/m{self._random.integers(_MODELS)}"
            chance = self._random.random()
            if name not in self.known or chance < 0.7:
                self._put(name)
            elif chance < 0.85:
                self._again(name)
            else:
                self._delete(name)
            if kill_every and number % kill_every == 0:
                self._kill(f"org/m{self._random.integers(_MODELS)}")
            self._writer, self._reader = self._reader, self._writer

    def _kill(self, name: str) -> None:
        """Kill the writer at some moment of a PUT, and start it again.

        The model is then what was sent, or, without an answer, what it was.
        """
        sent = random_support(self._random, M, K)
        with ThreadPoolExecutor(1) as clients:
            stored = clients.submit(self._stores, name, sent)
            time.sleep(self._random.uniform(0, _PUT_S))
            self._writer.restart()
        may = [sent] if stored.result() else [sent, self.known.get(name)]
        self.done["kill behind an answer" if stored.result() else "kill"] += 1
        found = self._read(self._reader, name)
        self._expect(found in may, f"{name} is neither what was sent nor what it was")
        self.known.pop(name, None)
        if found is not None:
            self.known[name] = found

    def _stores(self, name: str, support: Support) -> bool:
        """Whether a PUT is acknowledged, by a service that may die meanwhile."""
        try:
            return self._send(name, support).is_success
        except httpx.TransportError:
            return False

    def read_all(self) -> None:
        """Read every model through both machines: each is there, and is what was written last."""
        for machine in (self._writer, self._reader):
            for name, support in self.known.items():
                self._expect(self._read(machine, name) == support, f"{name} is not what it was")

    def _put(self, name: str) -> None:
        before = self.known.get(name)
        support = random_support(self._random, M, K)
        answer = self._send(name, support)
        self._expect(answer.status_code == (201 if before is None else 200), answer.text)
        self.known[name] = support
        self.done["create" if before is None else "replace"] += 1
        self._expect(self._read(self._reader, name) == support, f"{name} is stale or missing")
        self._expect(self._finds(support, name), f"{name} is not found by what it is")
        if before is not None:
            self._expect(not self._finds(before, name), f"{name} is found by what it was")

    def _again(self, name: str) -> None:
        """Send the same content through the machine that may not have written it."""
        version = self._reader.http.get(self._path(name, "models")).headers["etag"]
        answer = self._send(name, self.known[name])
        same = answer.status_code == 200 and answer.headers["etag"] == version
        self._expect(same, f"{name} changed when it was sent again: {answer.text}")
        self.done["same again"] += 1
        self._expect(self._read(self._reader, name) == self.known[name], f"{name} is missing")

    def _delete(self, name: str) -> None:
        answer = self._writer.http.delete(self._path(name, "models"))
        self._expect(answer.status_code == 204, answer.text)
        support = self.known.pop(name)
        self.done["delete"] += 1
        self._expect(self._read(self._reader, name) is None, f"{name} is there though it is gone")
        self._expect(not self._finds(support, name), f"{name} is found though it is gone")

    def _send(self, name: str, support: Support) -> httpx.Response:
        return self._writer.http.put(
            self._path(name, "supports"),
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
        )

    def _read(self, machine: Machine, name: str) -> Support | None:
        answer = machine.http.get(self._path(name, "supports"))
        if answer.status_code == 404:
            return None
        self._expect(answer.status_code == 200, f"{name}: {answer.text}")
        return Support.from_bytes(answer.content) if answer.status_code == 200 else None

    def _finds(self, support: Support, name: str) -> bool:
        """Whether the reader finds the model as one that equals a support, exactly."""
        answer = self._reader.http.post(
            f"/v1/spaces/{_SPACE}/neighbors",
            params={"k": 3},
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
        )
        self._expect(answer.status_code == 200, answer.text)
        found = answer.json()
        self._expect(not found["degraded"], f"{name}: an answer was degraded")
        return name in [each["model"] for each in found["items"] if each["similarity"] == 1.0]

    @staticmethod
    def _path(name: str, what: str) -> str:
        return f"/v1/spaces/{_SPACE}/{what}/{name}"

    def _expect(self, right: bool, otherwise: str) -> None:
        if not right:
            self.wrong.append(f"after {self.done.total()} changes: {otherwise}")


def cluster(machine: Machine) -> tuple[int, str]:
    """Cluster the space by a job that either worker carries out.

    Returns:
        How many models it compared, and whether by their supports.
    """
    with Client(machine.server.url, idle_timeout=60) as client:
        made = client.clusterings.create(_SPACE)
        return made.models, made.similarity


def main() -> int:
    """Print what was done and what was wrong; 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--kill-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()
    with (
        postgres_server() as server,
        s3_server() as s3,
        tempfile.TemporaryDirectory() as root,
        machines(Path(root), PostgresBackend(server), s3.bucket(), s3.variables()) as (
            one,
            other,
        ),
    ):
        changes = Changes(one, other, options.seed)
        for _ in range(options.changes // _CHANGES_OF_A_CLUSTERING):
            changes.run(_CHANGES_OF_A_CLUSTERING, kill_every=options.kill_every)
            if cluster(one) != (len(changes.known), "exact"):
                changes.wrong.append("a clustering has not compared all models")
        changes.read_all()
        print(f"{dict(changes.done)}: {len(changes.wrong)} stale, missing or wrong")
        print(*changes.wrong[:5], sep="\n", end="")
    return 1 if changes.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
