"""The Redis store keeps the contract on a server and on a cluster, and survives losing them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from app.infra.errors import BackendUnavailable, explain
from app.infra.storage.redis import RedisServer
from app.models.index.buckets.protocol import Buckets
from app.models.index.buckets.redis import RedisBuckets
from tests.app.models.index.buckets.contract import CAP, BucketsContract
from tests.app.models.index.buckets.machine import BucketsMachine
from tests.app.models.index.buckets.oracle import EPOCH, ids_in, keys, spread, state
from tests.support.servers import forkserver
from tests.support.servers.redis_server import RedisProcess
from tests.support.servers.waiting import wait_for

pytestmark = pytest.mark.redis

PAUSE_S = 0.2


def store(url: str, *, cap: int = CAP) -> RedisBuckets:
    """A store that calls a failed server again after a moment."""
    return RedisBuckets(RedisServer(url, pause=PAUSE_S), cap=cap)


@pytest.mark.smoke
class TestSingle(BucketsContract):
    @pytest.fixture
    def buckets(self, single: RedisProcess) -> Buckets:
        """The store on the shared server."""
        return store(single.url)


class TestCluster(BucketsContract):
    @pytest.fixture
    def buckets(self, cluster: list[RedisProcess]) -> Buckets:
        """The store on the shared cluster, found through one of its nodes."""
        return store(cluster[1].url)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server for one test, which may kill it."""
    process = RedisProcess(tmp_path / "redis")
    try:
        process.start()
        yield process
    finally:
        process.stop()


@pytest.fixture
def buckets(server: RedisProcess) -> RedisBuckets:
    """One space of one model on that server."""
    filled = store(server.url)
    filled.apply(1, EPOCH, 0, 1, [(7, keys(1, 2))], [])
    return filled


@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_any_history_is_followed(kind: str, request: pytest.FixtureRequest) -> None:
    """After any events in any order, the store answers as a dict would."""
    found = request.getfixturevalue(kind)
    kept = store(found.url if kind == "single" else found[0].url, cap=3)

    class Machine(BucketsMachine):
        buckets = kept
        cap = 3

    run_state_machine_as_test(Machine, settings=settings(max_examples=25))


def test_everything_is_named_modelkin(server: RedisProcess, buckets: RedisBuckets) -> None:
    """Each key in Redis begins with the product's name and lies in the space's slot."""
    names = [bytes(name) for name in server.client().keys("*")]  # type: ignore[arg-type]
    assert 4 == len(names)
    assert all(name.startswith(b"modelkin:{1}") for name in names)


def test_sweeping_frees_everything(server: RedisProcess, buckets: RedisBuckets) -> None:
    """A dropped space is swept in pieces until the server is empty."""
    buckets.apply(1, EPOCH, 1, 2, [(i, spread(i, 64)) for i in range(100, 300)], [])
    buckets.drop(1)
    pieces = 0
    while buckets.sweep(50):
        pieces += 1
    assert pieces >= 3
    assert [] == server.client().keys()


def test_a_drop_that_crashed_frees_nothing_that_lives(
    server: RedisProcess, buckets: RedisBuckets
) -> None:
    """The sweep leaves a build alone that was noted but never dropped."""
    server.client().sadd("modelkin:dropped", f"1:{EPOCH}")
    assert 0 == buckets.sweep()
    assert [7] == ids_in(buckets, 1, 1)


def test_a_flush_is_noticed(server: RedisProcess, buckets: RedisBuckets) -> None:
    """After FLUSHALL the space has no state: old steps are refused, and a rebuild works."""
    server.client().flushall()
    assert buckets.state(1) is None
    assert buckets.candidates(1, keys(1), 10).state is None
    assert not buckets.apply(1, EPOCH, 1, 2, [(8, keys(1))], [])
    assert buckets.apply(1, EPOCH, 0, 2, [(7, keys(1)), (8, keys(1))], [])
    assert [7, 8] == ids_in(buckets, 1, 1)


def test_an_older_copy_catches_up(server: RedisProcess, buckets: RedisBuckets) -> None:
    """A server that comes back from an old save is behind, and follows from there."""
    server.client().save()
    assert buckets.apply(1, EPOCH, 1, 2, [(7, keys(2, 3))], [])
    server.signal(signal.SIGKILL)
    server.start()
    wait_for(lambda: raised_by(buckets) == "")
    assert (state(1), [7]) == (buckets.state(1), ids_in(buckets, 1, 1))
    assert buckets.apply(1, EPOCH, 1, 2, [(7, keys(2, 3))], [])
    assert [[], [7], [7]] == [ids_in(buckets, 1, k) for k in (1, 2, 3)]


def raised_by(buckets: RedisBuckets) -> str:
    """The error of a query; empty if it is answered."""
    try:
        buckets.candidates(1, keys(1), 10)
    except BackendUnavailable as error:
        return explain(error)
    return ""


def test_a_killed_server_is_left_alone_until_it_is_back(
    server: RedisProcess, buckets: RedisBuckets
) -> None:
    """kill -9: unavailable, then refused without a call, then answered again after a restart."""
    server.signal(signal.SIGKILL)
    assert "cannot be reached" in raised_by(buckets)
    assert "left alone" in raised_by(buckets)
    server.start()
    wait_for(lambda: raised_by(buckets) == "")
    assert buckets.state(1) is None  # it saves nothing, so everything is lost, and says so


def test_a_frozen_server_is_given_up_in_time(server: RedisProcess, buckets: RedisBuckets) -> None:
    """A server that accepts and never answers is an error, not a hang; thawed, it works again."""
    server.signal(signal.SIGSTOP)
    assert "Timeout" in raised_by(buckets)
    server.signal(signal.SIGCONT)
    wait_for(lambda: raised_by(buckets) == "")
    assert [7] == ids_in(buckets, 1, 1)


def test_a_server_that_is_down_at_the_start_may_come_later(server: RedisProcess) -> None:
    """The store connects at its first use, so the order of starting does not matter."""
    server.signal(signal.SIGKILL)
    buckets = store(server.url)
    assert "cannot be reached" in raised_by(buckets)
    server.start()
    wait_for(lambda: raised_by(buckets) == "")
    buckets.ping()


def test_a_lost_master_loses_its_spaces_alone(cluster: list[RedisProcess]) -> None:
    """With one of three masters frozen, spaces on the others are still served."""
    buckets = store(f"{cluster[0].url},{cluster[1].url.removeprefix('redis://')}")
    for space in range(201, 213):
        buckets.apply(space, EPOCH, 0, 1, [(space, keys(1))], [])
    cluster[2].signal(signal.SIGSTOP)
    served = []
    try:
        for space in range(201, 213):
            time.sleep(PAUSE_S)
            if "" == answer_of(buckets, space):
                served.append(space)
    finally:
        cluster[2].signal(signal.SIGCONT)
    assert 0 < len(served) < 12


def answer_of(buckets: RedisBuckets, space: int) -> str:
    """Empty if the space's one model is found, else the error."""
    try:
        return "" if [space] == ids_in(buckets, space, 1) else "other models"
    except BackendUnavailable as error:
        return str(error)


def test_a_foreign_bucket_is_refused_and_repaired(
    server: RedisProcess, buckets: RedisBuckets
) -> None:
    """A string in place of a bucket is an error; the half-made step is repeated whole."""
    client = server.client()
    name = b"modelkin:{1}" + (EPOCH & 0xFFFFFFFF).to_bytes(4, "big") + (9).to_bytes(8, "big")
    client.set(name, b"not a set")
    with pytest.raises(BackendUnavailable, match="Redis refused") as refused:
        buckets.apply(1, EPOCH, 1, 2, [(7, keys(3, 9)), (8, keys(1))], [])
    assert "WRONGTYPE" in refused.value.reason
    assert state(1) == buckets.state(1)
    client.delete(name)
    assert buckets.apply(1, EPOCH, 1, 2, [(7, keys(3, 9)), (8, keys(1))], [])
    assert [[8], [], [7], [7]] == [ids_in(buckets, 1, k) for k in (1, 2, 3, 9)]


@pytest.mark.parametrize("junk", [b"abc", b"", b"1e5", b"9" * 30, b"1.5"])
def test_a_foreign_member_is_a_lost_space(
    server: RedisProcess, buckets: RedisBuckets, junk: bytes
) -> None:
    """What is not a model in a bucket loses the space, which is built again; sweeps go on."""
    client = server.client()
    name = b"modelkin:{1}" + (EPOCH & 0xFFFFFFFF).to_bytes(4, "big") + (1).to_bytes(8, "big")
    assert [7] == ids_in(buckets, 1, 1)
    client.sadd(name, junk)
    client.sadd("modelkin:dropped", junk)
    found = buckets.candidates(1, keys(1), 100)
    assert (0, None) == (len(found.ids), found.state)
    assert buckets.state(1) is None
    while buckets.sweep():
        pass
    assert not client.exists("modelkin:dropped")
    assert buckets.apply(1, EPOCH + 1, 0, 1, [(8, keys(1))], [])
    assert [8] == ids_in(buckets, 1, 1)


def test_a_foreign_state_is_a_lost_space(server: RedisProcess, buckets: RedisBuckets) -> None:
    """A state of another type, or with other fields, counts as no state."""
    client = server.client()
    client.set("modelkin:{1}:state", "x")
    assert buckets.state(1) is None
    assert buckets.apply(1, EPOCH, 0, 3, [(9, keys(5))], [])
    client.hset("modelkin:{1}:state", "version", "x")
    assert buckets.state(1) is None
    buckets.drop(1)
    assert buckets.apply(1, EPOCH + 1, 0, 3, [(9, keys(5))], [])
    assert [9] == ids_in(buckets, 1, 5)


def test_a_server_that_evicts_is_refused(server: RedisProcess) -> None:
    """A server that may evict buckets is refused, with the reason."""
    client = server.client()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert "allkeys-lru" in raised_by(store(server.url))


def test_a_server_without_room_refuses_and_serves(
    server: RedisProcess, buckets: RedisBuckets
) -> None:
    """With full memory a step is refused, and existing buckets are still read."""
    server.client().config_set("maxmemory", "1")
    with pytest.raises(BackendUnavailable) as caught:
        buckets.apply(1, EPOCH, 1, 2, [(8, keys(1))], [])
    assert "OOM" in explain(caught.value)
    assert ([7], state(1)) == (ids_in(buckets, 1, 1), buckets.state(1))


def follow(url: str, worker: int) -> int:
    """Follow the same history in another process; return how many steps it applied."""
    buckets = store(url)
    won = 0
    for since in range(0, 600, 10):
        step = [(i, spread(i)) for i in range(since + 1, since + 11)]
        won += buckets.apply(5, EPOCH, since, since + 10, step, [])
    return won


def test_processes_take_every_step_once(server: RedisProcess) -> None:
    """Two processes that apply the same history reach the same end as one."""
    with ProcessPoolExecutor(2, forkserver.CONTEXT) as pool:
        won = list(pool.map(follow, [server.url] * 2, range(2)))
    assert (60, state(600)) == (sum(won), store(server.url).state(5))
    alone = store(server.url)
    for v in range(0, 600, 200):
        alone.apply(6, EPOCH, v, v + 200, [(i, spread(i)) for i in range(v + 1, v + 201)], [])
    asked = [spread(i).tolist() for i in range(1, 601, 7)]
    assert [ids_in(alone, 6, *k) for k in asked] == [ids_in(alone, 5, *k) for k in asked]
