"""Rate limits: only the client that exceeds one must wait, and a lost Redis refuses no request."""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import modelkin
from app.infra.db.database import Database
from app.tenancy.auth.service import SCOPES, KeyService, generate
from tests.soak.freshness import answering
from tests.support.declared_problems import checked
from tests.support.http_space import SUPPORT, Space, assert_problem, family
from tests.support.servers.redis_server import RedisProcess, redis_cluster, redis_server
from tests.support.servers.server_process import Server, raw_exchange

LIMIT, WRITES = 12, 4
LIMITED = f"--rate-limit={LIMIT}", f"--write-rate-limit={WRITES}"
BEHIND_PROXY = "--trusted-proxies=10.9.9.9, 127.0.0.0/8"

_addresses = (f"192.0.2.{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for no keys, behind a proxy, and counts in its own memory."""
    running = Server(tmp_path_factory.mktemp("open"), *LIMITED, BEHIND_PROXY).start()
    yield running
    assert 0 == running.stop()


@pytest.fixture
def anyone(open_service: Server) -> Iterator[httpx.Client]:
    """A client at an address that no other client has used."""
    with new_client(open_service) as client:
        yield client


def new_client(server: Server, key: str | None = None, at: str | None = None) -> httpx.Client:
    """A client with a key, from an address of its own unless one is given."""
    headers = {"X-Forwarded-For": next(_addresses) if at is None else at}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return checked(httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False))


def statuses(client: httpx.Client, count: int, path: str = "/v1/spaces") -> Counter[int]:
    """The statuses of some requests, one after another."""
    return Counter(client.get(path).status_code for _ in range(count))


def make_space(client: httpx.Client) -> httpx.Response:
    """A write that can be repeated."""
    return client.post("/v1/spaces", json={"name": "s", "num_parameters": 1000})


def test_no_limit_is_there_unless_it_is_set(space: Space) -> None:
    """By default no request is refused, and answers have no headers about limits."""
    answers = [space.http.get("/v1/spaces") for _ in range(3 * LIMIT)]
    assert {200} == {answer.status_code for answer in answers}
    assert not any("ratelimit" in answer.headers for answer in answers)


def test_beyond_the_limit_is_a_problem_that_says_when(anyone: httpx.Client) -> None:
    """The limit is exact, and the refusal says how many seconds to wait."""
    assert {200: LIMIT} == statuses(anyone, LIMIT)
    refused = anyone.get("/v1/spaces")
    detail = assert_problem(refused, 429, "rate_limited")
    wait = int(refused.headers["retry-after"])
    assert 50 <= wait <= 60
    assert f"{LIMIT} a minute" in detail
    assert f"{wait} s" in detail


def test_each_answer_tells_what_is_left(anyone: httpx.Client) -> None:
    """RateLimit-Policy and RateLimit are those of the draft, on good answers and on refusals."""
    first = anyone.get("/v1/spaces")
    assert f'"requests";q={LIMIT};w=60' == first.headers["ratelimit-policy"]
    assert f'"requests";r={LIMIT - 1};t=60' == first.headers["ratelimit"]
    written = make_space(anyone)
    assert (
        f'"requests";q={LIMIT};w=60, "writes";q={WRITES};w=60'
        == (written.headers["ratelimit-policy"])
    )
    left = rf'"requests";r={LIMIT - 2};t=\d+, "writes";r={WRITES - 1};t=60'
    assert re.fullmatch(left, written.headers["ratelimit"])
    statuses(anyone, LIMIT)
    refused = anyone.get("/v1/spaces")
    assert re.fullmatch(r'"requests";r=0;t=\d+', refused.headers["ratelimit"])
    assert refused.headers["ratelimit"].endswith(f"t={refused.headers['retry-after']}")


def test_writes_have_a_limit_of_their_own(anyone: httpx.Client) -> None:
    """Beyond it reads go on, and a POST that only asks is a read."""
    assert {200, 201} >= {make_space(anyone).status_code for _ in range(WRITES)}
    assert "writes" in assert_problem(make_space(anyone), 429, "rate_limited")
    assert 200 == anyone.get("/v1/spaces").status_code
    asked = anyone.post("/v1/spaces/s/neighbors", json={"indices": [1, 2]})
    assert 200 == asked.status_code, asked.text


def test_a_refused_write_costs_no_reads(anyone: httpx.Client) -> None:
    """What is refused is not counted, neither as a write nor as a request."""
    codes = Counter(make_space(anyone).status_code for _ in range(3 * LIMIT))
    assert 3 * LIMIT - WRITES == codes[429]
    assert {200: LIMIT - WRITES} == statuses(anyone, LIMIT - WRITES)


def test_addresses_are_counted_apart(open_service: Server, anyone: httpx.Client) -> None:
    """One that is used up leaves the others alone; a network of one household is one address."""
    assert 3 == statuses(anyone, LIMIT + 3)[429]
    with new_client(open_service) as other:
        assert {200: 1} == statuses(other, 1)
    with new_client(open_service, at="2001:db8:7:7::1") as first:
        statuses(first, LIMIT)
    with new_client(open_service, at="2001:db8:7:7:ffff::2") as same:
        assert {429: 1} == statuses(same, 1)
    with new_client(open_service, at="2001:db8:7:8::1") as neighbour:
        assert {200: 1} == statuses(neighbour, 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/docs", "/openapi.json"])
def test_probes_and_pages_about_the_service_are_not_limited(
    anyone: httpx.Client, path: str
) -> None:
    """They are answered without being counted, and whatever was counted."""
    assert {200: 3} == statuses(anyone, 3, path)
    assert f'"requests";r={LIMIT - 1};t=60' == anyone.get("/v1/spaces").headers["ratelimit"]
    statuses(anyone, LIMIT)
    assert {200: 3} == statuses(anyone, 3, path)


def test_a_refusal_reads_no_body(open_service: Server, anyone: httpx.Client) -> None:
    """The answer is there while the body that was announced has not begun."""
    statuses(anyone, LIMIT)
    head = (
        "PUT /v1/spaces/s/supports/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
        f"Content-Type: {SUPPORT}\r\nX-Forwarded-For: {anyone.headers['X-Forwarded-For']}\r\n\r\n"
    )
    began = time.monotonic()
    answer = raw_exchange(open_service.url, head.encode())
    assert b" 429 " in answer.partition(b"\r\n")[0]
    assert time.monotonic() - began < 2


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    """A Redis that tests freeze and wake."""
    with redis_server() as process:
        yield process


@pytest.fixture(scope="module")
def locked(redis: RedisProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys and counts in Redis."""
    folder = tmp_path_factory.mktemp("locked")
    flags = "--auth=required", f"--redis-url={redis.url}", *LIMITED, BEHIND_PROXY
    running = Server(folder, *flags).start()
    yield running
    assert 0 == running.stop()


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """The name of a tenant of the test's own."""
    name: str = request.node.name
    return name.lower().replace("_", "-")[:60]


def new_key(server: Server, tenant: str) -> str:
    """A key of the tenant."""
    database = Database(server.database_url, timeout=5)
    with database.writing() as session:
        key = KeyService().create(session, tenant, scopes=SCOPES)
    database.close()
    return key


def test_a_tenant_is_counted_as_a_whole(locked: Server, tenant: str) -> None:
    """Two keys from two addresses share what their tenant has; another tenant has its own."""
    with new_client(locked, new_key(locked, tenant)) as first:
        assert {200: LIMIT - 2} == statuses(first, LIMIT - 2)
    with new_client(locked, new_key(locked, tenant)) as second:
        assert {200: 2, 429: 3} == statuses(second, 5)
        assert tenant in second.get("/v1/spaces").json()["detail"]
    with new_client(locked, new_key(locked, f"{tenant}2"[-60:])) as other:
        assert {200: 1} == statuses(other, 1)


def test_guessing_keys_is_limited_by_address(locked: Server) -> None:
    """Wrong keys, whichever, and none at all, are 401 so many times and then 429, everywhere."""
    with new_client(locked) as guesser:
        codes = Counter[int]()
        for number in range(LIMIT + 4):
            headers = {} if number % 4 == 0 else {"Authorization": f"Bearer {generate()}"}
            path = ("/v1/spaces", "/metrics", "/")[number % 3]
            answer = guesser.get(path, headers=headers)
            codes[answer.status_code] += 1
        assert {401: LIMIT, 429: 4} == codes
        assert "wrong keys" in assert_problem(answer, 429, "rate_limited")
    with new_client(locked) as elsewhere:
        assert {401: 1} == statuses(elsewhere, 1)


def test_a_good_key_is_not_held_up_by_others_who_guess(locked: Server, tenant: str) -> None:
    """Behind one address, who has shown a good key goes on; a new key has to wait with the rest."""
    address = next(_addresses)
    with new_client(locked, new_key(locked, tenant), at=address) as known:
        assert {200: 1} == statuses(known, 1)
        with new_client(locked, at=address) as guesser:
            assert {401: LIMIT, 429: 1} == statuses(guesser, LIMIT + 1)
        assert {200: 2} == statuses(known, 2)
        with new_client(locked, new_key(locked, tenant), at=address) as late:
            assert {429: 1} == statuses(late, 1)


def test_a_revoked_key_is_a_guess(locked: Server, tenant: str) -> None:
    """What was good before and is not any more counts like any wrong key."""
    key = new_key(locked, tenant)
    with new_client(locked, key) as client:
        assert {200: 1} == statuses(client, 1)
        database = Database(locked.database_url, timeout=5)
        with database.writing() as session:
            KeyService().revoke(session, key)
        database.close()
        assert {401: LIMIT, 429: 2} == statuses(client, LIMIT + 2)


def test_buckets_and_counters_are_both_in_redis(
    locked: Server, redis: RedisProcess, tenant: str
) -> None:
    """The server runs the scripts of both, on keys of both kinds.

    The counters' keys reveal nothing about the client, and they expire.
    """
    with new_client(locked, new_key(locked, tenant)) as client, redis.client() as seen:
        client.post("/v1/spaces", json={"name": "s", "num_parameters": 10_000})
        with seen.monitor() as monitor:
            for name, support in list(family(3, 10_000, 300, 3).items()):
                client.put(
                    f"/v1/spaces/s/supports/{name}",
                    content=support.to_bytes(),
                    headers={"Content-Type": SUPPORT},
                )
            found = client.get("/v1/spaces/s/neighbors", params={"model": "m000", "method": "lsh"})
            commands = _commands(monitor, until="modelkin:{")
        keys = seen.keys("*")
        rates = [key for key in keys if key.startswith(b"modelkin:rate:")]
        assert 200 == found.status_code, found.text
        assert any("EVALSHA" in line and "modelkin:rate:" in line for line in commands)
        assert any("EVALSHA" in line and "modelkin:{" in line for line in commands)
        assert any(key.startswith(b"modelkin:{") for key in keys)
        assert rates
        assert all(re.fullmatch(rb"modelkin:rate:[0-9a-f]{32}", key) for key in rates)
        assert all(0 < seen.ttl(key) <= 60 for key in rates)


def _commands(monitor: object, until: str) -> list[str]:
    """The commands that a Redis received, up to the first that names ``until``."""
    lines: list[str] = []
    while not lines or until not in lines[-1]:
        lines.append(str(monitor.next_command()["command"]))  # type: ignore[attr-defined]
    return lines


def test_the_sdk_waits_as_long_as_it_is_told(
    locked: Server, redis: RedisProcess, tenant: str
) -> None:
    """A call that would be refused for two more seconds succeeds after them, without an error."""
    with redis.client() as counters:
        before = set(counters.keys("modelkin:rate:*"))
        with modelkin.Client(locked.url, api_key=new_key(locked, tenant)) as client:
            assert [] == list(client.spaces.list())
            [mine] = set(counters.keys("modelkin:rate:*")) - before
            nearly_over = int(counters.time()[0]) - 58
            counters.hset(mine, mapping={f"requests:{nearly_over}": LIMIT})
            began = time.monotonic()
            assert [] == list(client.spaces.list())
    assert 1 <= time.monotonic() - began < 5
    assert re.search(r"GET /v1/spaces 429 ", locked.log.read_text())


def test_without_redis_nothing_is_refused_for_it(
    locked: Server, redis: RedisProcess, tenant: str
) -> None:
    """Frozen, Redis costs one wait of half a second; then each process counts for itself, and the
    log has a line for that and one for its end.
    """
    with new_client(locked, new_key(locked, tenant)) as client:
        assert {200: 1} == statuses(client, 1)
        redis.signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert {200: 5} == statuses(client, 5)
            assert time.monotonic() - began < 1.5
            assert {200: LIMIT - 5, 429: 2} == statuses(client, LIMIT - 3)
        finally:
            redis.signal(signal.SIGCONT)
        time.sleep(2.1)
        # One for sure, and perhaps one that Redis received while frozen and that also counted here.
        assert statuses(client, LIMIT)[429] in {1, 2}
    log = locked.log.read_text()
    assert 1 == log.count("each process counts requests for itself")
    assert 1 == log.count("requests are counted in Redis again")
    assert "Traceback" not in log


@pytest.mark.redis
def test_processes_share_their_counters_through_a_cluster(tmp_path: Path) -> None:
    """Whichever of two processes answers, the sum is what is limited; and an address that a client
    makes up changes nothing where no proxy is trusted.
    """
    with redis_cluster() as nodes:
        url = "redis://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        flags = "--processes=2", f"--redis-url={url}", f"--rate-limit={LIMIT}"
        server = Server(tmp_path, *flags).start()
        codes, processes = Counter[int](), set[int]()
        for _ in range(2 * LIMIT):
            with new_client(server) as client:  # a connection goes to any process
                codes += statuses(client, 1)
                processes.add(answering(client, server))
        assert {200: LIMIT, 429: LIMIT} == codes
        assert 2 == len(processes)
        held = [key for node in nodes for key in node.client().keys("*")]
        assert [b"modelkin:rate:"] == [key[:14] for key in held]
        assert 0 == server.stop()
