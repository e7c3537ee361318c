"""Nothing acknowledged is ever lost: SIGKILL and SIGTERM under load, and writers of one model."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.catalog import ModelRow, RevisionRow
from modelkin import Support
from tests.support.fixtures import Start
from tests.support.http_space import (
    SUPPORT,
    Space,
    ok,
    random_support,
    ranking,
    related,
    true_neighbors,
)
from tests.support.servers.server_process import Server
from tests.support.write_log import K, M, State, WriteLog, finish, start_writers

WRITERS = 4


def stored(http: httpx.Client, space: str) -> dict[str, State]:
    """Every model of the space, page by page."""
    found: dict[str, State] = {}
    cursor: dict[str, str] = {}
    while True:
        page = ok(http.get(f"/v1/spaces/{space}/models", params={"limit": 7, **cursor}))
        found.update((item["model"], State.of(item)) for item in page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def supports(http: httpx.Client, space: str, names: list[str]) -> dict[str, Support]:
    """The supports themselves; decoding them checks their digests."""
    base = f"/v1/spaces/{space}/supports/"
    return {name: Support.from_bytes(http.get(base + name).content) for name in names}


def blob_keys(server: Server) -> set[str]:
    """Where the models in the database say that their supports are, and were."""
    database = Database(server.database_url, timeout=5)
    with database.reading() as session:
        keys = [*session.scalars(select(ModelRow.blob_key))]
        keys += session.scalars(select(RevisionRow.blob_key))
    database.close()
    return {key for key in keys if key is not None}


def files(server: Server) -> set[str]:
    """The keys of all blobs on disk, temporary files included."""
    found = (path for path in server.blobs.rglob("*") if path.is_file())
    return {path.relative_to(server.blobs).as_posix() for path in found}


def check(server: Server, space: str, write_logs: list[WriteLog]) -> None:
    """What the service holds is what it acknowledged, whole, counted right, and found."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        states = stored(http, space)
        for write_log in write_logs:
            for name in {*write_log.acknowledged, *write_log.pending}:
                assert states.get(name, State()) in write_log.possible(name), name
                write_log.settle(name, states.get(name, State()))
        held = supports(http, space, list(states))
        assert {name: s.digest for name, s in states.items()} == {
            name: support.digest for name, support in held.items()
        }
        shown = ok(http.get(f"/v1/spaces/{space}"))
        assert (len(held), len(held), 0) == tuple(
            shown[count] for count in ("models", "supports", "signatures")
        )
        check_neighbors(http, space, held)
        check_revisions(http, space, held)
    assert blob_keys(server) <= files(server)


def check_revisions(http: httpx.Client, space: str, held: dict[str, Support]) -> None:
    """Numbers have no gap, the newest is what is stored, and what is kept is read as it was."""
    for name in list(held)[:4]:
        listed = ok(http.get(f"/v1/spaces/{space}/revisions/{name}"))["items"]
        assert list(range(len(listed), 0, -1)) == [item["revision"] for item in listed]
        assert held[name].digest == listed[0]["digest"]
        assert listed[0]["kept"]
        for item in listed:
            if item["kept"]:
                params = {"revision": item["revision"]}
                got = http.get(f"/v1/spaces/{space}/supports/{name}", params=params).content
                assert item["digest"] == Support.from_bytes(got).digest


def check_neighbors(http: httpx.Client, space: str, held: dict[str, Support]) -> None:
    """The index was rebuilt to what is stored: both methods answer what brute force does."""
    for name in list(held)[:2]:
        others = {other: support for other, support in held.items() if other != name}
        for method in ("exact", "scan"):
            params = {"model": name, "method": method, "k": 5}
            answer = ok(http.get(f"/v1/spaces/{space}/neighbors", params=params))
            assert true_neighbors(held[name], others, 5) == ranking(answer)


def make_space(server: Server, name: str = "s") -> str:
    """A space for the workload."""
    body = {"name": name, "num_parameters": M}
    assert 201 == httpx.post(f"{server.url}/v1/spaces", json=body).status_code
    return name


def wait_for_writes(write_logs: list[WriteLog], more: int = 25) -> None:
    """Until so many more writes were acknowledged."""
    target = sum(write_log.writes for write_log in write_logs) + more
    end = time.monotonic() + 60
    while sum(write_log.writes for write_log in write_logs) < target:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_kill_9_under_load_loses_nothing_acknowledged(start: Start) -> None:
    """After each of four kills at random moments all that was acknowledged is there, whole."""
    server = start()
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    random = np.random.default_rng(2026)
    for seed in range(4):
        writers = start_writers(server.url, space, write_logs, seed)
        wait_for_writes(write_logs)
        time.sleep(random.uniform(0.0, 1.0))
        server.kill()
        assert [] == finish(writers)
        server.start()
        check(server, space, write_logs)


def test_the_sweep_removes_what_a_crash_left(start: Start) -> None:
    """Old blobs that no row names go at the next start; what is another's, or no blob, stays."""
    server = start()
    space = make_space(server)
    with httpx.Client(base_url=server.url) as http:
        support = random_support(np.random.default_rng(1), M, K)
        url, headers = f"/v1/spaces/{space}/supports/a", {"Content-Type": SUPPORT}
        assert 201 == http.put(url, content=support.to_bytes(), headers=headers).status_code
    (realm,) = server.blobs.iterdir()
    foreign = realm / "1/notes.txt"
    foreign.write_text("not the service's")
    another = server.blobs / f"{'0' * 32}/1/ab/{'ab' * 16}"
    another.parent.mkdir(parents=True)
    another.write_bytes(b"another database's")
    kept = files(server)
    left = {f"{realm.name}/1/ab/{'ab' * 16}", f"{realm.name}/1/ab/{'ac' * 16}.part"}
    for path in (server.blobs / key for key in left):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left by a crash")
    server.kill()
    server.start()
    assert kept | left == files(server)
    for path in server.blobs.rglob("*"):
        os.utime(path, times=(time.time() - 7200,) * 2)
    server.kill()
    server.start()
    assert kept == files(server)


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


def test_concurrent_writers_leave_no_blob_behind(start: Start) -> None:
    """While the service lives, the blobs on disk are exactly those that rows name."""
    server = start()
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    writers = start_writers(server.url, space, write_logs, 3)
    time.sleep(0.8)
    assert [] == finish(writers)
    assert blob_keys(server) == files(server)
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


def test_a_space_deleted_under_load_leaves_nothing(start: Start) -> None:
    """Writers to a space that goes get answers, never a 5xx, and no row or blob of it stays."""
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
    assert (set(), set()) == (blob_keys(server), files(server))
