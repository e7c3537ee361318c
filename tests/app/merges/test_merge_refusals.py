"""What a merge refuses, how long it waits, and what is left of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.tenancy.auth.service import KeyService
from modelkin import Support, wire
from tests.support.app.harness import open_keyed_app
from tests.support.backends import Backend
from tests.support.federations.merging import Floats, HubMerge, Party
from tests.support.http_space import Space, assert_problem, ok
from tests.support.servers.server_process import Server

M = 1000
NAMES = ("a", "b", "c", "d")


def vectors(count: int = 4) -> dict[str, Floats]:
    drawn = np.random.default_rng(count).normal(0, 0.05, (count, M)).astype(np.float32)
    return dict(zip(NAMES, drawn, strict=False))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a worker, which ends what takes too long."""
    flags = "--embedded-worker=on", "--blob-grace-seconds=0", "--maintenance-interval-seconds=1"
    server = Server(tmp_path_factory.mktemp("merges"), *flags).start()
    yield server
    assert server.stop() == 0, server.log.read_text()


@pytest.fixture
def small(quick: Server) -> Iterator[Space]:
    """A space of 1,000 parameters of it."""
    with httpx.Client(base_url=quick.url, timeout=60, trust_env=False) as client:
        yield Space(client, M)


def until(merge: HubMerge, state: str) -> dict[str, Any]:
    """The merge once it is in a state."""
    end = time.monotonic() + 30
    while (shown := merge.show())["state"] != state:
        assert time.monotonic() < end, shown
        time.sleep(0.1)
    return shown


def files(server: Server) -> set[Path]:
    return {path for path in server.blobs.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "status", "code", "field"),
    [
        ({"members": ["a"]}, 422, "invalid_parameter", "members"),
        ({"members": ["a", "b", "none"]}, 404, "model_not_found", ""),
        ({"donors_of": "a"}, 422, "invalid_parameter", "members"),
        ({"members": None}, 422, "invalid_parameter", "members"),
        ({"cluster": 1}, 422, "invalid_parameter", "cluster"),
        ({"one_in": 2}, 422, "invalid_parameter", "one_in"),
        ({"weights": "donors"}, 422, "invalid_parameter", "weights"),
        ({"weights": {"a": 1.0}}, 422, "invalid_parameter", "weights"),
        (
            {"weights": {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}},
            422,
            "invalid_parameter",
            "weights",
        ),
        (
            {"weights": {"a": 1e300, "b": 1.0, "c": 1.0, "d": 1.0}},
            422,
            "invalid_parameter",
            "weights",
        ),
        ({"aggregators": 2000}, 422, "invalid_parameter", "aggregators"),
        ({"deadline": 0}, 422, "invalid_parameter", "deadline"),
        ({"surplus": 1}, 422, "invalid_parameter", "surplus"),
    ],
)
def test_merges_that_cannot_be(
    small: Space, changed: dict[str, Any], status: int, code: str, field: str
) -> None:
    """The error names the field, and nothing is stored."""
    for name in NAMES:
        small.put(name, Support.from_indices(range(0, M, 3), M))
    body = {"members": list(NAMES), **changed}
    answer = small.http.put(f"{small.path('merges')}/m", json=body)
    assert_problem(answer, status, code, field)
    assert [] == ok(small.http.get(small.path("merges")))["items"]


def test_donors_and_clusters_settle_members(small: Space) -> None:
    """Donors with their weights, as the service ranks them; the models of a cluster."""
    kin = np.arange(0, M, 4)
    for at in range(4):
        small.put(f"near{at}", Support.from_indices(np.union1d(kin, [at + 1]), M))
        small.put(f"far{at}", Support.from_indices(np.arange(2, M, 4) + at % 2, M))
    path = small.path("merges")
    by_donors = ok(small.http.put(f"{path}/donors", json={"donors_of": "near0", "k": 3}))
    donors = ok(small.http.get(small.path("donors"), params={"target": "near0", "k": 3}))["items"]
    weights = {donor["model"]: donor["weight"] for donor in donors}
    assert weights == {party["name"]: party["weight"] for party in by_donors["parties"]}
    asked = small.http.post(small.path("clusterings"), json={"algorithm": "agglomerative"})
    job = asked.json()["id"]
    end = time.monotonic() + 30
    while ok(small.http.get(f"/v1/jobs/{job}"))["state"] != "succeeded":
        assert time.monotonic() < end
        time.sleep(0.1)
    found = ok(small.http.get(f"{small.path('clusterings')}/latest"))
    cluster = next(c for c in found["clusters"] if "near0" in c["members"])
    body = {"clustering": "latest", "cluster": cluster["cluster"], "weights": "equal"}
    by_cluster = ok(small.http.put(f"{path}/cluster", json=body))
    assert cluster["members"] == [party["name"] for party in by_cluster["parties"]]
    missing = small.http.put(f"{path}/no", json={"clustering": "latest", "cluster": 99})
    assert_problem(missing, 422, "invalid_parameter", "cluster")


def test_joining_is_checked(small: Space) -> None:
    """Keys, examples and peaks; another key of a party; a late one; who is not awaited."""
    merge = HubMerge(small, vectors(), min_members=2)
    first, second, *_ = merge.parties.values()
    assert_problem(first.join(public_key="AAAA"), 422, "invalid_parameter", "public_key")
    assert_problem(first.join(examples=None), 422, "invalid_parameter", "examples")
    assert_problem(first.join(peak=None), 422, "invalid_parameter", "peak")
    assert_problem(first.join(neutral=True), 422, "invalid_parameter", "neutral")
    ok(first.join())
    ok(first.join())
    assert_problem(second.join(token_digest="0" * 63), 422, "invalid_parameter", "token_digest")
    second.token, token = first.token, second.token
    assert_problem(second.join(), 422, "invalid_parameter", "token_digest")
    second.token = token
    second.key, key = first.key, second.key
    assert_problem(second.join(), 422, "invalid_parameter", "public_key")
    second.key = key
    other = Party(merge, "a", first.values)
    assert_problem(other.join(), 409, "conflict")
    assert_problem(Party(merge, "none", first.values).join(), 404, "merge_not_found")
    assert_problem(Party(merge, "helper").join(may_aggregate=False), 422, "invalid_parameter")
    for party in list(merge.parties.values())[1:]:
        ok(party.join())
    assert_problem(Party(merge, "late").join(), 409, "merge_closed")
    assert first.join().is_success  # with its own key, after an answer that was lost


def test_a_public_key_alone_does_not_join_again(small: Space) -> None:
    """All parties know it from the roster; the token of who has joined stays good."""
    merge = HubMerge(small, vectors(3), aggregators=1)
    merge.join_all()
    party = merge.parties["a"]
    thief = Party(merge, "a", party.values)
    thief.key = party.key
    assert "another token" in assert_problem(thief.join(), 409, "conflict")
    where, data = next(iter(party.cells()))
    assert_problem(thief.put(where, data), 403, "forbidden")
    assert 201 == party.put(where, data).status_code


def test_tokens_open_what_is_ones_own(small: Space) -> None:
    """Cells are put by their member, read by their aggregator; results are read by parties."""
    merge = HubMerge(small, vectors(), aggregators=2)
    merge.join_all()
    first, second, *_ = merge.parties.values()
    where, data = next(iter(first.cells()))
    foreign = second.http.put(
        f"{merge.path}/{where}",
        content=data,
        headers={"Content-Type": wire.CELL, "Member-Token": second.token},
    )
    assert_problem(foreign, 403, "forbidden")
    assert 201 == first.put(where, data).status_code
    assert 200 == first.put(where, data).status_code
    again = next(iter(first.cells()))[1]
    assert again != data
    assert_problem(first.put(where, again), 409, "merge_exists")
    holder = merge.seated()[0]
    stranger = next(p for p in merge.parties.values() if p not in merge.seated())
    assert data == holder.get(where).content
    assert_problem(stranger.get(where), 403, "forbidden")
    missing = where.replace("/a", "/b")
    assert_problem(holder.get(missing), 404, "merge_not_found")
    for wrong in ("cells/0/9/0/a", "cells/0/0/9/a"):
        assert_problem(first.put(wrong, data), 404, "merge_not_found")
    assert_problem(stranger.judge(), 403, "forbidden")
    assert_problem(Party(merge, "x").get("results/0/0"), 403, "forbidden")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda header: replace(header, digest=bytes(32)), "digest"),
        (lambda header: replace(header, place=1), "place"),
        (lambda header: replace(header, round=2), "round"),
        (lambda header: replace(header, attempt=1), "attempt"),
        (lambda header: replace(header, kind=wire.Kind.FLOAT32), "kind"),
        (lambda header: replace(header, count=header.count - 1), "bytes"),
    ],
)
def test_cells_of_something_else_are_refused(
    small: Space, forge: Callable[[wire.CellHeader], wire.CellHeader], says: str
) -> None:
    """The field that differs is named; nothing is stored."""
    merge = HubMerge(small, vectors(), aggregators=1)
    merge.join_all()
    party = merge.parties["a"]
    where, data = next(iter(party.cells()))
    header, payload = wire.decode_cell(data)
    forged = forge(header)
    cell = wire.encode_cell(forged, bytes(payload)[: forged.payload_bytes])
    assert says in assert_problem(party.put(where, cell), 422, "invalid_cell")
    assert_problem(party.put(where, data[:-1]), 422, "invalid_cell")
    assert 201 == party.put(where, data).status_code


@pytest.mark.slow
def test_who_is_late_is_left_out_once(small: Space) -> None:
    """After joining and after sending; then the merge goes on with the others."""
    merge = HubMerge(small, vectors(), aggregators=1, deadline=2, min_members=2)
    for name in ("a", "b", "c"):
        ok(merge.parties[name].join())
    shown = until(merge, "sending")
    assert "it did not join in time" == shown["parties"][3]["left_out"]
    for name in ("a", "b"):
        merge.parties[name].send()
    end = time.monotonic() + 30
    while merge.show()["attempt"] == 0:
        assert time.monotonic() < end
        time.sleep(0.1)
    left = {party["name"]: party["left_out"] for party in merge.show()["parties"]}
    assert "it did not send all cells in time" == left["c"]
    for name in ("a", "b"):
        merge.parties[name].send()
    merge.aggregate_all()
    assert "done" == merge.state
    assert 1 == merge.show()["attempt"]


@pytest.mark.slow
def test_a_silent_aggregator_ends_a_merge(small: Space) -> None:
    """In time, with its name; so does a joining that too few take part in."""
    merge = HubMerge(small, vectors(), aggregators=1, deadline=2)
    merge.join_all()
    merge.send_all()
    name = merge.seated()[0].name
    alone = HubMerge(small, vectors(), "alone", deadline=1)
    ok(alone.parties["a"].join())
    assert f"no verdict in time from {name}" == until(merge, "failed")["failure"]
    assert "1 members joined" in until(alone, "failed")["failure"]
    assert_problem(merge.parties["a"].put("cells/0/0/0/a", b"x"), 422, "invalid_cell")


@pytest.mark.slow
def test_deleted_merges_leave_no_file(small: Space, quick: Server) -> None:
    """The files of cells go with the next clean-up after the time of grace, here at once, and the
    merge is not there any more.
    """
    before = files(quick)
    merge = HubMerge(small, vectors(), aggregators=2)
    models = files(quick)
    merge.join_all()
    merge.send_all()
    assert len(models) + 8 == len(files(quick))
    assert 204 == merge.http.delete(merge.path).status_code
    assert_problem(merge.http.get(merge.path), 404, "merge_not_found")
    end = time.monotonic() + 30
    while models != files(quick):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert before <= models
    assert_problem(merge.http.delete(merge.path), 404, "merge_not_found")


@pytest.mark.slow
def test_a_merge_is_followed_to_its_end(small: Space) -> None:
    """Server-sent events: one at once, one after each change, the last one ended."""
    merge = HubMerge(small, vectors(3), aggregators=1)
    states: list[str] = []
    with merge.http.stream("GET", f"{merge.path}/events") as stream:
        lines = stream.iter_lines()
        for line in lines:
            if not line.startswith("data: "):
                continue
            states.append(json.loads(line.removeprefix("data: "))["state"])
            if states[-1] == "joining" and len(states) == 1:
                merge.join_all()
            elif states[-1] == "sending" and merge.state == "sending":
                merge.send_all()
                merge.aggregate_all()
    assert ("joining", "done") == (states[0], states[-1])
    revision = merge.show()["revision"]
    ended = merge.http.get(f"{merge.path}/events", headers={"Last-Event-ID": str(revision)})
    assert 204 == ended.status_code


@pytest.mark.slow
def test_open_merges_have_a_quota(tmp_path: Path) -> None:
    """Beyond the quota of merges, and of bytes that their cells would take, they are refused."""
    flags = ("--quota-merges=1", f"--quota-support-bytes={40 * M}")
    server = Server(tmp_path, *flags).start()
    try:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            space = Space(client, M)
            merge = HubMerge(space, vectors())
            assert 201 == merge.created.status_code
            second = client.put(f"{space.path('merges')}/second", json=merge.wanted)
            assert "quota merges" in assert_problem(second, 507, "quota_exceeded")
            client.delete(merge.path)
            large = Space(client, 10 * M)
            for name in NAMES:
                large.put(name, Support.from_indices(range(0, M, 3), 10 * M))
            refused = client.put(f"{large.path('merges')}/m", json=merge.wanted)
            assert "support_bytes" in assert_problem(refused, 507, "quota_exceeded")
    finally:
        server.kill()


@pytest.mark.slow
def test_cells_of_ended_merges_count(tmp_path: Path) -> None:
    """They stay for a day: until they are deleted, their bytes are not free for another merge."""
    server = Server(tmp_path, f"--quota-support-bytes={30 * M}").start()
    try:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            merge = HubMerge(Space(client, M), vectors(3), aggregators=1)
            merge.join_all()
            merge.send_all()
            merge.aggregate_all()
            assert "done" == merge.state
            second = f"{merge.space.path('merges')}/second"
            refused = client.put(second, json=merge.wanted)
            assert "support_bytes" in assert_problem(refused, 507, "quota_exceeded")
            client.delete(merge.path)
            assert 201 == client.put(second, json=merge.wanted).status_code
    finally:
        server.kill()


@pytest.mark.parametrize("found", [{"donors_of": "a"}, {"clustering": "latest", "cluster": 0}])
def test_members_that_the_service_finds_are_named_to_who_may_read(
    backend: Backend, tmp_path: Path, found: dict[str, Any]
) -> None:
    """A key that writes alone learns no names of near models; members that it names are no news."""
    with open_keyed_app(tmp_path, backend) as app:
        with app.database.writing() as session:
            keys = app.services[KeyService]
            owner, writer = (
                {"Authorization": f"Bearer {keys.create(session, 'labs', scopes=scopes)}"}
                for scopes in (["read", "write"], ["write"])
            )
        space = {"name": "s", "num_parameters": M}
        app.http.post("/v1/spaces", json=space, headers=owner).raise_for_status()
        app.http.put(
            "/v1/spaces/s/supports/a",
            content=Support.from_indices(np.arange(100), M).to_bytes(),
            headers=owner | {"Content-Type": wire.SUPPORT},
        ).raise_for_status()
        refused = app.http.put("/v1/spaces/s/merges/m", json=found, headers=writer)
        own = {"members": ["a"], "min_members": 1}
        app.http.put("/v1/spaces/s/merges/m", json=own, headers=writer).raise_for_status()
    assert 403 == refused.status_code
    assert "lacks the scope read" in refused.json()["detail"]
