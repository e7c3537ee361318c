"""put_support sends only the changes where that is smaller, and else the whole, unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import ApiError, ConnectionFailed, ModelkinError, Support, select_support
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.wire import PATCH, SUPPORT, decode_patch, decode_support
from tests.sdk.client.conftest import MODEL
from tests.support.blocking_client import Connect

M = 100_000
RANDOM = np.random.default_rng(1)


def drifted(support: Support, n: int = 20) -> Support:
    """The support with ``n`` indices exchanged."""
    kept = RANDOM.permutation(support.indices)[n:]
    others = RANDOM.permutation(np.setdiff1d(np.arange(M), support.indices, assume_unique=True))[:n]
    return Support.from_indices(np.sort(np.r_[kept, others]), M)


FIRST = Support.from_indices(np.sort(RANDOM.choice(M, 4_000, replace=False)), M)
SECOND = drifted(FIRST)
THIRD = drifted(SECOND)
FOREIGN = Support.from_indices(np.sort(RANDOM.choice(M, 4_000, replace=False)), M)


class Kin:
    """A service of one model, as far as its support goes.

    Attributes:
        answers: what is answered next, in place of what would be; an exception is a lost answer.
        stored: the support, and what its ETag counts.
    """

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.requests: list[httpx.Request] = []
        self.answers: list[int | Exception] = []
        self.stored: Support | None = None
        self.version = 0
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.requests.append(request)
            planned = self.answers.pop(0) if self.answers else None
            if isinstance(planned, int):
                return httpx.Response(planned, json={"code": "planned", "detail": "so it is"})
            answer = self._answer(request)
            if isinstance(planned, Exception):
                raise planned
            return answer

    @property
    def held(self) -> Support:
        """The stored support, once there is one."""
        assert self.stored is not None
        return self.stored

    @property
    def methods(self) -> list[str]:
        """Of the requests so far, which are forgotten."""
        methods = [request.method for request in self.requests]
        self.requests.clear()
        return methods

    def change(self, support: Support | None = None) -> None:
        """Another client changes the model."""
        self.stored, self.version = support or self.stored, self.version + 1

    def _answer(self, request: httpx.Request) -> httpx.Response:
        stale = request.headers.get("if-match", self._etag) != self._etag
        if stale or "if-none-match" in request.headers:
            return httpx.Response(412, json={"code": "precondition_failed", "detail": "changed"})
        if request.method == "GET" and "/supports/" in request.url.path:
            return httpx.Response(
                200,
                content=self.held.to_bytes(),
                headers={"ETag": self._etag, "Content-Type": SUPPORT},
            )
        if request.method == "PATCH" and "/models/" in request.url.path:
            self.change()
        elif request.method != "GET":
            if request.method == "PATCH":
                after = decode_patch(request.content, self.held).apply(self.held)
            else:
                after = decode_support(request.content)
            if after != self.stored:
                self.change(after)
        model = {**MODEL, "space": "digits", "model": "a", "digest": self.held.digest}
        return httpx.Response(200, json=model, headers={"ETag": self._etag})

    @property
    def _etag(self) -> str:
        return f'"{self.version}"'


@pytest.fixture
def kin() -> Kin:
    return Kin()


@pytest.fixture
def client(kin: Kin, opened: Callable[..., Any]) -> Any:
    """Either client of a service that has FIRST, which the client stored."""
    client = opened(kin)
    client.put_support("digits", "a", FIRST)
    kin.requests.clear()
    return client


def test_a_drifted_support_goes_out_as_a_delta(kin: Kin, client: Any) -> None:
    """The second and the third support are PATCHes against the ETag of the one before, smaller than
    they would be whole.
    """
    for support in (SECOND, THIRD):
        tag = f'"{kin.version}"'
        assert support.digest == client.put_support("digits", "a", support).digest
        (request,) = kin.requests
        assert ("PATCH", PATCH) == (request.method, request.headers["content-type"])
        assert tag == request.headers["if-match"]
        assert 8 * len(request.content) < len(support.to_bytes())
        assert support == kin.stored
        kin.requests.clear()


def test_an_ordered_support_goes_out_whole(kin: Kin, client: Any) -> None:
    """Whether it replaces a plain one or an ordered one: where indices change, so do octaves."""
    rng = np.random.default_rng(4)
    for _ in range(2):
        support = select_support(rng.random(M), k=900, ordered=True)
        client.put_support("digits", "a", support)
        assert (["PUT"], support) == (kin.methods, kin.stored)
    client.put_support("digits", "a", FIRST)
    assert ["PUT"] == kin.methods


@pytest.mark.parametrize("status", [404, 405, 409, 412, 413, 415, 422, 428, 501])
def test_a_refused_delta_is_followed_by_the_whole(kin: Kin, client: Any, status: int) -> None:
    """Whatever the service has against the patch, the support goes out whole; a service that takes
    none is not sent another.
    """
    kin.answers = [status]
    assert SECOND.digest == client.put_support("digits", "a", SECOND, tags=["t"]).digest
    patch, put = kin.requests
    assert (patch.url, b"tag=t") == (put.url, put.url.query)
    assert (["PATCH", "PUT"], SECOND) == (kin.methods, kin.stored)
    client.put_support("digits", "a", THIRD)
    assert ["PUT" if status in {405, 415, 501} else "PATCH"] == kin.methods


@pytest.mark.parametrize("status", [401, 403, 507])
def test_other_refusals_are_raised(kin: Kin, client: Any, status: int) -> None:
    """What says nothing of the patch is the caller's to know, and no second request is made."""
    kin.answers = [status]
    with pytest.raises(ApiError) as caught:
        client.put_support("digits", "a", SECOND)
    assert (status, ["PATCH"]) == (caught.value.status, kin.methods)


def test_a_change_by_another_is_replaced(kin: Kin, client: Any) -> None:
    """Where another client was faster, the support stands all the same, as it does with a PUT."""
    kin.change(FOREIGN)
    client.put_support("digits", "a", SECOND)
    assert (["PATCH", "PUT"], SECOND) == (kin.methods, kin.stored)
    client.put_support("digits", "a", THIRD)
    assert ["PATCH"] == kin.methods


def test_a_lost_answer_is_mended(kin: Kin, client: Any) -> None:
    """A patch that took effect while its answer was lost is tried again, refused, and followed by
    the whole: stored once, by all that a reader can see.
    """
    kin.answers = [httpx.ReadError("reset")]
    version = kin.version
    assert SECOND.digest == client.put_support("digits", "a", SECOND).digest
    assert ["PATCH", "PATCH", "PUT"] == kin.methods
    assert (SECOND, version + 1) == (kin.stored, kin.version)


def test_a_delta_waits_out_an_overload(kin: Kin, client: Any) -> None:
    """A 503 is tried again as it is for a PUT."""
    kin.answers = [503]
    client.put_support("digits", "a", SECOND)
    assert (["PATCH", "PATCH"], 1) == (kin.methods, len(kin.pauses))


def test_a_condition_of_the_callers_is_kept(kin: Kin, client: Any) -> None:
    """With the ETag that is known a patch goes out, once; with another one the support does, and a
    412 is raised as without patches.
    """
    tag = f'"{kin.version}"'
    client.put_support("digits", "a", SECOND, if_match=tag)
    assert ["PATCH"] == kin.methods
    with pytest.raises(ApiError) as caught:
        client.put_support("digits", "a", THIRD, if_match=tag)
    assert (412, ["PUT"]) == (caught.value.status, kin.methods)
    kin.answers = [httpx.ReadError("reset")]
    with pytest.raises(ConnectionFailed, match="whether it took effect is not known"):
        client.put_support("digits", "a", THIRD, if_match=f'"{kin.version}"')
    assert ["PATCH"] == kin.methods


def test_a_creation_goes_out_whole(kin: Kin, client: Any) -> None:
    """A model that is to be new has nothing to start a patch from, even if one is known here."""
    with pytest.raises(ApiError) as caught:
        client.put_support("digits", "a", SECOND, create_only=True)
    assert (412, ["PUT"]) == (caught.value.status, kin.methods)


def test_a_stale_condition_is_a_412(kin: Kin, client: Any) -> None:
    """Where the known ETag was asked for and is no longer right, nothing is stored."""
    tag = f'"{kin.version}"'
    kin.change(FOREIGN)
    with pytest.raises(ApiError) as caught:
        client.put_support("digits", "a", SECOND, if_match=tag)
    assert (412, FOREIGN) == (caught.value.status, kin.stored)


def test_a_support_that_was_read_is_known_too(kin: Kin, opened: Callable[..., Any]) -> None:
    """A client that read the support sends a patch of it; one that read an earlier one does not."""
    kin.change(FIRST)
    for params, sent in (({"revision": 1}, "PUT"), ({}, "PATCH")):
        client = opened(kin)
        kin.change(FIRST)
        assert FIRST == client.supports.get("digits", "a", **params)
        kin.requests.clear()
        client.put_support("digits", "a", SECOND)
        assert [sent] == kin.methods


def test_what_this_client_changes_besides_is_no_hindrance(kin: Kin, client: Any) -> None:
    """Tags and attributes move the ETag, which the client sees."""
    client.models.update("digits", "a", tags=["t"])
    client.put_support("digits", "a", SECOND)
    kin.change()
    client.models.get("digits", "a")
    client.put_support("digits", "a", THIRD)
    assert ["PATCH", "PATCH", "GET", "PATCH"] == kin.methods


def test_what_is_no_smaller_goes_out_whole(kin: Kin, client: Any) -> None:
    """Supports with little in common, tiny ones, and those of another M are sent as they are."""
    client.put_support("digits", "a", FOREIGN)
    assert ["PUT"] == kin.methods
    tiny = [Support.from_indices(indices, 100) for indices in ([1, 2], [1, 3])]
    for support in tiny:
        client.put_support("digits", "a", support)
    assert ["PUT", "PUT"] == kin.methods


def test_the_same_support_again_costs_next_to_nothing(kin: Kin, client: Any) -> None:
    """The patch of a support to itself is a header, and changes nothing."""
    version = kin.version
    client.put_support("digits", "a", FIRST)
    (request,) = kin.requests
    assert len(request.content) < 150
    assert version == kin.version


def test_what_is_remembered_is_bounded(kin: Kin, connect: Connect) -> None:
    """The supports used last are kept within the bytes allowed; 0 remembers none."""
    transport = httpx.MockTransport(kin)
    kin.change(FIRST)
    for memory, known in (
        (2 * FIRST.indices.nbytes, "bc"),
        (FIRST.indices.nbytes - 1, ""),
        (0, ""),
    ):
        with connect("http://kin.test", transport=transport, delta_cache_bytes=memory) as client:
            for model in "abc":
                client.put_support("digits", model, FIRST)
            kin.requests.clear()
            for model in "cba":
                client.put_support("digits", model, FIRST)
            assert ["PATCH" if model in known else "PUT" for model in "cba"] == kin.methods


@pytest.mark.parametrize("memory", [-1, 1.5, None, True])
def test_a_memory_that_is_none_is_refused(connect: Connect, memory: object) -> None:
    """delta_cache_bytes is a number of bytes."""
    with pytest.raises(InvalidParameter, match="delta_cache_bytes"):
        connect("http://kin.test", delta_cache_bytes=memory)


def test_another_content_than_was_sent_is_not_believed(
    kin: Kin, opened: Callable[..., Any]
) -> None:
    """Where the answer has another digest than the support, nothing is remembered of it."""
    service = _Lying(kin)
    client = opened(service)
    client.put_support("digits", "a", FIRST)
    service.lies = False
    client.put_support("digits", "a", SECOND)
    assert ["PUT", "PUT"] == kin.methods


class _Lying:
    """The service, with other digests in its answers."""

    def __init__(self, kin: Kin) -> None:
        self.pauses, self.lies, self._kin = kin.pauses, True, kin

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = self._kin(request)
        model = {**answer.json(), **({"digest": FOREIGN.digest} if self.lies else {})}
        return httpx.Response(200, json=model, headers={"ETag": answer.headers["ETag"]})


def test_progress_is_of_what_is_sent(kin: Kin, client: Any) -> None:
    """A report counts the bytes of the patch; where the whole follows, of that, from 0 again."""
    reports: list[tuple[int, int]] = []

    def report(sent: int, total: int) -> None:
        reports.append((sent, total))

    client.put_support("digits", "a", SECOND, progress=report)
    size = len(kin.requests[0].content)
    assert [(0, size), (size, size)] == reports
    reports.clear()
    kin.answers = [412]
    client.put_support("digits", "a", THIRD, progress=report)
    whole = len(THIRD.to_bytes())
    assert [0, 0] == [sent for sent, _ in reports if not sent]
    assert (whole, whole) == reports[-1]


def revision_json(number: int) -> dict[str, Any]:
    """A revision as a service lists it."""
    overlaps = ("self_overlap", "similarity", "standard_error")
    return {
        "revision": number,
        "kind": "support",
        "digest": "sha256:00",
        "support_size": 3,
        "created_at": "2026-01-02T03:04:05Z",
        "kept": number > 1,
        **{f"{name}_{what}": 0.5 for name in overlaps for what in ("previous", "first")},
        **{f"estimate_{what}": "exact" for what in ("previous", "first")},
    }


def test_a_long_history_is_read_page_by_page(wire: Any) -> None:
    """All revisions are listed, however many pages they come in; a page without end is an error."""
    pages = [
        httpx.Response(
            200,
            json={
                "model": "org/a",
                "first_revision": 1,
                "items": [revision_json(number) for number in numbers],
                "next_cursor": cursor,
            },
        )
        for numbers, cursor in (((4, 3), "x"), ((2, 1), None))
    ]
    client = wire.client(*pages)
    revisions = client.revisions.list("digits", "org/a")
    assert [4, 3, 2, 1] == [revision.revision for revision in revisions]
    assert ("org/a", 1, True) == (revisions.model, revisions.first_revision, revisions[0].kept)
    targets = [request.url.raw_path.decode() for request in wire.requests]
    path = "/v1/spaces/digits/revisions/org/a?limit=1000"
    assert [path, f"{path}&cursor=x"] == targets
    with pytest.raises(ModelkinError, match="answers the same page again"):
        wire.client(pages[0]).revisions.list("digits", "org/a")


@pytest.mark.parametrize("revision", [0, -1, 1.0, "1", True])
def test_a_revision_that_is_none_is_never_sent(wire: Any, revision: object) -> None:
    """Revisions count from 1."""
    with pytest.raises(InvalidParameter, match="revision"):
        wire.client(httpx.Response(500)).supports.get("digits", "a", revision=revision)
    assert [] == wire.requests


def test_threads_share_what_is_known(kin: Kin) -> None:
    """Threads that store one model at once leave one of their supports, whatever goes out how."""
    supports = [drifted(FIRST) for _ in range(24)]
    with Client("http://kin.test", transport=httpx.MockTransport(kin)) as client:
        client.put_support("digits", "a", FIRST)
        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(lambda s: client.put_support("digits", "a", s), supports)
            assert [s.digest for s in supports] == [answer.digest for answer in answers]
    assert kin.stored in supports
