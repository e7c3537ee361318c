"""PATCH of a support: the patch goes over the wire, and the result is that of a whole PUT."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Support, wire
from tests.support.fixtures import on_one_database
from tests.support.http_space import (
    JSON,
    SUPPORT,
    Space,
    assert_problem,
    ok,
    random_support,
    related,
)
from tests.support.servers.server_process import raw_exchange

M, K = 10_000, 400
BEFORE = random_support(np.random.default_rng(1), M, K)
AFTER = related(np.random.default_rng(2), BEFORE, 0.9)
THERE, ABSENT = BEFORE.indices[:3].tolist(), np.setdiff1d(np.arange(M), BEFORE.indices)[:3].tolist()


def patch(
    space: Space,
    content: bytes,
    media_type: str = wire.PATCH,
    *,
    model: str = "a",
    if_match: str | None = "now",
    **params: Any,
) -> httpx.Response:
    """PATCH the support of a model, by default on the condition of its present ETag."""
    headers = {"Content-Type": media_type}
    if if_match is not None:
        headers["If-Match"] = space.etag(model) if if_match == "now" else if_match
    url = space.path("supports", model)
    return space.http.patch(url, content=content, headers=headers, params=params)


def json_delta(added: list[int], removed: list[int], **more: Any) -> bytes:
    return json.dumps({"added": added, "removed": removed, **more}).encode()


def stored(space: Space, model: str = "a") -> Support:
    return Support.from_bytes(space.http.get(space.path("supports", model)).content)


@pytest.fixture
def filled(space: Space) -> Space:
    """A space with BEFORE as the model ``a``."""
    space.put("a", BEFORE, tags=["t"])
    return space


ENCODINGS: dict[str, Callable[[], tuple[bytes, str]]] = {
    "native": lambda: (wire.encode_patch(BEFORE, AFTER), wire.PATCH),
    "json": lambda: (
        json_delta(
            sorted({*AFTER.indices.tolist()} - {*BEFORE.indices.tolist()}),
            sorted({*BEFORE.indices.tolist()} - {*AFTER.indices.tolist()}),
            digest=AFTER.digest,
        ),
        JSON,
    ),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_patch_is_as_good_as_the_whole(filled: Space, encoding: str) -> None:
    """The answer is the model with its new ETag.

    Support, signature, neighbours and history are those of a model that got the support whole.
    """
    answer = patch(filled, *ENCODINGS[encoding]())
    assert 200 == answer.status_code, answer.text
    model = answer.json()
    assert (AFTER.digest, K, 2, ["t"]) == (
        model["digest"],
        model["support_size"],
        model["revision"],
        model["tags"],
    )
    assert (filled.etag("a"), filled.model("a")) == (answer.headers["ETag"], model)
    assert AFTER == stored(filled)
    got = filled.http.get(filled.path("signatures", "a")).content
    assert AFTER.signature().to_bytes() == got
    filled.put("whole", BEFORE)
    filled.put("whole", AFTER)
    listed = [
        ok(filled.http.get(filled.path("revisions", name)))["items"] for name in ("a", "whole")
    ]
    for item in (*listed[0], *listed[1]):
        item.pop("created_at")
    assert listed[0] == listed[1]
    assert [("whole", 1.0)] == [
        (n["model"], n["similarity"]) for n in filled.neighbors("a", method="exact")["items"]
    ]


def test_patches_follow_one_another(filled: Space) -> None:
    """Each answer's ETag is what the next patch needs."""
    random = np.random.default_rng(3)
    support, tag = BEFORE, filled.etag("a")
    for _ in range(5):
        following = related(random, support, 0.95)
        answer = patch(filled, wire.encode_patch(support, following), if_match=tag)
        assert 200 == answer.status_code, answer.text
        support, tag = following, answer.headers["ETag"]
    assert (support, 6) == (stored(filled), filled.model("a")["revision"])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [({}, ["t"]), ({"tag": ["y", "x"]}, ["x", "y"]), ({"tag": ""}, [])],
)
def test_tags_are_as_for_a_put(filled: Space, tags: dict[str, Any], expected: list[str]) -> None:
    """Without ``tag`` they stay, with it they are replaced, and an empty one clears them."""
    assert expected == ok(patch(filled, wire.encode_patch(BEFORE, AFTER), **tags))["tags"]


def test_an_empty_patch_changes_nothing(filled: Space) -> None:
    """No index to add or remove is a 200 with the model as it was, of the same ETag and version."""
    before, tag, version = filled.model("a"), filled.etag("a"), filled.show()["version"]
    for content, media_type in (
        (json_delta([], []), JSON),
        (wire.encode_patch(BEFORE, BEFORE), wire.PATCH),
    ):
        answer = patch(filled, content, media_type)
        assert (200, before, tag) == (answer.status_code, answer.json(), answer.headers["ETag"])
    assert version == filled.show()["version"]


def test_any_revision_of_the_listed_ones_will_do(filled: Space) -> None:
    """``If-Match`` follows RFC 9110: a list of tags, or ``*`` for any present model."""
    listed = f'"none", {filled.etag("a")}'
    assert 200 == patch(filled, json_delta(ABSENT[:1], []), JSON, if_match=listed).status_code
    assert 200 == patch(filled, json_delta(ABSENT[1:2], []), JSON, if_match="*").status_code


def test_a_patch_needs_a_condition(filled: Space) -> None:
    """Without If-Match it is a 428 that says what to send, and the body is not read."""
    answer = patch(filled, wire.encode_patch(BEFORE, AFTER), if_match=None)
    assert "If-Match" in assert_problem(answer, 428, "precondition_required")
    host = str(filled.http.base_url.netloc, "ascii")
    request = (
        f"PATCH {filled.path('supports', 'a')} HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: {wire.PATCH}\r\nContent-Length: 100000\r\n\r\n"
    )
    assert b" 428 " in raw_exchange(str(filled.http.base_url).rstrip("/"), request.encode())
    assert BEFORE == stored(filled)


def test_a_stale_revision_is_a_412(filled: Space) -> None:
    """A patch of an old revision, by its ETag or by the digest within, changes nothing."""
    stale = filled.etag("a")
    filled.put("a", AFTER)
    content = wire.encode_patch(BEFORE, AFTER)
    detail = assert_problem(patch(filled, content, if_match=stale), 412, "precondition_failed")
    assert stale in detail
    detail = assert_problem(patch(filled, content, if_match="*"), 412, "precondition_failed")
    assert BEFORE.digest in detail
    assert AFTER.digest in detail
    assert 2 == filled.model("a")["revision"]


@on_one_database
@pytest.mark.parametrize(
    ("content", "field", "message"),
    [
        (json_delta([THERE[1]], []), "added", f"index {THERE[1]} is to be added"),
        (json_delta([], ABSENT[1:]), "removed", f"index {ABSENT[1]} is to be removed"),
        (json_delta([M], []), "added", f"{M} is out of range"),
        (json_delta([], THERE[::-1]), "removed", "not sorted"),
        (json_delta([], BEFORE.indices.tolist()), "removed", f"removes all {K} indices"),
        (json_delta(ABSENT, [], digest=AFTER.digest), None, "has the digest"),
        (b'{"added": [1]}', "removed", "missing"),
        (b'{"added": [NaN], "removed": []}', None, "not valid JSON"),
        (b'{"added": [-1], "removed": []}', "added", "negative"),
        (b"", None, "not valid JSON"),
    ],
)
def test_an_inapplicable_patch_is_named(
    filled: Space, content: bytes, field: str | None, message: str
) -> None:
    """A patch that cannot be applied is a 422 that names the first wrong index.

    That holds for an index to add that is present, and for one to remove that is absent.
    """
    before = filled.show(), filled.model("a")
    answer = patch(filled, content, JSON)
    assert message in assert_problem(answer, 422, "invalid_support", field or "")
    assert before == (filled.show(), filled.model("a"))


def test_a_damaged_delta_is_refused(filled: Space) -> None:
    """One flipped bit, in header or content, is a 422 that changes nothing."""
    data, tag = wire.encode_patch(BEFORE, AFTER), filled.etag("a")
    for place in range(0, len(data), 17):
        content = bytearray(data)
        content[place] ^= 16
        assert_problem(patch(filled, bytes(content), if_match=tag), 422, "invalid_support")
    assert (BEFORE, tag) == (stored(filled), filled.etag("a"))


def test_what_has_no_support_cannot_be_patched(filled: Space) -> None:
    """A model of a signature alone is a 409, one that is not there a 404, another M a 409."""
    content = wire.encode_patch(BEFORE, AFTER)
    filled.put_signature("alone", BEFORE.signature())
    assert_problem(patch(filled, content, model="alone"), 409, "support_missing")
    missing = patch(filled, content, model="none", if_match="*")
    assert_problem(missing, 404, "model_not_found")
    other = Support.from_indices([1], M + 1)
    assert_problem(patch(filled, wire.encode_patch(other, other)), 409, "space_mismatch")
    assert_problem(patch(filled, b"x", SUPPORT), 415, "unsupported_media_type")


def test_a_64_bit_space_is_patched_too(http: httpx.Client) -> None:
    """With M of 8e9 indices beyond 32 bits are added and removed, in both media types."""
    space = Space(http, 8_000_000_000)
    random = np.random.default_rng(5)
    indices = np.unique(random.integers(0, space.m, 500, dtype=np.uint64))
    before = Support.from_indices(indices, space.m)
    new = np.array([2**32 + 7, space.m - 1], np.uint64)
    after = Support.from_indices(np.union1d(indices[20:], new), space.m)
    space.put("a", before)
    assert after.digest == ok(patch(space, wire.encode_patch(before, after)))["digest"]
    assert after == stored(space)
    back = json_delta(indices[:20].tolist(), new.tolist(), digest=before.digest)
    assert before.digest == ok(patch(space, back, JSON))["digest"]


def test_of_concurrent_patches_one_wins(filled: Space) -> None:
    """Of eight patches on the condition of one ETag one succeeds, the others get a 412."""
    random = np.random.default_rng(6)
    contents = [related(random, BEFORE, 0.9) for _ in range(8)]
    tag, barrier = filled.etag("a"), threading.Barrier(8)

    def send(support: Support) -> httpx.Response:
        content = wire.encode_patch(BEFORE, support)
        barrier.wait()
        return patch(filled, content, if_match=tag)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, contents))
    assert [200] + [412] * 7 == sorted(answer.status_code for answer in answers)
    (winner,) = (s for s, a in zip(contents, answers, strict=True) if a.status_code == 200)
    assert (winner, 2) == (stored(filled), filled.model("a")["revision"])


def test_a_patch_on_any_condition_loses_to_a_put(filled: Space) -> None:
    """Patches on ``*`` and whole supports race; the result is one of them, whole."""
    random = np.random.default_rng(7)
    whole = [related(random, BEFORE, 0.5) for _ in range(6)]
    digests = {s.digest for s in whole}

    def send(index: int) -> int:
        return patch(filled, json_delta([index], []), JSON, if_match="*").status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = pool.map(send, ABSENT * 6)
        for support in whole:
            filled.put("a", support)
        assert set(statuses) <= {200, 412, 422}
    last = stored(filled)
    without = np.setdiff1d(last.indices, ABSENT)
    bases = {Support.from_indices(np.setdiff1d(s.indices, ABSENT), M).digest for s in whole}
    assert Support.from_indices(without, M).digest in bases | digests
