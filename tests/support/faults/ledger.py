"""What a service holds after a fault, compared with the log of what it has acknowledged."""

from __future__ import annotations

import time
from contextlib import closing

import httpx
import numpy as np

from app.infra.db.database import Database
from modelkin import Support
from tests.support.blob_files import blob_keys, named_keys, released_keys
from tests.support.http_space import ok, ranking, true_neighbors
from tests.support.servers.server_process import Server
from tests.support.write_log import M, State, WriteLog, finish, start_writers, wait_for_writes

__all__ = ["WRITERS", "check", "check_answers", "kept_and_named", "killed_under_load", "make_space"]

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
        check_answers(http, space, write_logs)
    kept, named = kept_and_named(server)
    assert named <= kept


def check_answers(http: httpx.Client, space: str, write_logs: list[WriteLog]) -> None:
    """The same of what it answers; a write without an answer is settled as it is found."""
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
