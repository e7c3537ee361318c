"""The counters of rate limits: the same contract in memory, on a Redis server and on a cluster."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.infra.errors import BackendUnavailable
from app.infra.storage.redis import RedisServer
from app.tenancy.auth.counters import Counters, MemoryCounters, Quota, RedisCounters, Standing
from tests.support.servers.redis_server import RedisProcess

WINDOW_S = 2
THREE, FIVE = Quota("writes", 3), Quota("requests", 5)


@pytest.fixture
def who() -> str:
    """A new client of the counters."""
    return uuid.uuid4().hex


IN_REDIS = [pytest.param(kind, marks=pytest.mark.redis) for kind in ("single", "cluster")]


@pytest.fixture(params=["memory", *IN_REDIS])
def counters(request: pytest.FixtureRequest) -> Counters:
    """Counters of each kind, with a window of two seconds."""
    if request.param == "memory":
        return MemoryCounters(window=WINDOW_S)
    found = request.getfixturevalue(request.param)
    url = found.url if request.param == "single" else found[2].url
    return RedisCounters(RedisServer(url), window=WINDOW_S)


def take(counters: Counters, who: str, quotas: Sequence[Quota], times: int) -> list[bool]:
    """Whether each of some takes was admitted."""
    return [counters.take(who, quotas).admitted for _ in range(times)]


@pytest.mark.slow
def test_no_more_than_the_limit_is_admitted(counters: Counters, who: str) -> None:
    """What comes beyond it is refused, until the first of them are a window old."""
    assert [True] * 3 + [False] * 3 == take(counters, who, [THREE], 6)
    time.sleep(WINDOW_S + 0.05)
    assert [True] * 3 + [False] == take(counters, who, [THREE], 4)


@pytest.mark.smoke
def test_each_is_told_what_is_left(counters: Counters, who: str) -> None:
    """The remaining count and the seconds until it grows are those of each quota."""
    taken = counters.take(who, [THREE, FIVE])
    assert taken.standings == (Standing(THREE, 2, WINDOW_S), Standing(FIVE, 4, WINDOW_S))
    assert all(1 <= standing.reset <= WINDOW_S for standing in counters.take(who, [FIVE]).standings)


@pytest.mark.slow
def test_waiting_as_long_as_told_is_enough(counters: Counters, who: str) -> None:
    """After ``reset`` seconds there is room again, at the latest."""
    take(counters, who, [THREE], 2)
    time.sleep(0.6)
    take(counters, who, [THREE], 1)
    refused = counters.take(who, [THREE])
    assert (False, 0) == (refused.admitted, refused.standings[0].remaining)
    time.sleep(refused.standings[0].reset)
    assert counters.take(who, [THREE]).admitted


def test_what_is_refused_is_not_counted(counters: Counters, who: str) -> None:
    """One quota that is used up leaves the others as they are."""
    take(counters, who, [FIVE, THREE], 20)
    assert [True, True, False] == take(counters, who, [FIVE], 3)


def test_a_look_costs_nothing(counters: Counters, who: str) -> None:
    """A cost of 0 asks whether there is room and uses none of it."""
    assert {True} == {counters.take(who, [THREE], cost=0).admitted for _ in range(9)}
    take(counters, who, [THREE], 3)
    looked = counters.take(who, [THREE], cost=0)
    assert (False, 0) == (looked.admitted, looked.standings[0].remaining)


def test_one_does_not_count_for_another(counters: Counters, who: str) -> None:
    """A client that has used up its quota does not reduce the quota of another."""
    take(counters, who, [THREE], 9)
    assert counters.take(f"{who}-other", [THREE]).admitted


def test_many_at_once_are_counted_once_each(counters: Counters, who: str) -> None:
    """Of a crowd of threads exactly as many get through as the quota has."""
    quota, crowd = Quota("requests", 37), 80
    together = threading.Barrier(8)

    def some(_: int) -> int:
        together.wait()
        return sum(take(counters, who, [quota], crowd // 8))

    with ThreadPoolExecutor(8) as pool:
        assert quota.limit == sum(pool.map(some, range(8)))


def test_two_processes_share_what_is_in_redis(single: RedisProcess, who: str) -> None:
    """Counters over two connections of their own are one."""
    first, second = (RedisCounters(RedisServer(single.url)) for _ in range(2))
    assert [True, True] == take(first, who, [THREE], 2)
    assert [True, False] == take(second, who, [THREE], 2)


def test_keys_in_redis_go_by_themselves(single: RedisProcess, who: str) -> None:
    """Each key lives for a window after the last count, and is named after the product."""
    RedisCounters(RedisServer(single.url)).take(who, [THREE, FIVE])
    with single.client() as client:
        [key] = client.keys(f"*{who}*")
        assert key == f"modelkin:rate:{who}".encode()
        assert 58 <= client.ttl(key) <= 60
        assert 2 == client.hlen(key)


def test_seconds_that_have_not_been_are_forgotten(single: RedisProcess, who: str) -> None:
    """A server whose clock was put back does not refuse until its old time comes again."""
    with single.client() as client:
        client.hset(f"modelkin:rate:{who}", f"writes:{int(time.time()) + 5000}", 3)
    assert RedisCounters(RedisServer(single.url)).take(who, [THREE]).admitted


def test_a_redis_that_is_away_is_an_error_soon(who: str) -> None:
    """If no server listens at the address, the error comes at once."""
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        RedisCounters(RedisServer("redis://127.0.0.1:1")).take(who, [THREE])
    assert time.monotonic() - began < 0.5


@settings(max_examples=100)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 70), st.sampled_from("ab"), st.integers(0, 2)), max_size=80
    ),
    limit=st.integers(1, 6),
)
def test_memory_counts_as_a_list_of_times_does(
    steps: list[tuple[int, str, int]], limit: int
) -> None:
    """Whatever is taken when, the answers are those of all the times written down."""
    now, taken = 1000, dict[str, list[int]](a=[], b=[])
    counters = MemoryCounters(clock=lambda: now)
    quota = Quota("requests", limit)
    for wait, who, cost in steps:
        now += wait
        recent = [second for second in taken[who] if second > now - 60]
        admitted = len(recent) < limit
        if admitted:
            taken[who] += [now] * cost
            recent += [now] * cost
        reset = recent[0] + 60 - now if recent else 60
        found = counters.take(who, [quota], cost)
        assert admitted == found.admitted
        assert (Standing(quota, max(0, limit - len(recent)), reset),) == found.standings


def test_memory_is_bounded() -> None:
    """Of more callers than it may remember, it forgets who was not seen for longest."""
    counters = MemoryCounters(callers=100)
    take(counters, "early", [THREE], 3)
    for number in range(99):
        counters.take(str(number), [THREE])
    assert not counters.take("early", [THREE]).admitted
    for number in range(100):
        counters.take(f"late {number}", [THREE])
    assert counters.take("early", [THREE]).admitted
