"""Revisions over HTTP: every new content is one, compared with those before; some are kept."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.infra.db.database import Database
from app.infra.errors import RevisionNotFound
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.puts import Put
from app.models.catalog.revision_recorder import RevisionRecorder
from app.models.catalog.revisions import RevisionService
from app.models.catalog.writer import ModelWriter
from app.models.index.sketch_folder import SketchFolder
from app.models.spaces.repositories import spaces
from app.models.spaces.terms import SpaceTerms
from app.tenancy.auth import tenants
from modelkin import SignatureSpec, Support
from modelkin.core.sketching.banding import DEFAULT_BANDING
from tests.support.blob_files import blob_files, blob_keys, released_keys
from tests.support.declared_problems import checked
from tests.support.fixtures import Start
from tests.support.http_space import (
    SIGNATURE,
    SUPPORT,
    Space,
    assert_problem,
    ok,
    random_support,
    related,
)
from tests.support.servers.server_process import Server

M, K = 10_000, 400


def drifting(n: int, share: float = 0.9, seed: int = 1) -> list[Support]:
    """``n`` supports, of each of which the next one keeps ``share``."""
    random = np.random.default_rng(seed)
    supports = [random_support(random, M, K)]
    while len(supports) < n:
        supports.append(related(random, supports[-1], share))
    return supports


def jaccard(a: Support, b: Support) -> float:
    """J of two supports, by Python's sets."""
    first, second = set(a.indices.tolist()), set(b.indices.tolist())
    return len(first & second) / len(first | second)


def revisions(space: Space, model: str = "a", **params: Any) -> list[dict[str, Any]]:
    """The listed revisions, newest first."""
    answer = ok(space.http.get(space.path("revisions", model), params=params))
    assert model == answer["model"]
    found: list[dict[str, Any]] = answer["items"]
    return found


def read(space: Space, revision: int, model: str = "a") -> httpx.Response:
    """The support as of a revision."""
    return space.http.get(space.path("supports", model), params={"revision": revision})


def files(server: Server) -> set[Path]:
    """The supports on the disk."""
    return blob_files(server.blobs)


def kept(server: Server) -> set[str]:
    """The supports on the disk that are not released."""
    with closing(Database(server.database_url, timeout=5)) as database:
        return blob_keys(server.blobs) - released_keys(database)


def test_every_changed_support_is_a_revision(space: Space) -> None:
    """Each content is listed with its number, digest, size, and exact J and S to those before."""
    supports = drifting(4)
    answers = [space.put("a", support) for support in supports]
    listed = revisions(space)[::-1]
    assert [1, 2, 3, 4] == [item["revision"] for item in listed]
    assert [s.digest for s in supports] == [item["digest"] for item in listed]
    assert {("support", K, True)} == {
        (item["kind"], item["support_size"], item["kept"]) for item in listed
    }
    previous = [jaccard(a, b) for a, b in itertools.pairwise(supports)]
    assert [0.9 / (2 - 0.9)] * 3 == pytest.approx(previous)  # rho / (2 - rho)
    assert [None, *previous] == [item["self_overlap_previous"] for item in listed]
    assert [jaccard(supports[0], s) for s in supports] == [
        item["self_overlap_first"] for item in listed
    ]
    for item in listed[1:]:
        expected = 2 * item["self_overlap_previous"] / (1 + item["self_overlap_previous"])
        assert expected == pytest.approx(item["similarity_previous"], rel=1e-12)
        assert ("exact", 0.0) == (item["estimate_previous"], item["standard_error_previous"])
        assert ("exact", 0.0) == (item["estimate_first"], item["standard_error_first"])
    moments = [item["created_at"] for item in listed]
    assert sorted(moments) == moments
    assert answers[0]["created_at"] == moments[0]


def test_what_is_no_other_content_is_no_revision(space: Space) -> None:
    """The same support again, tags and attributes leave the history as it is."""
    first, second = drifting(2)
    for support in (first, second, second):
        space.put("a", support)
    before = revisions(space)
    space.put("a", second, tags=["t"])
    ok(space.http.patch(space.path("models", "a"), json={"attributes": {"x": 1}}))
    assert before == revisions(space)
    assert 2 == len(before)


def test_a_model_that_never_changed_has_one_revision(space: Space) -> None:
    """The present content is listed, as near to itself as can be, and can be read by its number."""
    (support,) = drifting(1)
    space.put("a", support)
    (only,) = revisions(space)
    assert (1, True, None, None) == (
        only["revision"],
        only["kept"],
        only["self_overlap_previous"],
        only["estimate_previous"],
    )
    assert (1.0, 1.0, "exact") == (
        only["self_overlap_first"],
        only["similarity_first"],
        only["estimate_first"],
    )
    assert support == Support.from_bytes(read(space, 1).content)


def test_a_batch_makes_revisions_too(space: Space) -> None:
    """Several lines of one model, in one batch, are one revision after another."""
    supports = drifting(3)
    lines = [{"model": "a", "support": _text(s)} for s in supports] + [
        {"model": "b", "support": _text(supports[0])}
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    headers = {"Content-Type": "application/jsonl"}
    space.http.post(space.path("batch"), content=body, headers=headers).raise_for_status()
    listed = revisions(space)
    assert [s.digest for s in reversed(supports)] == [item["digest"] for item in listed]
    assert jaccard(supports[1], supports[2]) == listed[0]["self_overlap_previous"]
    assert jaccard(supports[0], supports[2]) == listed[0]["self_overlap_first"]
    assert 1 == len(revisions(space, "b"))


def test_a_kept_revision_is_read_in_every_format(space: Space) -> None:
    """The support of an earlier revision is the one stored then, byte for byte."""
    supports = drifting(3)
    for support in supports:
        space.put("a", support)
    for number, support in enumerate(supports, start=1):
        assert support.to_bytes() == read(space, number).content
    params = {"revision": 2}
    url, headers = space.path("supports", "a"), {"Accept": "application/json"}
    answer = ok(space.http.get(url, params=params, headers=headers))
    assert supports[1].indices.tolist() == answer["indices"]


@pytest.mark.slow
def test_the_oldest_are_deleted_but_for_the_first(start: Start) -> None:
    """With three to keep, the newest three and the first can be read.

    Numbers, digests and overlaps of all stay; the disk holds no other supports.
    """
    server = start("--keep-revisions=3")
    supports = drifting(7)
    with checked(httpx.Client(base_url=server.url)) as http:
        space = Space(http)
        for support in supports:
            space.put("a", support)
        listed = revisions(space)[::-1]
        assert [True, False, False, False, True, True, True] == [item["kept"] for item in listed]
        assert [s.digest for s in supports] == [item["digest"] for item in listed]
        assert [jaccard(supports[0], s) for s in supports] == [
            item["self_overlap_first"] for item in listed
        ]
        for number in (1, 5, 6, 7):
            assert supports[number - 1] == Support.from_bytes(read(space, number).content)
        detail = assert_problem(read(space, 3), 404, "revision_not_found")
        assert "revision 3 of model 'a' is not kept" in detail
        assert "those of revisions 1, 5 to 7 are available" in detail
        assert 4 == len(kept(server))
        assert 204 == http.delete(space.path("models", "a")).status_code
        assert set() == kept(server)


@pytest.mark.slow
def test_only_the_present_may_be_kept(start: Start) -> None:
    """With one to keep, only the present support is on disk.

    The overlap with the first is an estimate from its signature, with its error.
    """
    server = start("--keep-revisions=1")
    supports = drifting(4)
    with checked(httpx.Client(base_url=server.url)) as http:
        space = Space(http)
        for support in supports:
            space.put("a", support)
        listed = revisions(space)[::-1]
        assert [False, False, False, True] == [item["kept"] for item in listed]
        assert 1 == len(kept(server))
        assert jaccard(supports[2], supports[3]) == listed[3]["self_overlap_previous"]
        assert "exact" == listed[3]["estimate_previous"]
        check_estimate(listed[3], "first", supports[0], supports[3])


def check_estimate(item: dict[str, Any], what: str, a: Support, b: Support) -> None:
    """The overlap is the one of the two signatures, and within four errors of the true one."""
    assert "signature" == item[f"estimate_{what}"]
    assert a.signature().jaccard(b.signature()) == item[f"self_overlap_{what}"]
    assert item[f"standard_error_{what}"] > 0
    true = 2 * jaccard(a, b) / (1 + jaccard(a, b))
    assert abs(true - item[f"similarity_{what}"]) < 4 * item[f"standard_error_{what}"]


def test_signatures_give_estimated_overlaps(space: Space) -> None:
    """If a side sent only a signature, the overlap is an estimate, with no support to read.

    Between supports it is exact again.
    """
    supports = drifting(4, 0.7)
    space.put_signature("a", supports[0].signature())
    space.put_signature("a", supports[1].signature())
    space.put("a", supports[2])
    space.put("a", supports[3])
    listed = revisions(space)[::-1]
    assert ["signature", "signature", "support", "support"] == [item["kind"] for item in listed]
    assert [False, False, True, True] == [item["kept"] for item in listed]
    assert [None, None] == [item["digest"] for item in listed[:2]]
    check_estimate(listed[1], "previous", supports[0], supports[1])
    check_estimate(listed[2], "previous", supports[1], supports[2])
    check_estimate(listed[3], "first", supports[0], supports[3])
    assert jaccard(supports[2], supports[3]) == listed[3]["self_overlap_previous"]
    assert "signature" in assert_problem(read(space, 1), 409, "support_missing")


def test_a_lost_support_leaves_an_estimate(space: Space, server: Server) -> None:
    """If the file of the support before is gone, its signature is used instead.

    That holds for the first and for later ones; reading the support is a 503 that names it.
    """
    supports = drifting(4)
    known = files(server)
    space.put("a", supports[0])
    for before, after in itertools.pairwise(supports[:3]):
        (lost,) = files(server) - known
        lost.unlink()
        space.put("a", after)
        check_estimate(revisions(space)[0], "previous", before, after)
    detail = assert_problem(read(space, 1), 503, "unavailable")
    assert "revision 1 of 'a' is missing" in detail
    space.put("a", supports[3])
    assert jaccard(supports[2], supports[3]) == revisions(space)[0]["self_overlap_previous"]
    check_estimate(revisions(space)[0], "first", supports[0], supports[3])


def test_a_mended_support_is_the_same_revision(space: Space, server: Server) -> None:
    """A damaged file that is sent again is mended in its revision, and stays when replaced."""
    first, second, third = drifting(3)
    known = kept(server)
    space.put("a", first)
    before = files(server)
    space.put("a", second)
    (damaged,) = files(server) - before
    damaged.write_bytes(b"damaged")
    detail = assert_problem(read(space, 2), 503, "unavailable")
    assert "revision 2 of 'a' is damaged" in detail
    space.put("a", second)
    space.put("a", third)
    assert second == Support.from_bytes(read(space, 2).content)
    assert 3 == len(kept(server) - known)


def test_a_long_history_comes_in_pages(space: Space) -> None:
    """Pages follow one another without a gap, and a cursor of another listing is refused."""
    for support in drifting(5):
        space.put("a", support)
    url = space.path("revisions", "a")
    first = ok(space.http.get(url, params={"limit": 2}))
    second = ok(space.http.get(url, params={"limit": 2, "cursor": first["next_cursor"]}))
    third = ok(space.http.get(url, params={"limit": 2, "cursor": second["next_cursor"]}))
    pages = [[i["revision"] for i in page["items"]] for page in (first, second, third)]
    assert ([[5, 4], [3, 2], [1]], None) == (pages, third["next_cursor"])
    answer = space.http.get(url, params={"cursor": "b3Jn"})
    assert_problem(answer, 422, "invalid_parameter", "cursor")


def test_the_rows_of_a_long_history_are_bounded(migrated: Database, tmp_path: Path) -> None:
    """Beyond the limit the oldest revisions are deleted, except for the first.

    The newest is still compared with the first.
    """
    blobs = FileBlobs(tmp_path / "blobs", "0" * 32)
    blobs.prepare()
    with closing(SketchFolder(tmp_path / "sketches")) as sketches:
        ingest = ModelWriter(blobs, RevisionRecorder(blobs, 2, remember=3), sketches)
        with migrated.writing() as session:
            tenant = tenants.ensure_tenant(session, "t")
            terms = SpaceTerms(M, None, SignatureSpec(), DEFAULT_BANDING)
            space = spaces.insert_space(session, tenant, "s", terms)
        assert space is not None
        supports = drifting(7)
        for support in supports:
            with migrated.reading() as reading, migrated.writing() as writing:
                prepared = ingest.prepare(reading, space, "a", support)
                ingest.put(writing, space, Put("a", prepared))
    service = RevisionService(migrated, blobs)
    with migrated.reading() as session:
        listed = service.list(session, space, "a", limit=10, cursor=None)
    assert [7, 6, 5, 1] == [item.revision for item in listed.page.items]
    assert (1, jaccard(supports[0], supports[6])) == (
        listed.first,
        listed.page.items[0].first.jaccard,
    )
    with migrated.reading() as session, pytest.raises(RevisionNotFound, match="1, 6 to 7"):
        service.support(session, space, "a", 3)


def test_what_is_not_there_says_so(space: Space) -> None:
    """A model, a revision and a number that never were have each their own answer."""
    space.put("a", drifting(1)[0])
    assert_problem(space.http.get(space.path("revisions", "none")), 404, "model_not_found")
    assert_problem(read(space, 1, "none"), 404, "model_not_found")
    detail = assert_problem(read(space, 2), 404, "revision_not_found")
    assert "revision 2 of model 'a' never existed; those of revisions 1 are available" in detail
    assert_problem(read(space, 0), 422, "invalid_parameter", "revision")
    assert_problem(read(space, 2**70), 422, "invalid_parameter", "revision")
    nowhere = space.http.get("/v1/spaces/nowhere/revisions/a")
    assert_problem(nowhere, 404, "space_not_found")


def test_a_recreated_model_has_no_history(space: Space) -> None:
    """A deleted model takes its history with it."""
    first, second, third = drifting(3)
    space.put("a", first)
    space.put("a", second)
    space.http.delete(space.path("models", "a"))
    space.put("a", third)
    assert [(1, third.digest)] == [(i["revision"], i["digest"]) for i in revisions(space)]


def test_concurrent_writers_make_one_line_of_revisions(space: Space) -> None:
    """Each of twelve concurrent writers makes a revision, compared with the one before it."""
    contents = {s.digest: s for s in drifting(12, 0.6)}
    barrier = threading.Barrier(len(contents))

    def put(support: Support) -> None:
        barrier.wait()
        space.put("a", support)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(put, contents.values()))
    listed = revisions(space)[::-1]
    assert list(range(1, 13)) == [item["revision"] for item in listed]
    order = [contents[item["digest"]] for item in listed]
    assert set(contents) == {item["digest"] for item in listed}
    assert [jaccard(a, b) for a, b in itertools.pairwise(order)] == [
        item["self_overlap_previous"] for item in listed[1:]
    ]
    assert [jaccard(order[0], s) for s in order] == [item["self_overlap_first"] for item in listed]
    assert order[-1] == Support.from_bytes(read(space, 12).content)


@pytest.mark.slow
def test_readers_of_revisions_never_see_another(space: Space) -> None:
    """While a model is replaced again and again, a revision that is answered is that revision."""
    supports = drifting(24, 0.5)
    space.put("a", supports[0])

    def check(turn: int) -> int:
        number = 1 + turn % len(supports)
        answer = read(space, number)
        if answer.status_code == 200:
            assert supports[number - 1] == Support.from_bytes(answer.content)
        else:
            assert_problem(answer, 404, "revision_not_found")
        return answer.status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = pool.map(check, range(72))
        for support in supports[1:]:
            space.put("a", support)
        assert set(statuses) <= {200, 404}


def test_other_signatures_are_other_revisions(space: Space) -> None:
    """The stored signature is that of the present revision, whichever are listed before it."""
    first, second = drifting(2)
    space.put("a", first)
    space.put("a", second)
    got = space.http.get(space.path("signatures", "a"), headers={"Accept": SIGNATURE}).content
    assert second.signature().to_bytes() == got
    assert SUPPORT == read(space, 1).headers["content-type"]


def _text(support: Support) -> str:
    return base64.b64encode(support.to_bytes()).decode()
