"""Processes that put, remove and find fingerprints of one tenant, while they are killed.

``python -m tests.soak.fingerprints.finding [--minutes 5] [--processes 3] [--postgres]``. Each
answer is compared with one that is computed from all rows of its own transaction. Meanwhile
processes are killed, bytes of the index are changed, its files are cut, its folder is deleted.

``--share`` says what the processes have in common: the folder of a machine, or as machines do
Postgres alone, or Postgres and a Redis, which is emptied, killed and frozen as well.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path

from app.bootstrap import open_services
from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.redis_shards import SHARDS
from app.infra.db.database import Database
from app.infra.deadlines import NEVER
from app.infra.errors import FingerprintNotFound, Unavailable
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.app.fingerprints.finding.machines import kin_by_rows, member, opened_index
from tests.support.app.fingerprints import StoredFingerprints
from tests.support.app.harness import settings_of
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.postgres import postgres_server
from tests.support.servers.redis_server import RedisProcess, redis_server

__all__ = ["main"]

_FAMILIES, _NAMES = 6, 400
_CONTEXT = multiprocessing.get_context("spawn")


def work(folder: Path, settings: Settings, seed: int, own: Path) -> None:
    """Put, remove and find, until killed; write down what was done, and what was wrong.

    Args:
        folder: for what is written down.
        own: the folder of the machine.
    """
    draw = random.Random(seed)
    told = (folder / f"{seed}.told").open("w", buffering=1)
    with (
        open_services(settings, prepared=True) as services,
        opened_index(own, services[Database], settings.redis_url) as index,
    ):
        stored = StoredFingerprints(services, services[Tenant])
        while True:
            name, family = f"m{draw.randrange(_NAMES)}", draw.randrange(_FAMILIES)
            if draw.random() < 0.15:
                with suppress(FingerprintNotFound):
                    stored.delete(name)
                    told.write("removed\n")
            else:
                stored.put(name, member(family, draw.randrange(10**9)))
                told.write("put\n")
            told.write(_checked(index, stored, member(family, draw.randrange(10**9))) + "\n")


def _checked(index: FindingIndex, stored: StoredFingerprints, asked: Fingerprint) -> str:
    with stored.database.reading() as session:
        feed = TenantFeed(session, stored.tenant.id)
        try:
            found = index.find_by(feed, stored.tenant.id, asked, limit=1000, deadline=NEVER)
        except Unavailable as error:
            return f"unavailable {error}"
        kin = kin_by_rows(feed, asked)
    named = {each.id: each.keys for each in found.candidates if each.round == 1}
    wrong = {id_ for id_, count in named.items() if count > kin.get(id_, 0)}
    if not found.truncated:  # else a key lists 64 holders: counts may be lower, and kin be missing
        wrong |= {id_ for id_, count in kin.items() if count != named.get(id_)}
    if not wrong:
        return "degraded" if found.degraded else "truncated" if found.truncated else "right"
    if wrong <= _changed_since(stored, feed.version):
        return "overtaken"  # the index has a later change, which another process applied to it
    here = feed.version, found.truncated, found.common
    return f"wrong at {here}: {named.items() - kin.items()} for {kin.items() - named.items()}"


def _changed_since(stored: StoredFingerprints, version: int) -> set[int]:
    with stored.database.reading() as session:
        feed = TenantFeed(session, stored.tenant.id)
        changed = {each.id for page in feed.changed_since(version) for each in page}
        return changed.union(feed.removed_since(version))


@contextmanager
def _stores(postgres: bool, redis: bool) -> Iterator[tuple[Path, Backend, RedisProcess | None]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelkin-soak-")))
        server = stack.enter_context(redis_server()) if redis else None
        backend = PostgresBackend(stack.enter_context(postgres_server())) if postgres else SQLITE
        yield folder, backend, server


def _harm(folder: Path, draw: random.Random) -> str:
    """Delete, cut or change something of the index."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    if not files:
        return "nothing"
    if draw.random() < 0.1:
        shutil.rmtree(folder, ignore_errors=True)
        return "folder deleted"
    path = draw.choice(files)
    try:
        size = path.stat().st_size
        if draw.random() < 0.3:
            os.truncate(path, draw.randrange(size + 1))
            return "file cut"
        with path.open("r+b") as file:
            file.seek(draw.randrange(max(1, size)))
            file.write(bytes([draw.randrange(256)]))
    except OSError:  # it has just been replaced
        return "nothing"
    return "byte changed"


def _harm_redis(server: RedisProcess, draw: random.Random) -> str:
    """Empty it, take a shard of it, or make it stop for a while."""
    what = draw.choice(["Redis emptied", "shard deleted", "Redis killed", "Redis frozen"])
    if what == "Redis killed":
        server.signal(signal.SIGKILL)
        time.sleep(draw.uniform(0, 1))
        server.start()
        return what
    if what == "Redis frozen":
        server.signal(signal.SIGSTOP)
        time.sleep(draw.uniform(0.1, 2))
        server.signal(signal.SIGCONT)
        return what
    with server.client() as client:
        if what == "Redis emptied":
            client.flushall()
        else:
            client.delete(*client.keys(f"mkf{{*.{draw.randrange(SHARDS)}}}:state"), "none")
    return what


class _Processes:
    """Processes, each of which is started again when it has ended.

    Args:
        folder: for what they write down.
        homes: the folder of the machine of each.
    """

    def __init__(self, folder: Path, settings: Settings, homes: list[Path], seed: int) -> None:
        self._folder, self._settings, self._homes = folder, settings, homes
        self._seeds, self._draw = itertools.count(1000 * seed + 1), random.Random(seed)
        self._done = Counter[str]()
        self._running = [self._started(home) for home in homes]

    def run(self, seconds: float, server: RedisProcess | None) -> Counter[str]:
        """Do harm for a time, then kill all; return what was done."""
        end, next_harm = time.monotonic() + seconds, time.monotonic() + 20
        while time.monotonic() < end:
            for place, each in enumerate(self._running):
                if not each.is_alive():
                    self._done["died"] += 1
                    self._running[place] = self._started(self._homes[place])
            if time.monotonic() > next_harm:
                next_harm += self._draw.uniform(1, 6)
                self._done[self._harm(server)] += 1
            time.sleep(0.1)
        for each in self._running:
            each.kill()
            each.join()
        return self._done

    def _harm(self, server: RedisProcess | None) -> str:
        place, kind = self._draw.randrange(len(self._homes)), self._draw.random()
        if kind < 0.3:
            self._running[place].kill()
            self._running[place].join()
            self._running[place] = self._started(self._homes[place])
            return "killed"
        if server is not None and kind < 0.6:
            return _harm_redis(server, self._draw)
        return _harm(self._homes[place], self._draw)

    def _started(self, home: Path) -> SpawnProcess:
        arguments = self._folder, self._settings, next(self._seeds), home
        process = _CONTEXT.Process(target=work, args=arguments)
        process.start()
        return process


def main() -> int:
    """Run, print what happened, and return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--share", choices=["folder", "postgres", "redis"], default="folder")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    alone, redis = options.share == "folder", options.share == "redis"
    with _stores(options.postgres or not alone, redis) as (folder, backend, server):
        names = ["m"] * options.processes if alone else [f"m{n}" for n in range(options.processes)]
        settings = settings_of(folder, backend, redis_url=server.url if server else None)
        with open_services(settings) as services:
            stored = StoredFingerprints(services, services[Tenant])
            for number in range(_NAMES // 2):
                stored.put(f"m{number}", member(number % _FAMILIES, number))
        processes = _Processes(folder, settings, [folder / name for name in names], options.seed)
        done = processes.run(60 * options.minutes, server)
        lines = [line for path in folder.glob("*.told") for line in path.read_text().splitlines()]
    done.update(line.split(" ", 1)[0] for line in lines if line)
    print(dict(done))
    wrong = [line for line in lines if line.startswith("wrong")]
    print(*wrong[:3], sep="\n")
    return bool(wrong or done["died"])


if __name__ == "__main__":
    raise SystemExit(main())
