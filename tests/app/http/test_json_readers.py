"""The processes that read long JSON: the same results as here, and a service that outlives them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.infra.http.requests.json_bodies import JsonParsers, run_here
from app.infra.http.requests.json_reading import validate_body
from app.infra.subprocesses import CallProcess
from app.models.catalog.endpoints.line_fields import read_fields
from app.models.catalog.schemas import ModelUpdate
from app.models.spaces.schemas.requests import SpaceIn
from app.search.schemas import SimilarityIn
from modelkin import Support, wire
from modelkin.core.patch import Patch
from modelkin.errors import ModelkinError
from tests.support.http_space import JSON, assert_problem
from tests.support.servers.server_process import Server

LAYOUT: Final = [{"name": f"{number:x}", "shape": [2]} for number in range(2_000)]
LARGE: Final = json.dumps({"name": "large", "layout": LAYOUT}).encode()

# --- the same results ---------------------------------------------------------------------------

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**65) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_tensors = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c", "", "é"]), "shape": st.lists(st.integers(-1, 9))}
)
_fields = {
    "name": st.just("s") | _values,
    "layout": st.lists(_tensors, max_size=4) | _values,
    "exclude": st.lists(st.sampled_from(["a", "*", "x*"]), max_size=2) | _values,
    "models": st.lists(st.sampled_from("ab"), max_size=3) | _values,
    "model": st.just("m") | _values,
    "tags": st.lists(st.sampled_from(["a", "b", ""]), max_size=3) | _values,
    "attributes": st.dictionaries(st.text(max_size=3), _values) | _values,
    "indices": st.lists(st.integers(0, 9), unique=True).map(sorted) | _values,
    "added": st.lists(st.integers(0, 9), unique=True).map(sorted) | _values,
    "removed": st.lists(st.integers(0, 9), unique=True).map(sorted) | _values,
}
_bodies = st.one_of(
    st.fixed_dictionaries({}, optional=_fields).map(json.dumps).map(str.encode),
    st.builds(
        lambda layout, exclude: json.dumps(
            {"name": "s", "layout": layout, "exclude": exclude}
        ).encode(),
        st.lists(_tensors, max_size=4),
        st.lists(st.sampled_from(["a", "*", "x*"]), max_size=2),
    ),
    st.just(b'{"name":"s","name":"s"}') | st.just(b'"\\ud800"') | st.binary(max_size=9),
)

Read = Callable[[Callable[..., Any], bytes], Any]


def _body(kind: type) -> Callable[[Callable[..., Any], bytes], Any]:
    return lambda run, body: run(validate_body, kind, body)


READERS: Final[dict[str, Read]] = {
    "space": _body(SpaceIn),
    "model": _body(ModelUpdate),
    "similarity": _body(SimilarityIn),
    "line": lambda run, body: run(read_fields, body),
    "support": lambda run, body: run(wire.load_support, body, JSON, 9),
    "either": lambda run, body: run(wire.load_either, body, JSON, 9),
    "delta": lambda run, body: run(wire.load_json_patch, body, 9),
}


@pytest.fixture(scope="module")
def child() -> Iterator[CallProcess]:
    """A process that reads."""
    child = CallProcess("reading")
    yield child
    child.close()


def _outcome(read: Callable[[], Any]) -> Any:
    """A result, or the error in its place, in a form that can be compared."""
    try:
        return _plain(read())
    except ModelkinError as error:
        return _plain(error)


def _plain(result: Any) -> Any:
    if isinstance(result, ModelkinError):
        return type(result), str(result), getattr(result, "field", None)
    if isinstance(result, SpaceIn):
        return result.model_dump(), _outcome(lambda: result.stored_layout)
    if isinstance(result, Patch):
        return result.added.tolist(), result.removed.tolist(), result.digest
    return tuple(map(_plain, result)) if isinstance(result, tuple) else result


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@given(body=_bodies)
def test_a_body_is_read_there_as_it_is_here(child: CallProcess, reader: str, body: bytes) -> None:
    """The same model, the same mistakes and the same words, whichever process reads."""
    read = READERS[reader]
    assert _outcome(lambda: read(run_here, body)) == _outcome(lambda: read(child.call, body))


def test_a_signature_comes_back_as_it_is_read_here(child: CallProcess) -> None:
    """With values that cannot be written to."""
    signature = Support([1, 5, 7], 9).signature()
    body = json.dumps(wire.signature_to_json(signature)).encode()
    there = child.call(wire.load_signature, body, JSON, 9)
    assert signature == there
    assert not there.values.flags.writeable


# --- a service and its readers ------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Server, httpx.Client]]:
    """A service that has read no long body yet, and a client."""
    server = Server(tmp_path, "--embedded-worker=off").start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        yield server, http
    server.kill()


def children(pid: int | None) -> set[int]:
    """The processes that a process has started, of those that read for it."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found |= {int(child) for child in (thread / "children").read_text().split()}
    return {each for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()}


def reader_of(server: Server) -> int:
    """The one process that reads, once it has started: from then on its priority is lower."""
    end = time.monotonic() + 60
    low = os.nice(0) + 5
    while [os.getpriority(os.PRIO_PROCESS, pid) for pid in children(server.process.pid)] != [low]:
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.5)
    (reader,) = children(server.process.pid)
    return reader


def post(http: httpx.Client, body: bytes) -> httpx.Response:
    """Create a space."""
    return http.post("/v1/spaces", content=body, headers={"Content-Type": JSON})


def gone(pid: int) -> bool:
    """Whether a process computes no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_a_long_body_is_read_by_another_process(service: tuple[Server, httpx.Client]) -> None:
    """One that starts beside the first and stays; a short body starts none."""
    server, http = service
    assert post(http, b'{"name":"short","num_parameters":9}').status_code == 201
    assert children(server.process.pid) == set()
    answer = post(http, LARGE)
    assert answer.status_code == 201
    assert LAYOUT == answer.json()["layout"] == http.get("/v1/spaces/large").json()["layout"]
    reader = reader_of(server)
    assert post(http, LARGE).status_code == 200
    assert {reader} == children(server.process.pid)


def test_where_no_thread_starts_a_text_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a later text starts a process, once there is room for its thread."""
    parsers, body = JsonParsers(share=1.0, timeout=1), b'{"name":"s"}'
    started: list[str] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        assert validate_body(SpaceIn, body) == parsers.run(validate_body, SpaceIn, body)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread.name))
    assert validate_body(SpaceIn, body) == parsers.run(validate_body, SpaceIn, body)
    assert ["json-reader-start"] == started


@pytest.mark.slow
def test_a_reader_that_is_killed_refuses_one_body(service: tuple[Server, httpx.Client]) -> None:
    """As the kernel kills one where memory runs out: a 503 for that body, and a new reader."""
    server, http = service
    assert post(http, LARGE).status_code == 201
    reader = reader_of(server)
    os.kill(reader, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(post, http, LARGE)
        time.sleep(2.0)
        assert not sent.done()
        assert httpx.get(f"{server.url}/livez", timeout=60, trust_env=False).status_code == 200
        os.kill(reader, signal.SIGKILL)
        assert "memory" in assert_problem(sent.result(), 503, "unavailable")
    assert post(http, LARGE).status_code == 200
    assert reader_of(server) != reader


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_readers_end_with_the_service(
    service: tuple[Server, httpx.Client], how: signal.Signals
) -> None:
    """However it ends."""
    server, http = service
    assert post(http, LARGE).status_code == 201
    reader = reader_of(server)
    server.process.send_signal(how)
    server.process.wait(60)
    end = time.monotonic() + 20
    while not gone(reader):
        assert time.monotonic() < end
        time.sleep(0.02)
