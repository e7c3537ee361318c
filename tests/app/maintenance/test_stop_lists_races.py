"""Stop-lists that are made while models change and other lists are made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from app.errors import Conflict, SpaceNotFound
from modelkin import Support
from tests.support.declared_problems import checked
from tests.support.federations.planted import CLIENTS, Stores, assert_banded, unrelated_client
from tests.support.http_space import Space, ok


@pytest.mark.parametrize(("at_once", "last"), [(64, 16), (5, 1)])
def test_writes_while_a_list_is_made_are_not_lost(
    clients: Space,
    open_stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    last: int,
) -> None:
    """Models that are written between any two steps are banded by the new list.

    That holds whether they are signed under the lock or before.
    """
    monkeypatch.setattr("app.maintenance.stop_list_rollout._BATCH_SIZE", at_once)
    monkeypatch.setattr("app.maintenance.stop_list_rollout._MAX_SIGNED_UNDER_LOCK", last)
    rng = np.random.default_rng(6)
    now: dict[str, Support | None] = dict(CLIENTS)
    stages: list[str] = []

    def interfere(done: int, total: int, stage: str) -> None:
        step = len(stages)
        if stages.count(stage) == 3:
            return
        stages.append(stage)
        put = now[f"new{step}"] = now["far00"] = unrelated_client(rng)
        clients.put(f"new{step}", put)
        clients.put("far00", put)
        gone = f"far{step + 1:02d}"
        clients.http.delete(clients.path("models", gone))
        now.pop(gone)
        now["signed"] = None if step < 2 else now["far00"]
        if now["signed"] is None:
            clients.put_signature("signed", unrelated_client(rng).signature())
        else:
            clients.put("signed", now["signed"])
        ok(clients.http.patch(clients.path("models", "kin0"), json={"tags": [stage]}))

    made = open_stores.lists.make(open_stores.space(clients.name), progress=interfere)
    assert made is not None
    assert {"counting indices", "signing models", "measuring recall"} == set(stages)
    assert_banded(open_stores, clients, now)


def test_a_race_of_writers_and_lists_ends_whole(clients: Space, open_stores: Stores) -> None:
    """Two writers put and remove models while lists are made and dropped.

    In the end every model is banded by the last list.
    """
    over = Event()
    record = open_stores.space(clients.name)

    def write(number: int) -> dict[str, Support | None]:
        rng = np.random.default_rng(number)
        mine: dict[str, Support | None] = {}
        with checked(
            httpx.Client(base_url=clients.http.base_url, timeout=60, trust_env=False)
        ) as http:
            own = replace_http(clients, http)
            while not over.is_set():
                name = f"w{number}-{rng.integers(6)}"
                if name in mine and rng.random() < 0.3:
                    http.delete(own.path("models", name))
                    mine[name] = None
                else:
                    mine[name] = put = unrelated_client(rng)
                    own.put(name, put)
        return mine

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, number) for number in range(2)]
        try:
            for share in (0.5, 0.6, None, 0.45):
                if share is None:
                    open_stores.lists.drop(record)
                else:
                    assert open_stores.lists.make(record, share=share) is not None
        finally:
            over.set()
        written = [writer.result() for writer in writers]
    now = {**CLIENTS, **{n: s for each in written for n, s in each.items() if s is not None}}
    assert len(now) > len(CLIENTS)
    assert_banded(open_stores, clients, dict(now))


def replace_http(space: Space, http: httpx.Client) -> Space:
    """The same space through another connection."""
    other = object.__new__(Space)
    other.http, other.m, other.name = http, space.m, space.name
    return other


def test_of_two_lists_the_one_begun_last_counts(clients: Space, open_stores: Stores) -> None:
    """A rollout that finds a later version reports a conflict and changes nothing."""
    record = open_stores.space(clients.name)
    made: list[Any] = []

    def overtake(done: int, total: int, stage: str) -> None:
        if not made:
            made.append(open_stores.lists.make(record, share=0.6))

    with pytest.raises(Conflict, match=clients.name):
        open_stores.lists.make(record, progress=overtake)
    assert 2 == clients.show()["stop_list"]["version"]
    assert_banded(open_stores, clients, dict(CLIENTS))


def test_dropping_stops_a_list_that_is_made(listed: Space, open_stores: Stores) -> None:
    """A list that was begun before a drop is never activated."""
    record = open_stores.space(listed.name)

    def drop(done: int, total: int, stage: str) -> None:
        open_stores.lists.drop(record)

    with pytest.raises(Conflict, match="dropped"):
        open_stores.lists.make(record, progress=drop)
    assert listed.show()["stop_list"] is None


def test_a_list_that_fails_half_way_leaves_the_old_one(listed: Space, open_stores: Stores) -> None:
    """The first version stays in force whatever step fails, and the next list is whole."""
    record = open_stores.space(listed.name)
    for wanted in ("counting indices", "signing models", "measuring recall"):

        def fail(done: int, total: int, stage: str, wanted: str = wanted) -> None:
            if stage == wanted:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            open_stores.lists.make(record, share=0.6, progress=fail)
        assert 1 == listed.show()["stop_list"]["version"]
        listed.put("far00", unrelated_client(np.random.default_rng(len(wanted))))
    now = {**CLIENTS, "far00": unrelated_client(np.random.default_rng(len("measuring recall")))}
    assert_banded(open_stores, listed, dict(now))
    assert open_stores.lists.make(record, share=0.6) is not None
    assert {5} == open_stores.versions(listed.name)
    assert_banded(open_stores, listed, dict(now))


def test_a_space_that_changes_too_fast_keeps_its_list(
    listed: Space, open_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout that never catches up fails and says what to do."""
    monkeypatch.setattr("app.maintenance.stop_list_rollout._MIN_SIGNING_LIMIT", 0)
    monkeypatch.setattr("app.maintenance.stop_list_rollout._MAX_PASSES", 0)
    with pytest.raises(modelkin.ModelkinError, match="faster"):
        open_stores.lists.make(open_stores.space(listed.name))
    assert 1 == listed.show()["stop_list"]["version"]


def test_a_deleted_space_ends_its_list(clients: Space, open_stores: Stores) -> None:
    """If a space is deleted while its list is made, the rollout ends and leaves nothing behind."""
    record = open_stores.space(clients.name)

    def delete(done: int, total: int, stage: str) -> None:
        clients.http.delete(f"/v1/spaces/{clients.name}")

    with pytest.raises(SpaceNotFound):
        open_stores.lists.make(record, progress=delete)
    with pytest.raises(SpaceNotFound):
        open_stores.lists.make(record)
    with pytest.raises(SpaceNotFound):
        open_stores.lists.drop(record)
