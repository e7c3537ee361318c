"""Nothing acknowledged is ever lost: SIGKILL and SIGTERM under load, and writers of one model."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from modelkin import Support
from tests.support.faults.ledger import (
    WRITERS,
    check,
    kept_and_named,
    killed_under_load,
    make_space,
)
from tests.support.fixtures import Start
from tests.support.http_space import (
    SUPPORT,
    Space,
    ok,
    random_support,
    related,
)
from tests.support.write_log import K, M, WriteLog, finish, start_writers, wait_for_writes


@pytest.mark.slow
def test_kill_9_under_load_loses_nothing_acknowledged(start: Start) -> None:
    """After each of two kills at random moments all that was acknowledged is there, whole; ``make
    soak`` kills fifty times.
    """
    assert killed_under_load(start(), kills=2, seed=2026) >= WRITERS


@pytest.mark.slow
def test_a_write_is_acknowledged_only_when_it_is_stored(start: Start) -> None:
    """A kill right behind the answer finds the PUT, and the DELETE, done: the commit came first."""
    server = start()
    path = f"/v1/spaces/{make_space(server)}/supports/a"
    support = random_support(np.random.default_rng(4), M, K)
    headers = {"Content-Type": SUPPORT}
    answer = httpx.put(server.url + path, content=support.to_bytes(), headers=headers)
    server.kill()
    assert 201 == answer.status_code
    server.start()
    assert support == Support.from_bytes(httpx.get(server.url + path).content)
    answer = httpx.delete(server.url + path.replace("supports", "models"))
    server.kill()
    assert 204 == answer.status_code
    server.start()
    assert 404 == httpx.get(server.url + path).status_code


@pytest.mark.slow
def test_SIGTERM_under_load_ends_cleanly(start: Start) -> None:
    """Requests under way are finished, the exit code is 0, and nothing acknowledged is lost."""
    server = start()
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    writers = start_writers(server.url, space, write_logs, 7)
    wait_for_writes(write_logs)
    code = server.stop()
    assert ([], 0) == (finish(writers), code)
    assert "Traceback" not in server.log.read_text()
    server.start()
    check(server, space, write_logs)


@pytest.mark.slow
def test_concurrent_writers_leave_no_blob_behind(start: Start) -> None:
    """The blobs on disk are exactly those that rows name, and those that are released."""
    server = start()
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    writers = start_writers(server.url, space, write_logs, 3)
    time.sleep(0.8)
    assert [] == finish(writers)
    kept, named = kept_and_named(server)
    assert named == kept
    check(server, space, write_logs)


def put_together(space: Space, contents: list[Support], **headers: str) -> list[httpx.Response]:
    """PUT all the contents as one model, each from its own thread, at the same moment."""
    barrier = threading.Barrier(len(contents))

    def put(support: Support) -> httpx.Response:
        url, all_headers = space.path("supports", "one"), {"Content-Type": SUPPORT, **headers}
        barrier.wait()
        return space.http.put(url, content=support.to_bytes(), headers=all_headers)

    with ThreadPoolExecutor(len(contents)) as pool:
        return list(pool.map(put, contents))


def test_concurrent_writers_of_one_model_leave_one_whole_winner(space: Space) -> None:
    """Of 16 contents exactly one is created, the rest replace it, and one of them stays, whole."""
    random = np.random.default_rng(16)
    contents = [random_support(random, M, K + i) for i in range(16)]
    answers = put_together(space, contents)
    assert [200] * 15 + [201] == sorted(answer.status_code for answer in answers)
    assert set(range(1, 17)) == {answer.json()["revision"] for answer in answers}
    model = space.model("one")
    assert (16, 16, 1) == (model["revision"], model["version"], space.show()["models"])
    got = Support.from_bytes(space.http.get(space.path("supports", "one")).content)
    assert (got.digest, got.k) == (model["digest"], model["support_size"])
    last = next(answer.json() for answer in answers if answer.json()["revision"] == 16)
    assert model == last
    signature = space.http.get(space.path("signatures", "one")).content
    assert got.signature().to_bytes() == signature


def test_concurrent_writers_of_one_content_make_one_revision(space: Space) -> None:
    """16 times the same support is one model at revision 1, created once."""
    support = random_support(np.random.default_rng(17), M, K)
    answers = put_together(space, [support] * 16)
    assert [200] * 15 + [201] == sorted(answer.status_code for answer in answers)
    assert (1, 1) == (space.model("one")["revision"], space.show()["version"])


def test_concurrent_writers_with_one_ETag_leave_one_winner(space: Space) -> None:
    """Of eight PUTs on the condition of the same ETag one succeeds, the others get a 412."""
    random = np.random.default_rng(18)
    space.put("one", random_support(random, M, K))
    contents = [random_support(random, M, K) for _ in range(8)]
    answers = put_together(space, contents, **{"If-Match": space.etag("one")})
    assert [200] + [412] * 7 == sorted(answer.status_code for answer in answers)
    winner = next(answer for answer in answers if answer.status_code == 200)
    assert winner.json() == space.model("one")


@pytest.mark.slow
def test_readers_never_see_a_torn_model(space: Space) -> None:
    """While a model is replaced again and again, each read is one of its contents, whole."""
    random = np.random.default_rng(19)
    contents = [random_support(random, M, K + i) for i in range(20)]
    digests = {support.digest for support in contents}
    space.put("one", contents[0])
    space.put("two", contents[0])

    def read(_: int) -> str:
        params = {"model": "two", "method": "scan"}
        found = ok(space.http.get(space.path("neighbors"), params=params))
        assert ["one"] == [item["model"] for item in found["items"]]
        return Support.from_bytes(space.http.get(space.path("supports", "one")).content).digest

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(60))
        for support in contents * 3:
            space.put("one", support)
        assert set(reads) <= digests


@pytest.mark.slow
def test_a_space_deleted_under_load_leaves_nothing(start: Start) -> None:
    """Writers to a space that goes get answers, never a 5xx; no row of it stays, and no blob that
    is not released.
    """
    server = start()
    with httpx.Client(base_url=server.url, timeout=30) as http:
        space = Space(http, M)
        random = np.random.default_rng(20)
        body = related(random, random_support(random, M, K), 0.5).to_bytes()

        def write(number: int) -> int:
            return space.put_bytes(f"m{number}", body, SUPPORT).status_code

        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(write, range(120))
            time.sleep(0.2)
            assert 204 == http.delete(f"/v1/spaces/{space.name}").status_code
            assert set(answers) <= {201, 404}
    assert (set(), set()) == kept_and_named(server)
