"""The finding index in Redis: what it answers on a server, on a cluster, and when it loses them."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import AFTER_HUBS, Feed, Found
from app.fingerprints.finding.redis_shards import (
    SHARDS,
    RedisShards,
    ShardState,
    epoch_of,
    shards_of,
)
from app.fingerprints.finding.rounds import MOST_HOLDERS
from app.fingerprints.finding.shared_index import SharedIndex
from app.infra.deadlines import NEVER
from app.infra.storage.redis import RedisServer
from app.infra.storage.redis_batches import RedisBatches
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.app.fingerprints.finding.made_hub import Hub, fingerprint, keys
from tests.support.servers.redis_server import RedisProcess, redis_cluster, redis_server

pytestmark = pytest.mark.redis

HELD = 600
_tenants = itertools.count(1)

Open = Callable[..., FindingIndex]


def place_of(nodes: list[RedisProcess]) -> str:
    """The URL of some servers."""
    return "redis://" + ",".join(node.url.removeprefix("redis://") for node in nodes)


class Shared:
    """A hub, and the index that machines share of it.

    Args:
        url: of Redis.
        folder: for what stands in for it.
    """

    def __init__(self, stack: ExitStack, url: str, folder: Path, hub: Hub) -> None:
        self.hub = hub
        self.tenant = next(_tenants)
        self.server = stack.enter_context(closing(RedisServer(url, timeout=5, pause=0.1)))
        self.shards = RedisShards(RedisBatches(self.server, "less is found"), epoch_of("a"))
        self.shared = stack.enter_context(closing(SharedIndex(self.shards, self.reading)))
        self.index = stack.enter_context(closing(FindingIndex(folder, shared=self.shared)))

    @contextmanager
    def reading(self, _: int) -> Iterator[Feed]:
        """The hub as it is."""
        yield self.hub

    def follow(self) -> None:
        """Bring the shards up to date."""
        self.shared.follow(self.tenant)

    def find(self, asked: Fingerprint, *left_out: int) -> Found:
        """What is found."""
        return self.index.find_by(
            self.hub, self.tenant, asked, leave_out=left_out, limit=100, deadline=NEVER
        )


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str, Hub], Shared]]:
    """Open the shared index of a hub."""
    with ExitStack() as stack:
        yield lambda url, hub: Shared(stack, url, tmp_path, hub)


def family(draw: np.random.Generator, count: int) -> tuple[Fingerprint, Hub]:
    """A base, and a hub of it and its children, with ids from 1 on, and of strangers."""
    base, hub = keys(draw, HELD), Hub()
    hub.put(1, fingerprint(base))
    for id_ in range(2, count + 1):
        kept = base[draw.random(base.size) < 0.6]
        hub.put(id_, fingerprint(np.union1d(kept, keys(draw, 200))))
    for id_ in range(1000, 1020):
        hub.put(id_, fingerprint(keys(draw, HELD)))
    return fingerprint(base), hub


def ids(found: Found) -> set[int]:
    return {each.id for each in found.candidates}


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a server, or of a cluster."""
    kind: str = request.param
    found = request.getfixturevalue(kind)
    return found.url if kind == "single" else place_of(found)


@pytest.mark.parametrize("url", ["single", "cluster"], indirect=True)
def test_it_answers_as_the_disk_does(
    opened: Callable[[str, Hub], Shared], url: str, tmp_path: Path
) -> None:
    """The same candidates with the same probabilities, through all kinds of changes."""
    draw = np.random.default_rng(8)
    base, hub = family(draw, 15)
    shared, disk = opened(url, hub), FindingIndex(tmp_path / "disk")
    for change in range(4):
        if change == 1:
            hub.put(3, fingerprint(keys(draw, HELD)))
            hub.remove(4)
        if change == 2:
            shared.follow()
        if change == 3:
            hub.put(5, base)
        expected = disk.find_by(hub, 1, base, leave_out=[1], limit=100, deadline=NEVER)
        if change == 0:
            shared.follow()
        found = shared.find(base, 1)
        assert expected == found


def test_keys_of_all_scales_are_spread_over_all_shards() -> None:
    """Those of large models are all small numbers, and lie in as many shards as others."""
    draw = np.random.default_rng(1)
    for scale in (1, 1 << 10, 1 << 20):
        counts = np.bincount(shards_of(keys(draw, 100 * SHARDS, scale)), minlength=SHARDS)
        assert 50 < counts.min() <= counts.max() < 200


def test_a_popular_key_lists_its_first_holders(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """The answer says that it is not all."""
    base, hub = family(np.random.default_rng(2), 150)
    shared = opened(single.url, hub)
    shared.follow()
    found = shared.find(base)
    assert (True, False) == (found.truncated, found.degraded)
    assert 1 == found.candidates[0].id


def test_a_client_cannot_come_before_what_the_service_read(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """Copies that clients stated before take no place of one that a hub has, and say that."""
    base, hub = fingerprint(keys(np.random.default_rng(12), HELD)), Hub()
    for id_ in range(2, MOST_HOLDERS + 10):
        hub.put(id_, base, rank=AFTER_HUBS + id_)
    shared = opened(single.url, hub)
    shared.follow()
    hub.put(1, base)
    shared.follow()
    found = shared.find(base)
    assert ({*range(1, MOST_HOLDERS + 1)}, True) == (ids(found), found.truncated)


def test_what_is_behind_is_built_while_the_disk_answers(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """A first question of many changes, and one after all was lost."""
    base, hub = family(np.random.default_rng(3), 250)
    shared = opened(single.url, hub)
    first = shared.find(base)
    assert 1 in ids(first)
    shared.follow()
    assert not shared.find(base).degraded
    with single.client() as client:
        client.flushall()
    assert 1 in ids(shared.find(base))
    shared.follow()
    assert not shared.find(base).degraded


def test_foreign_values_are_not_believed(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """States and holders that somebody else wrote: the shard begins again, or they are ignored."""
    draw = np.random.default_rng(4)
    base, hub = family(draw, 10)
    shared = opened(single.url, hub)
    shared.follow()
    expected = shared.find(base)
    with single.client() as client:
        names = sorted(name for name in client.keys("mkf*"))
        for name in names:
            kind = draw.integers(6)
            if name.endswith(b":state"):
                if kind == 0:
                    client.hset(name, "epoch", 5)
                elif kind == 1:
                    client.hset(name, "version", "many")
                elif kind == 2:
                    client.set(name, b"text")
                elif kind == 3:
                    client.hset(name, "build", b"other builds")
            elif kind == 0:
                client.append(name, draw.bytes(8 * 5 + 3))
            elif kind == 1:
                client.delete(name)
                client.lpush(name, b"a")
    assert expected.candidates[0].id == shared.find(base).candidates[0].id
    for _ in range(2):  # what one shard holds of another type is found as it is asked
        shared.follow()
        shared.find(base)
    assert ids(expected) <= ids(shared.find(base)) <= set(hub.changed)


def test_past_states_are_left_behind(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """A fingerprint that changes again and again does not fill Redis."""
    draw = np.random.default_rng(5)
    hub = Hub()
    hub.put(1, fingerprint(keys(draw, 40_000)))
    shared = opened(single.url, hub)
    shared.follow()
    name = f"mkf{{{shared.tenant}.0}}:state"
    with single.client() as client:
        client.hset(name, "entries", 10**6)
        before = client.hget(name, "build")
        shared.follow()
        assert before != client.hget(name, "build")
        held = client.keys(f"mkf{{{shared.tenant}.0}}*")
        assert {name.encode()[:-6] + client.hget(name, "build")} == {
            each[:-8] for each in held if not each.endswith(b":state")
        }


@pytest.mark.parametrize("removes", [False, True])
def test_past_states_take_no_places_of_others(
    opened: Callable[[str, Hub], Shared], single: RedisProcess, removes: bool
) -> None:
    """A model that is pushed again and again, under its id or a new one, hides no kin of it."""
    draw, hub = np.random.default_rng(10), Hub()
    base, shared = keys(draw, HELD), opened(single.url, hub)
    for change in range(MOST_HOLDERS + 6):
        hub.put(change if removes else 1, fingerprint(np.union1d(base, keys(draw, 3))))
        shared.follow()
        if removes:
            hub.remove(change)
    hub.put(1000, fingerprint(base))
    shared.follow()
    found = shared.find(fingerprint(base))
    assert ({1000} if removes else {1, 1000}) == ids(found)
    assert (False, False) == (found.truncated, found.degraded)


def test_nothing_is_swept_that_another_machine_has_begun_meanwhile(
    opened: Callable[[str, Hub], Shared], single: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin the shards again at one time, and the one that came first sweeps last."""
    base, hub = family(np.random.default_rng(11), 10)
    first, second = opened(single.url, hub), opened(single.url, hub)
    second.tenant = first.tenant
    apply = first.shards.apply

    def overtaken(*arguments: Any) -> dict[int, ShardState]:
        second.shards.start(second.tenant, range(SHARDS), hub.version)
        second.follow()
        return apply(*arguments)

    monkeypatch.setattr(first.shards, "apply", overtaken)
    first.follow()
    found = first.find(base)
    assert (False, set(range(1, 11))) == (found.degraded, ids(found))


def test_another_database_has_shards_of_its_own_epoch(
    opened: Callable[[str, Hub], Shared], single: RedisProcess
) -> None:
    """A restored database, whose feed is compacted beyond what Redis has seen, builds again."""
    base, hub = family(np.random.default_rng(6), 10)
    shared = opened(single.url, hub)
    shared.follow()
    restored = Hub(changed={each: hub.changed[each] for each in (1, 2)}, version=2**32 + 5)
    restored.compacted_version = 2**32 + 5
    shared.hub = restored
    shared.follow()
    found = shared.find(base)
    assert ({1, 2}, False) == (ids(found), found.degraded)


@pytest.mark.slow
def test_a_killed_master_costs_its_part_of_the_keys(
    opened: Callable[[str, Hub], Shared],
) -> None:
    """Of three, one is killed, and begins again empty: kin are found throughout, and it is said."""
    base, hub = family(np.random.default_rng(7), 30)
    with redis_cluster() as nodes:
        shared = opened(place_of(nodes), hub)
        shared.follow()
        expected = shared.find(base)
        assert not expected.degraded
        sizes = []
        for node in nodes:
            with node.client() as client:
                sizes.append(int(client.dbsize()))
        assert min(sizes) > sum(sizes) / 5  # spread over all
        nodes[1].signal(signal.SIGKILL)
        found = shared.find(base)
        assert (True, ids(expected)) == (found.degraded, ids(found))
        assert 0.5 < found.candidates[0].keys / expected.candidates[0].keys < 0.8
        hub.put(900, base)
        assert 900 in ids(shared.find(base))
        (nodes[1].folder / "dump.rdb").unlink(missing_ok=True)
        nodes[1].start()
        for _ in range(60):
            time.sleep(0.1)  # the server is left alone for a while, and the cluster has to meet it
            shared.follow()
            found = shared.find(base)
            if not found.degraded:
                break
        assert (False, ids(expected) | {900}) == (found.degraded, ids(found) & set(range(1000)))


def test_nothing_answers(opened: Callable[[str, Hub], Shared]) -> None:
    """The disk stands in for a Redis that is away."""
    base, hub = family(np.random.default_rng(9), 10)
    with redis_server() as server:
        shared = opened(server.url, hub)
        shared.follow()
        server.signal(signal.SIGKILL)
        found = shared.find(base)
        assert (True, set(range(1, 11))) == (found.degraded, ids(found))
