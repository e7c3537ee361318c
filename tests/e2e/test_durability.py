"""Nothing acknowledged is ever lost: SIGKILL and SIGTERM under load, and writers of one model."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import numpy as np

from app.infra.db.database import Database
from modelkin import Support
from tests.support.blob_files import blob_keys, named_keys, released_keys
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
from tests.support.write_log import K, M, State, WriteLog, finish, start_writers, wait_for_writes

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


def kept_and_named(server: Server) -> tuple[set[str], set[str]]:
    """The keys of the blobs on disk that are not released, and of those that rows name."""
    with closing(Database(server.database_url, timeout=5)) as database:
        released = released_keys(database)
        spaces = {key for key in released if key.endswith("/")}
        files = {
            key
            for key in blob_keys(server.blobs) - released
            if f"{key.rsplit('/', 2)[0]}/" not in spaces
        }
        return files, named_keys(database)


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
    kept, named = kept_and_named(server)
    assert named <= kept


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


def killed_under_load(server: Server, kills: int, seed: int) -> int:
    """Kill a running service so often while four writers write, and start it again each time.

    Args:
        server: running; it runs at the end as well.
        kills: how many.
        seed: of the moments.

    Returns:
        The writes that were acknowledged; after each kill all of them are there, whole.
    """
    space = make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    random = np.random.default_rng(seed)
    for number in range(kills):
        writers = start_writers(server.url, space, write_logs, number)
        wait_for_writes(write_logs)
        time.sleep(random.uniform(0.0, 1.0))
        server.kill()
        assert [] == finish(writers)
        server.start()
        check(server, space, write_logs)
    return sum(write_log.writes for write_log in write_logs)


def test_kill_9_under_load_loses_nothing_acknowledged(start: Start) -> None:
    """After each of two kills at random moments all that was acknowledged is there, whole; ``make
    soak`` kills fifty times.
    """
    assert killed_under_load(start(), kills=2, seed=2026) >= WRITERS


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
