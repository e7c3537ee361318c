"""LSH over HTTP: buckets in the database or in a real Redis, compared with brute force.

Answers stay right when Redis is emptied, frozen, killed, or was never there.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

import modelkin
from app.infra.db.database import Database
from app.infra.storage.redis import RedisServer
from app.models.catalog.repositories.models import models_by_id
from app.models.index.buckets.redis import RedisBuckets
from app.setting_messages import validation_messages
from app.settings import Settings
from modelkin import Banding, Support
from modelkin.core.sketching.banding import band_keys, recall_at
from tests.support.backends import Backend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import (
    Space,
    assert_problem,
    random_support,
    ranking,
    related,
    true_neighbors,
)
from tests.support.servers import forkserver
from tests.support.servers.redis_server import RedisProcess, redis_server
from tests.support.servers.server_process import Server, environment
from tests.support.servers.waiting import wait_for

M, K = 10_000, 600
RNG = np.random.default_rng(70)
BASE = random_support(RNG, M, K)
CLOSE = {f"close{i}": related(RNG, BASE, share) for i, share in enumerate((0.8, 0.86, 0.93))}
MODELS = {"base": BASE, **CLOSE} | {f"far{i:02d}": random_support(RNG, M, K) for i in range(24)}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    """A Redis that tests may empty but not end."""
    with redis_server() as process:
        yield process


@pytest.fixture(scope="module")
def with_redis(
    backend: Backend, redis: RedisProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A service that keeps its buckets in Redis."""
    folder = tmp_path_factory.mktemp("lsh")
    server = Server(folder, f"--redis-url={redis.url}", backend=backend).start()
    yield server
    assert 0 == server.stop()


@pytest.fixture
def redis_http(with_redis: Server, redis: RedisProcess) -> Iterator[httpx.Client]:
    """HTTP to that service, with an empty Redis."""
    with redis.client() as client:
        client.flushall()
    with checked(httpx.Client(base_url=with_redis.url, timeout=60, trust_env=False)) as http:
        yield http


@pytest.fixture
def near_redis(redis_http: httpx.Client) -> Space:
    """A space of that service, with three close kin of ``base`` among two dozen others."""
    return banded(redis_http)


@pytest.fixture(params=["redis", "database"])
def crowd(request: pytest.FixtureRequest, redis_http: httpx.Client, http: httpx.Client) -> Space:
    """The same models, with buckets in Redis and in the database."""
    return banded(redis_http if request.param == "redis" else http)


_numbers = itertools.count()


def filled(http: httpx.Client, **body: Any) -> Space:
    """A space with all the models."""
    space = Space(http, M, **body)
    space.put_all(MODELS)
    return space


def banded(http: httpx.Client) -> Space:
    """A space with all the models, and buckets that answer."""
    space = filled(http)
    wait_for_lsh(space)
    return space


def lsh(space: Space, **params: Any) -> dict[str, Any]:
    """The neighbours of ``base`` by its buckets."""
    return space.neighbors("base", **{"method": "lsh", "min_similarity": 0.7, **params})


def assert_right(answer: dict[str, Any]) -> None:
    """The answer has all close kin, in order, whatever method found them."""
    assert true_neighbors(BASE, CLOSE) == ranking(answer)


def wait_for_lsh(space: Space) -> None:
    """Wait until buckets answer again; the answers until then are right as well."""

    def answered() -> bool:
        answer = lsh(space)
        assert_right(answer)
        return ("lsh", False) == (answer["method"], answer["degraded"])

    wait_for(answered)


def test_lsh_finds_close_kin(crowd: Space) -> None:
    """A query finds all kin of S above .7, compares few other models, and is not degraded."""
    answer = lsh(crowd)
    assert ("lsh", False) == (answer["method"], answer["degraded"])
    assert_right(answer)
    assert answer["candidates"] < 20


def test_lsh_sees_every_write(crowd: Space) -> None:
    """A new model, another content and a deletion each show in the very next answer."""
    assert_right(lsh(crowd))
    twin = related(np.random.default_rng(1), BASE, 0.97)
    crowd.put("far00", twin)
    crowd.put("new", twin)
    found = [name for name, _ in ranking(lsh(crowd))]
    assert ["far00", "new"] == found[:2]
    crowd.put("new", MODELS["far07"])
    assert 204 == crowd.http.delete(crowd.path("models", "far00")).status_code
    answer = lsh(crowd)
    assert_right(answer)
    assert ("lsh", False) == (answer["method"], answer["degraded"])


def test_lsh_with_tags_keeps_to_them(crowd: Space) -> None:
    """Only kin with the tag are answered, and all of them."""
    crowd.put("close1", CLOSE["close1"], tags=["rare"])
    crowd.put("far01", MODELS["far01"], tags=["rare"])
    assert ["close1"] == [name for name, _ in ranking(lsh(crowd, tag="rare"))]


def test_an_answer_reports_the_recall_of_its_banding(crowd: Space) -> None:
    """``recall`` is the collision curve at the bound: next to 1 at .7, and 0 at 0."""
    banding = Banding(64, 4)
    for least in (0.0, 0.3, 0.7):
        answer = lsh(crowd, min_similarity=least)
        assert pytest.approx(recall_at(least, banding)) == answer["recall"]
    assert crowd.neighbors("base", method="scan")["recall"] is None


def test_lsh_of_a_body_finds_its_stored_model(crowd: Space) -> None:
    """A support in the body finds the stored model with that support, with and without Redis."""
    answer = crowd.find(BASE.to_bytes(), method="lsh", min_similarity=0.99)
    assert [("base", 1.0)] == ranking(answer)
    assert "lsh" == answer["method"]


def test_lsh_of_an_empty_space_is_empty(space: Space) -> None:
    """A space without models has no buckets, which is not degraded."""
    support = BASE.to_bytes()
    wait_for(lambda: space.find(support, method="lsh")["method"] == "lsh")
    answer = space.find(support, method="lsh")
    assert ([], False) == (answer["items"], answer["degraded"])


def test_auto_takes_lsh_where_its_recall_suffices(http: httpx.Client) -> None:
    """Beyond small spaces: lsh from .99 recall on, a scan below."""
    m = 1 << 30
    space = Space(http, m)
    supports = {f"m{i:03d}": Support.from_indices(np.arange(i, m, m // 50), m) for i in range(201)}
    space.put_all(supports)
    wait_for(lambda: space.neighbors("m000", method="lsh")["method"] == "lsh")
    for least, method in ((0.9, "lsh"), (0.4, "scan")):
        answer = space.neighbors("m000", min_similarity=least)
        assert (method, False) == (answer["method"], answer["degraded"])


def test_a_space_shows_its_banding(http: httpx.Client) -> None:
    """The requested banding, and its recall at four similarities."""
    shown = Space(http, M, banding={"bands": 85, "rows": 3}).show()["banding"]
    assert (85, 3) == (shown["bands"], shown["rows"])
    assert {str(s): recall_at(s, Banding(85, 3)) for s in (0.3, 0.5, 0.7, 0.9)} == shown["recall"]


@pytest.mark.parametrize(("h", "bands", "rows"), [(256, 64, 4), (128, 42, 3), (2, 2, 1)])
def test_the_default_banding_fits_the_signature(
    http: httpx.Client, h: int, bands: int, rows: int
) -> None:
    """64 x 4, or fewer rows for few minhashes."""
    shown = Space(http, M, signature={"num_perm": h}).show()["banding"]
    assert (bands, rows) == (shown["bands"], shown["rows"])


@pytest.mark.parametrize(
    ("similarity", "bands", "rows"), [(0.7, 53, 4), (0.5, 40, 2), (0.9, 26, 9)]
)
def test_a_banding_is_chosen_for_a_similarity(
    http: httpx.Client, client: modelkin.Client, similarity: float, bands: int, rows: int
) -> None:
    """The most selective banding that finds 99% at that S; a repeated request gives that space."""
    space = Space(http, M, banding={"similarity": similarity})
    shown = space.show()["banding"]
    assert (bands, rows) == (shown["bands"], shown["rows"])
    again = client.ensure_space(space.name, num_parameters=M, banding=similarity)
    assert Banding(bands, rows) == again.banding


@pytest.mark.parametrize(
    ("banding", "field", "said"),
    [
        ({"similarity": 0.01}, "similarity", "256 x 1 finds"),
        ({"similarity": 0.5, "rows": 2}, "similarity", "not both"),
        ({"bands": 8}, "rows", "both bands and rows"),
        ({"rows": 8}, "bands", "both bands and rows"),
        ({}, "bands", "both bands and rows"),
    ],
)
def test_an_impossible_banding_is_a_422(
    http: httpx.Client, banding: dict[str, Any], field: str, said: str
) -> None:
    """A similarity out of reach, two ways at once, half of one: a 422 that names the fault."""
    body = {"name": f"banded-{next(_numbers)}", "num_parameters": M, "banding": banding}
    answer = http.post("/v1/spaces", json=body)
    assert said in assert_problem(answer, 422, "invalid_parameter", f"banding.{field}")


@pytest.mark.parametrize("banding", [{"bands": 65, "rows": 4}, {"bands": 0, "rows": 4}])
def test_a_banding_out_of_range_is_a_422(http: httpx.Client, banding: dict[str, int]) -> None:
    """More values than the signature has, or zero: the field is named."""
    body = {"name": f"banded-{next(_numbers)}", "num_parameters": M, "banding": banding}
    answer = http.post("/v1/spaces", json=body)
    assert_problem(answer, 422, "invalid_parameter", "banding.bands")


def test_the_same_name_with_another_banding_is_a_409(space: Space) -> None:
    """The error reports the banding of the existing space."""
    body = {"name": space.name, "num_parameters": M}
    assert 200 == space.http.post("/v1/spaces", json=body).status_code
    other = space.http.post("/v1/spaces", json=body | {"banding": {"bands": 85, "rows": 3}})
    assert "64 x 4" in assert_problem(other, 409, "space_exists")


def test_redis_is_really_used(near_redis: Space, redis: RedisProcess) -> None:
    """A script on the server's keys answers the query, as the server reports."""
    with redis.client() as client, client.monitor() as monitor:
        lsh(near_redis)
        seen: list[str] = []
        while not seen or "EVALSHA" not in seen[-1]:
            seen.append(str(monitor.next_command()["command"]))
        keys = client.keys("*")
    assert "modelkin:{" in seen[-1]
    assert len(keys) > 500
    assert all(key.startswith(b"modelkin:") for key in keys)


def test_a_flushed_redis_is_noticed_and_filled_again(
    near_redis: Space, redis: RedisProcess
) -> None:
    """After FLUSHALL no answer is wrong, and buckets answer again by themselves."""
    with redis.client() as client:
        client.flushall()
        wait_for_lsh(near_redis)
        assert client.dbsize() > 500


def test_buckets_of_another_epoch_are_not_used(near_redis: Space, redis: RedisProcess) -> None:
    """Buckets of another build than the database's are dropped and built again."""
    with redis.client() as client:
        (state,) = client.keys("*:state")
        client.hset(state, "epoch", "77")
        wait_for_lsh(near_redis)
        assert b"77" != client.hget(state, "epoch")


def test_a_redis_ahead_of_the_database_is_not_used(near_redis: Space, redis: RedisProcess) -> None:
    """Versions that the database never had, as after a restored backup, cause a new build."""
    with redis.client() as client:
        (state,) = client.keys("*:state")
        before = client.hget(state, "epoch")
        client.hset(state, "version", "99999")
        wait_for_lsh(near_redis)
        assert before != client.hget(state, "epoch")


def test_a_deleted_space_leaves_redis(near_redis: Space, redis: RedisProcess) -> None:
    """No key of a deleted space remains."""
    assert 204 == near_redis.http.delete(f"/v1/spaces/{near_redis.name}").status_code
    with redis.client() as client:
        wait_for(lambda: client.dbsize() == 0)


@pytest.fixture
def mortal() -> Iterator[RedisProcess]:
    """A running Redis for one test."""
    with redis_server() as process:
        yield process


@on_one_database
@pytest.mark.redis
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_answers_stay_right_without_redis(
    start: Start, mortal: RedisProcess, number: signal.Signals
) -> None:
    """Killed or frozen, Redis costs a moment and ``degraded``; it is used again later."""
    server = start(f"--redis-url={mortal.url}")
    # redis-py by itself would wait for 25 s and more.
    with checked(httpx.Client(base_url=server.url, timeout=5, trust_env=False)) as http:
        space = filled(http)
        assert_right(lsh(space))
        mortal.signal(number)
        for _ in range(3):
            answer = lsh(space)
            assert_right(answer)
            assert ("scan", True, None) == (answer["method"], answer["degraded"], answer["recall"])
        if number == signal.SIGKILL:
            mortal.start()
        else:
            mortal.signal(signal.SIGCONT)
        wait_for_lsh(space)
    assert 0 == server.stop()


@on_one_database
@pytest.mark.redis
def test_a_service_starts_without_its_redis(start: Start, mortal: RedisProcess) -> None:
    """Only the buckets wait for Redis: everything else works, and they follow later."""
    mortal.signal(signal.SIGKILL)
    server = start(f"--redis-url={mortal.url}")
    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
        space = filled(http)
        answer = lsh(space)
        assert_right(answer)
        assert answer["degraded"]
        mortal.start()
        wait_for_lsh(space)


def rebuild(server: Server, *flags: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """``python -m app rebuild-buckets`` on the stores of a service."""
    env = environment(MODELKIN_DATABASE_URL=server.database_url, **settings)
    return forkserver.run("app", "rebuild-buckets", *flags, env=env)


def expected_buckets() -> dict[int, set[str]]:
    """Every bucket of the models, computed from their supports."""
    buckets = defaultdict(set)
    for name, support in MODELS.items():
        for key in band_keys(support.signature().values, Banding(64, 4)).tolist():
            buckets[key].add(name)
    return buckets


def test_rebuilt_buckets_equal_the_database(
    near_redis: Space, with_redis: Server, redis: RedisProcess
) -> None:
    """After any damage, each bucket holds the models that a recomputation puts there."""
    assert_right(lsh(near_redis))
    with redis.client() as client:
        (state,) = client.keys("*:state")
        for key in client.keys("*")[::2]:
            if key != state:
                client.delete(key)
    done = rebuild(with_redis, "--space", near_redis.name, MODELKIN_REDIS_URL=redis.url)
    assert (0, f"{near_redis.name}: 28 models, banding 64 x 4\n") == (done.returncode, done.stdout)
    answer = lsh(near_redis)
    assert ("lsh", False) == (answer["method"], answer["degraded"])
    assert_right(answer)
    space_id = int(state.decode().split("{")[1].split("}")[0])
    assert expected_buckets() == buckets_in(redis, space_id, with_redis)


def buckets_in(redis: RedisProcess, space_id: int, server: Server) -> dict[int, set[str]]:
    """The buckets that Redis holds, with the names of their models."""
    redis_ = RedisServer(redis.url)
    buckets = RedisBuckets(redis_)
    database = Database(server.database_url, timeout=5)
    found = {}
    with database.reading() as session:
        for key in expected_buckets():
            ids = buckets.candidates(space_id, np.array([key], np.uint64), 1000).ids.tolist()
            found[key] = {model.name for model in models_by_id(session, ids).values()}
    redis_.close()
    database.close()
    return found


@on_one_database
@pytest.mark.redis
def test_rebuilding_without_redis_says_so(start: Start, mortal: RedisProcess) -> None:
    """Exit code 1, and one line that names the missing server."""
    server = start()
    with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
        Space(http)
    mortal.signal(signal.SIGKILL)
    done = rebuild(server, MODELKIN_REDIS_URL=mortal.url)
    assert 1 == done.returncode
    assert "Redis cannot be reached" in done.stderr
    unknown = rebuild(server, "--space", "nowhere")
    assert (1, "modelkin: there is no space 'nowhere'\n") == (unknown.returncode, unknown.stderr)


@pytest.mark.parametrize(
    "url",
    [
        "http://secret",
        "redis://:secret@",
        "redis://secret:99999",
        "redis:///secret",
        "redis://u:secret@h\N{FULLWIDTH SOLIDUS}x",  # forbidden: normalized, it is a slash
    ],
)
def test_an_invalid_redis_url_is_refused(url: str) -> None:
    """The error names the variable but not the URL, which may hold a password."""
    with pytest.raises(ValidationError) as raised:
        Settings(redis_url=url)
    (line,) = validation_messages(raised.value)
    assert line.startswith("MODELKIN_REDIS_URL: ")
    assert "secret" not in line
