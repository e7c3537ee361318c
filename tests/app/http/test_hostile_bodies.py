"""Bodies that lie about their length, never end, or mean far more than they are: bounded memory."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import zstandard
from pyroaring import BitMap

from modelkin import Support
from modelkin.wire import PATCH, encode_patch
from tests.sdk.wire.payloads import compressed, forge
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import JSON, RAW, ROARING, SUPPORT, Space, assert_problem, ok
from tests.support.servers.server_process import Server, raw_exchange

M32 = 2**32
GOOD = Support.from_indices(range(0, 10_000, 7), 10_000).to_bytes()
MAX_EXTRA_BYTES = 64 << 20


@pytest.fixture
def steady(server: Server, untouched: Space) -> Iterator[Space]:
    """A space in whose tests the service may not grow by more than 64 MiB, not for a moment."""
    before = server.peak_memory
    yield untouched
    assert server.peak_memory - before < MAX_EXTRA_BYTES


def request(space: Space, headers: str, body: bytes = b"", kind: str = SUPPORT) -> bytes:
    """The bytes of a PUT whose framing headers are the test's own."""
    head = (
        f"PUT /v1/spaces/{space.name}/supports/new HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {kind}\r\n"
    )
    return f"{head}{headers}\r\n\r\n".encode() + body


def status(answer: bytes) -> int:
    """The status of a raw answer."""
    return int(answer.split(b" ", 2)[1])


def endless(limit: int) -> tuple[Iterator[bytes], list[int]]:
    """Up to ``limit`` bytes of zeros in chunks, and how many of them were taken."""
    taken = [0]

    def chunks() -> Iterator[bytes]:
        for _ in range(limit >> 16):
            taken[0] += 1 << 16
            yield bytes(1 << 16)

    return chunks(), taken


@on_one_database
def test_a_declared_length_over_the_limit_is_a_413_at_once(steady: Space) -> None:
    """The answer comes before a byte of the body does."""
    answer = raw_exchange(url_of(steady), request(steady, f"Content-Length: {10**12}"))
    assert 413 == status(answer)
    assert b'"code":"payload_too_large"' in answer


def url_of(space: Space) -> str:
    """The service's address."""
    return str(space.http.base_url).rstrip("/")


@on_one_database
def test_a_long_JSON_is_a_413(steady: Space) -> None:
    """JSON bodies are held to 1 MiB on every route, and the answer says so."""
    body, headers = b" " * ((1 << 20) + 1), {"Content-Type": JSON, "If-Match": "*"}
    for method, url in (
        ("POST", "/v1/spaces"),
        ("PATCH", steady.path("models", "stored")),
        ("PATCH", steady.path("supports", "stored")),
        ("POST", steady.path("similarity")),
        ("PUT", steady.path("supports", "new")),
        ("PUT", steady.path("signatures", "new")),
        ("POST", steady.path("neighbors")),
    ):
        answer = steady.http.request(method, url, content=body, headers=headers)
        assert "1048576" in assert_problem(answer, 413, "payload_too_large")


@on_one_database
def test_a_JSON_of_just_the_limit_is_read(space: Space) -> None:
    """The limit itself is allowed."""
    body = b'{"indices":[1,2]' + b" " * ((1 << 20) - 17) + b"}"
    assert 1 << 20 == len(body)
    assert 2 == ok(space.put_bytes("a", body, JSON))["support_size"]


@on_one_database
@pytest.mark.parametrize("method", ["PATCH", "POST"])
def test_a_chunked_JSON_over_the_limit_is_a_413(steady: Space, method: str) -> None:
    """Without a declared length reading stops at the limit, long before the body ends."""
    chunks, taken = endless(256 << 20)
    url = steady.path("models", "stored") if method == "PATCH" else steady.path("similarity")
    headers = {"Content-Type": JSON}
    try:
        answer = steady.http.request(method, url, content=chunks, headers=headers)
        assert_problem(answer, 413, "payload_too_large")
    except httpx.WriteError:
        pass  # the service has answered and hung up while the rest was still being sent
    assert taken[0] < 64 << 20


@pytest.mark.slow
@on_one_database
def test_a_chunked_support_over_the_limit_is_a_413(start: Start) -> None:
    """Binary bodies are held to their own setting in the same way."""
    running = start("--max-body-bytes=1048576")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http)
        chunks, taken = endless(256 << 20)
        headers = {"Content-Type": RAW}
        before = running.peak_memory
        try:
            answer = http.put(space.path("supports", "a"), content=chunks, headers=headers)
            assert_problem(answer, 413, "payload_too_large")
        except httpx.WriteError:
            pass  # as above
        assert taken[0] < 64 << 20
        assert running.peak_memory - before < MAX_EXTRA_BYTES
        assert 0 == space.show()["models"]


@on_one_database
def test_a_body_longer_than_declared_is_cut(untouched: Space) -> None:
    """Bytes beyond Content-Length do not belong to the body: a cut-off payload is refused."""
    head = f"Connection: close\r\nContent-Length: {len(GOOD) - 1}"
    answer = raw_exchange(url_of(untouched), request(untouched, head, GOOD))
    assert 422 == status(answer)


def test_a_body_shorter_than_declared_is_not_stored(untouched: Space) -> None:
    """A client that leaves in the middle of its body has stored nothing."""
    head = f"Content-Length: {len(GOOD) + 1}"
    raw_exchange(url_of(untouched), request(untouched, head, GOOD), close=True)
    assert 404 == untouched.http.get(untouched.path("models", "new")).status_code


@on_one_database
@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: -1",
        "Content-Length: x",
        "Content-Length: 1e3",
        "Content-Length: " + "9" * 5000,
        "Content-Length: \xb2",
        "Content-Length: 3\r\nContent-Length: 4",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_broken_framing_is_refused(untouched: Space, framing: str) -> None:
    """An invalid length, or two of them, is a 4xx (a 501 for an unknown coding, RFC 9112)."""
    sent = request(untouched, framing, b"abc", RAW)
    answer = raw_exchange(url_of(untouched), sent, close=True)
    assert status(answer) in {400, 413, 501}


def test_broken_chunks_store_nothing(untouched: Space) -> None:
    """An invalid chunk size ends the connection, not the service."""
    body = b"zz\r\nabc\r\n0\r\n\r\n"
    raw_exchange(
        url_of(untouched), request(untouched, "Transfer-Encoding: chunked", body), close=True
    )
    assert 404 == untouched.http.get(untouched.path("models", "new")).status_code


@on_one_database
def test_a_chunked_body_is_read_like_any_other(space: Space) -> None:
    """A support that comes in pieces without a length is whole."""
    pieces = (GOOD[at : at + 50] for at in range(0, len(GOOD), 50))
    headers = {"Content-Type": SUPPORT}
    answer = space.http.put(space.path("supports", "a"), content=pieces, headers=headers)
    assert 201 == answer.status_code


@pytest.mark.slow
@on_one_database
def test_a_slow_body_is_a_408(start: Start) -> None:
    """A body that does not come within the deadline is given up, and holds nothing meanwhile."""
    running = start("--body-timeout-seconds=0.3")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http)
        for kind in (SUPPORT, JSON):
            head = request(space, "Content-Length: 100", b"{", kind)
            answer = raw_exchange(running.url, head)
            assert 408 == status(answer)
            assert b'"code":"body_timeout"' in answer
        assert 0 == space.show()["models"]


@on_one_database
@pytest.mark.slow
def test_many_slow_bodies_do_not_stop_the_others(untouched: Space) -> None:
    """100 uploads that stall hold neither a thread nor a connection to the database."""
    head = request(untouched, "Content-Length: 100000", b"x")
    threads = [
        threading.Thread(target=raw_exchange_for, args=(untouched, head, 1.0)) for _ in range(100)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    answers = [untouched.http.get("/readyz").status_code for _ in range(5)]
    assert [200] * 5 == answers
    for thread in threads:
        thread.join()


def raw_exchange_for(space: Space, head: bytes, seconds: float) -> None:
    """Send the beginning of a request, wait, and leave."""
    host, port = url_of(space).removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head)
        time.sleep(seconds)


@pytest.mark.slow
@on_one_database
def test_a_frame_that_declares_a_gigabyte_is_not_inflated(steady: Space) -> None:
    """32 kB that decompress to 1 GiB are refused by what M and K allow."""
    support = Support.from_bytes(GOOD)
    bomb = forge(support, frame=compressed(bytes(1 << 30)))
    answer = steady.put_bytes("new", bomb, SUPPORT)
    assert "declares" in assert_problem(answer, 422, "invalid_support")


@on_one_database
def test_a_frame_that_declares_nothing_is_not_inflated(steady: Space) -> None:
    """A frame without its size, and one that lies about it, are refused."""
    support = Support.from_bytes(GOOD)
    writer = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    silent = writer.compress(bytes(1 << 28)) + writer.flush()
    lying = compressed(bytes(60_000))
    lying = lying[:5] + struct.pack("<H", support.k - 256) + lying[7:]
    for frame in (silent, lying):
        answer = steady.put_bytes("new", forge(support, frame=frame), SUPPORT)
        assert_problem(answer, 422, "invalid_support")


@pytest.fixture(scope="module")
def wide(http: httpx.Client) -> Space:
    """A space of 2^32 parameters, where small payloads can honestly mean gigabytes."""
    return Space(http, M32)


@on_one_database
def test_a_huge_declared_K_allocates_nothing(steady: Space, wide: Space) -> None:
    """A header of four billion indices is refused before anything is decoded."""
    support = Support.from_indices([1, 5], M32)
    payload = forge(support, k=M32, frame=compressed(b"\0" * 1000))
    assert_problem(wide.put_bytes("a", payload, SUPPORT), 413, "payload_too_large")


@on_one_database
@pytest.mark.parametrize("last", [M32, 2**31])
def test_a_bitmap_of_billions_is_never_materialised(steady: Space, wide: Space, last: int) -> None:
    """A few hundred kilobytes of runs that hold 2 or 4 billion indices are a 413."""
    bitmap = BitMap()
    bitmap.add_range(0, last)
    bitmap.run_optimize()
    payload = bitmap.serialize()
    assert len(payload) < 1 << 20
    assert_problem(wide.put_bytes("a", payload, ROARING), 413, "payload_too_large")
    headers = {"Content-Type": ROARING}
    answer = wide.http.post(wide.path("neighbors"), content=payload, headers=headers)
    assert_problem(answer, 413, "payload_too_large")


@on_one_database
def test_a_bitmap_beyond_M_is_never_materialised(steady: Space) -> None:
    """Where M is small, the same bitmap is out of range."""
    bitmap = BitMap()
    bitmap.add_range(0, 2**28)
    bitmap.run_optimize()
    answer = steady.put_bytes("new", bitmap.serialize(), ROARING)
    assert "out of range" in assert_problem(answer, 422, "invalid_support")


@pytest.mark.slow
@on_one_database
def test_what_a_body_decodes_to_is_held_to_the_limit_too(start: Start) -> None:
    """With bodies of 1 MiB, a support of more than 2^18 indices is too large in every format."""
    running = start("--max-body-bytes=1048576")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http, 10_000_000)
        support = Support.from_indices(np.arange(2**18 + 1), space.m)
        bitmap = BitMap(range(2**18 + 1))
        bitmap.run_optimize()
        for payload, kind in ((support.to_bytes(), SUPPORT), (bitmap.serialize(), ROARING)):
            assert_problem(space.put_bytes("a", payload, kind), 413, "payload_too_large")
        smaller = Support.from_indices(np.arange(2**18), space.m)
        assert 2**18 == space.put("a", smaller)["support_size"]
        delta, url = encode_patch(smaller, support), space.path("supports", "a")
        for content, kind in ((delta, PATCH), (b'{"added":[262144],"removed":[]}', JSON)):
            headers = {"Content-Type": kind, "If-Match": "*"}
            answer = http.patch(url, content=content, headers=headers)
            assert_problem(answer, 413, "payload_too_large")


@on_one_database
def test_deep_JSON_costs_no_memory(steady: Space) -> None:
    """100,000 levels are refused in bounded memory on every route that takes JSON."""
    body = b"[" * 100_000 + b"]" * 100_000
    headers = {"Content-Type": JSON, "If-Match": "*"}
    for method, url in (
        ("PUT", steady.path("supports", "new")),
        ("PATCH", steady.path("supports", "stored")),
        ("PUT", steady.path("signatures", "new")),
        ("POST", steady.path("donors")),
        ("POST", steady.path("similarity")),
    ):
        assert 422 == steady.http.request(method, url, content=body, headers=headers).status_code
