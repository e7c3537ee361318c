"""Services that lie to either client: an exception of the SDK, bounded memory, a closed connection.

The server of each case sends raw bytes over loopback, as a hostile or broken service would.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zstandard

from modelkin.client import Client
from modelkin.core.codecs import support as codec
from modelkin.core.support import Support
from modelkin.errors import (
    ApiError,
    ConnectionFailed,
    InvalidParameter,
    ModelkinError,
    PayloadTooLarge,
)
from modelkin.integrations._space_uploads import SpaceUploads
from tests.support.blocking_client import Connect
from tests.support.servers.hostile import Script, chunk, endless, head, hostile_server

MIB = 1 << 20
BOUND = MIB
"""The ``max_answer_bytes`` of the clients here."""

SECONDS = 0.4
"""The ``timeout`` where a server never ends by itself; pauses may last half of it."""

SUPPORT_TYPE = "application/vnd.modelkin.support"
CHUNKED = "Transfer-Encoding: chunked"
BOMB = gzip.compress(bytes(64 * MIB), 9)
SMALL = Support.from_indices([2, 5, 7], 100).to_bytes()


def whole(*lines: str, body: bytes, **words: Any) -> Script:
    """An answer of its declared length."""
    return lambda: iter([head(f"Content-Length: {len(body)}", *lines, **words) + body])


def then(*parts: bytes | Iterator[bytes | float]) -> Iterator[bytes | float]:
    """Parts in sequence."""
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            yield from part


def space(client: Any) -> object:
    """A call whose answer is JSON."""
    return client.spaces.get("digits")


def read_support(client: Any) -> object:
    """A call whose answer is a support."""
    return client.supports.get("digits", "a")


def upload(client: Any) -> object:
    """A call with a body that the buffers of a connection do not take."""
    indices = np.flatnonzero(np.random.default_rng(1).random(1 << 22) < 0.5)
    return client.put_support("digits", "a", Support.from_indices(indices, 1 << 22))


def consecutive(k: int) -> bytes:
    """A support of the first k indices, which compress to nearly nothing."""
    return Support.from_indices(range(k), 1 << 30).to_bytes()


LONG = r"is longer than the [\d,]+ bytes"
SLOW = "did not finish in time"
FOREIGN = "not from a modelkin service"
UNKNOWN = "in a form that modelkin"

Case = tuple[Script, type[ModelkinError], str]

CODED: dict[str, Case] = {
    coding: (whole(f"Content-Encoding: {coding}", body=body), ModelkinError, "is compressed")
    for coding, body in {
        "gzip": BOMB,
        "gzip, gzip": gzip.compress(BOMB),
        "identity, gzip": BOMB,
        "deflate": zlib.compress(bytes(MIB)),
        "zstd": zstandard.compress(bytes(MIB)),
        "br": b"\x8b\x02\x80\x03",
        "unheard-of": b"{}",
    }.items()
}
ENDLESS: dict[str, Case] = {
    "a body without a length": (
        lambda: then(head("Connection: close"), endless(bytes(65_536))),
        PayloadTooLarge,
        LONG,
    ),
    "chunks": (
        lambda: then(head(CHUNKED), endless(chunk(bytes(65_536)))),
        PayloadTooLarge,
        LONG,
    ),
    "a declared length": (
        lambda: then(head(f"Content-Length: {1 << 60}"), endless(bytes(65_536))),
        PayloadTooLarge,
        LONG,
    ),
    "an error": (
        lambda: then(head(CHUNKED, status="500 No"), endless(chunk(bytes(65_536)))),
        PayloadTooLarge,
        LONG,
    ),
    "heads": (
        lambda: then(b"HTTP/1.1 200 OK\r\n", endless(b"X-More: and more\r\n" * 4_000)),
        ConnectionFailed,
        "got no whole answer",
    ),
    "a status line": (
        lambda: then(b"HTTP/1.1 200 ", endless(b"O" * 4_096)),
        ConnectionFailed,
        "got no whole answer",
    ),
    "a size of a chunk": (
        lambda: then(head(CHUNKED), b"1;", endless(b"x" * 4_096)),
        ConnectionFailed,
        "got no whole answer",
    ),
    "trailers": (
        lambda: then(
            head(CHUNKED), chunk(b"{"), b"0\r\n", endless(b"X-More: and more\r\n" * 4_000)
        ),
        ConnectionFailed,
        "got no whole answer",
    ),
}
SLOWLY: dict[str, Case] = {
    "nothing at all": (lambda: endless(b"", 0.05), ConnectionFailed, SLOW),
    "a head byte by byte": (
        lambda: then(b"HTTP/1.1 200 OK\r\nX-More: ", endless(b"y", 0.05)),
        ConnectionFailed,
        SLOW,
    ),
    "a body byte by byte": (
        lambda: then(head(f"Content-Length: {MIB}"), endless(b" ", 0.05)),
        ConnectionFailed,
        SLOW,
    ),
    "chunks byte by byte": (
        lambda: then(head(CHUNKED), endless(b"1\r\n \r\n", 0.05)),
        ConnectionFailed,
        SLOW,
    ),
    "trailers byte by byte": (
        lambda: then(head(CHUNKED), b"0\r\nX-More: ", endless(b"y", 0.05)),
        ConnectionFailed,
        SLOW,
    ),
    "go on, go on": (
        lambda: endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 10, 0.0),
        ConnectionFailed,
        SLOW,
    ),
    "early hints": (
        lambda: endless(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.02),
        ConnectionFailed,
        SLOW,
    ),
}
ODD: dict[str, Case] = {
    "a page": (whole(body=b"<h1>hello</h1>", kind="text/html"), ApiError, FOREIGN),
    "a deep array": (whole(body=b"[" * 100_000), ModelkinError, UNKNOWN),
    "a deep object": (whole(body=b'{"a":' * 100_000), ModelkinError, FOREIGN),
    "a deep field": (
        whole(body=b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ModelkinError,
        FOREIGN,
    ),
    "a long number": (
        whole(body=b'{"name":"digits","num_parameters":' + b"9" * 100_000 + b"}"),
        ModelkinError,
        UNKNOWN,
    ),
    "NaN": (whole(body=b'{"num_parameters":NaN}'), ApiError, FOREIGN),
    "half an object": (whole(body=b'{"name":"dig'), ApiError, FOREIGN),
    "no Unicode": (whole(body=b'{"name":"\xff\xfe"}'), ModelkinError, FOREIGN),
    "a cut body": (
        lambda: iter([head("Content-Length: 100") + b'{"name":']),
        ConnectionFailed,
        "got no whole answer",
    ),
    "two lengths": (
        lambda: iter([head("Content-Length: 2", "Content-Length: 3") + b"{} "]),
        ConnectionFailed,
        "got no whole answer",
    ),
    "no HTTP": (lambda: iter([b"SSH-2.0-hello\r\n"]), ConnectionFailed, "got no whole answer"),
    "another protocol": (
        lambda: iter([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"]),
        ConnectionFailed,
        "got no whole answer",
    ),
    "a redirect": (
        whole("Location: http://other.test/", body=b"", status="302 Found"),
        ApiError,
        "it redirects to",
    ),
    "a redirect to nowhere": (
        whole("Location: http://\x7f[2Jother.test/", body=b"", status="302 Found"),
        ConnectionFailed,
        "got no whole answer",
    ),
    "a deep refusal": (
        whole(body=b'{"code":' + b"[" * 100_000, status="404 No"),
        ApiError,
        FOREIGN,
    ),
}
SUPPORTS: dict[str, Case] = {
    "more than its header says": (
        lambda: then(head("Connection: close", kind=SUPPORT_TYPE), SMALL, endless(bytes(4_096))),
        PayloadTooLarge,
        "by its own header",
    ),
    "no indices": (
        whole(body=SMALL[:16] + bytes(8) + SMALL[24:], kind=SUPPORT_TYPE),
        PayloadTooLarge,
        "by its own header",
    ),
}


def refused(
    connect: Connect, case: Case, ask: Callable[[Any], object], **options: Any
) -> ModelkinError:
    """The error of a call; the server has seen the connection close before the client does."""
    script, kind, said = case
    settings = {"retries": 0, "max_answer_bytes": BOUND, "timeout": 30.0, **options}
    with hostile_server(script) as server, connect(server.url, **settings) as client:
        with pytest.raises(kind, match=said) as caught:
            ask(client)
        assert server.closed.wait(30)
    assert str(caught.value).isprintable()
    return caught.value


UNBOUNDED = {**CODED, **ENDLESS}


@pytest.mark.parametrize("case", UNBOUNDED.values(), ids=UNBOUNDED.keys())
def test_an_answer_without_bounds_is_an_error(case: Case, connect: Connect) -> None:
    """A compressed or endless answer ends in the SDK's error, and its connection with it."""
    refused(connect, case, space)


@pytest.mark.parametrize("case", ODD.values(), ids=ODD.keys())
def test_an_odd_answer_is_an_error(case: Case, connect: Connect) -> None:
    """An answer that is no answer to the question is an error of the SDK, on one line."""
    script, kind, said = case
    with (
        hostile_server(script) as server,
        connect(server.url, retries=0) as client,
        pytest.raises(kind, match=said) as caught,
    ):
        space(client)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("case", SLOWLY.values(), ids=SLOWLY.keys())
def test_a_call_ends_at_its_deadline(case: Case, connect: Connect) -> None:
    """However an answer drips, the call ends after ``timeout`` seconds, and says so."""
    error = refused(connect, case, space, timeout=SECONDS, idle_timeout=SECONDS / 2)
    assert "give the client a longer" in str(error)


@pytest.mark.parametrize("case", SUPPORTS.values(), ids=SUPPORTS.keys())
def test_a_support_is_as_long_as_it_says(case: Case, connect: Connect) -> None:
    """A support is read up to what its header allows, and not further."""
    refused(connect, case, read_support)


def test_a_support_is_bounded_before_it_is_decoded(connect: Connect) -> None:
    """Consecutive indices compress to nothing; the client's bound is of the indices, too."""
    answer = whole(body=consecutive(MIB), kind=SUPPORT_TYPE)
    with (
        hostile_server(answer) as server,
        connect(server.url, max_answer_bytes=BOUND) as client,
        pytest.raises(PayloadTooLarge, match="1,048,576 indices"),
    ):
        read_support(client)


def test_a_support_is_bounded_by_its_space(connect: Connect) -> None:
    """Of a space whose M the client knows, no longer support is read than M parameters can need."""
    longest = codec.max_payload_size(100)
    answers = [
        whole("Connection: close", body=json.dumps(SPACE).encode()),
        whole(body=consecutive(1 << 16) + bytes(longest), kind=SUPPORT_TYPE),
    ]

    def script() -> Iterator[bytes | float]:
        yield from answers.pop(0)()

    with hostile_server(script) as server, connect(server.url, retries=0) as client:
        space(client)
        with pytest.raises(PayloadTooLarge, match=f"{longest:,} bytes") as caught:
            read_support(client)
    assert "for what was asked" in str(caught.value)


def test_an_upload_that_is_not_read_ends(connect: Connect) -> None:
    """The deadline is of sending, too, where a service takes a head and nothing more."""
    case: Case = (lambda: iter([2 * SECONDS]), ConnectionFailed, SLOW)
    error = refused(connect, case, upload, timeout=SECONDS)
    assert "whether it took effect is not known" in str(error)


def test_a_field_twice_is_its_last(connect: Connect) -> None:
    """A field that comes twice has one value, the last, as in other readers of JSON."""
    body = json.dumps(SPACE)[:-1] + ',"name":"other"}'
    with hostile_server(whole(body=body.encode())) as server, connect(server.url) as client:
        assert "other" == client.spaces.get("digits").name


def test_a_wait_for_a_job_has_its_own_deadline(connect: Connect) -> None:
    """``jobs.wait(timeout=)`` ends although the state of the job never comes."""
    drip = SLOWLY["a body byte by byte"][0]
    with hostile_server(drip) as server, connect(server.url, retries=0) as client:
        with pytest.raises(TimeoutError, match="did not say its state"):
            client.jobs.wait("0123", timeout=0.1)
        assert server.closed.wait(30)


@pytest.mark.parametrize("name", ["a body without a length", "chunks", "an error"])
def test_memory_is_bounded(name: str, connect: Connect) -> None:
    """Of an endless answer no more is in memory than twice its bound, and some buffers."""
    tracemalloc.start()
    try:
        refused(connect, ENDLESS[name], space)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * BOUND + 2 * MIB


CHILD = """
import resource, sys, modelkin
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
modelkin.Client("http://127.0.0.1:9", retries=0).close()
before = used()
try:
    modelkin.Client(sys.argv[1], retries=0).spaces.get("digits")
except modelkin.ModelkinError as error:
    print(type(error).__name__, (used() - before) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "mib"), [(CODED["gzip"], 32), (ENDLESS["chunks"], 2 * 256)], ids=["gzip", "chunks"]
)
def test_memory_of_a_process_is_bounded(case: Case, mib: int) -> None:
    """A process by itself, with the bounds as they are: 256 MiB of JSON, and nothing unpacked."""
    script, kind, _ = case
    with hostile_server(script) as server:
        command = [sys.executable, "-c", CHILD, server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    name, used = done.stdout.split()
    assert kind.__name__ == name
    assert int(used) < mib


def test_uploads_of_trainings_are_bounded() -> None:
    """The integrations call the same client, so that a lying service costs them no more."""
    for case in (CODED["gzip"], ENDLESS["chunks"], SLOWLY["a head byte by byte"]):
        refused(
            Client,
            case,
            lambda client: SpaceUploads(client, "digits", 100).open(),
            timeout=SECONDS,
        )


def test_a_bound_has_to_be_one(connect: Connect) -> None:
    """A bound of no bytes would refuse every answer, so it is refused itself."""
    with pytest.raises(InvalidParameter, match="max_answer_bytes must be bytes above 0"):
        connect("http://kin.test", max_answer_bytes=0)


SPACE = {
    "name": "digits",
    "num_parameters": 100,
    "layout": None,
    "signature": {"scheme": "affine32", "num_perm": 256, "seed": 1},
    "models": 3,
    "supports": 2,
    "signatures": 1,
    "version": 7,
    "created_at": "2026-01-02T03:04:05Z",
}
