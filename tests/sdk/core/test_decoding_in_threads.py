"""JSON decoded by threads of one process, each form for the first time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._transport.messages import Response
from modelkin.core.foreign_json import decode_json

THREADS = 4


@dataclass(frozen=True)
class First:
    """A form of answers that nothing else decodes."""

    digest: str


class Second(msgspec.Struct):
    """A form of files that nothing else decodes."""

    digest: str


def answer(text: bytes) -> First:
    """As an answer of the service is decoded."""
    return decode(Response(200, {}, text), First)


def part(text: bytes) -> Second:
    """As a file's part, or a hub's answer, is decoded."""
    return decode_json(text, Second)


@contextmanager
def alone(lock: threading.Lock) -> Iterator[None]:
    """Fail where another thread is in here; stay long enough that others come."""
    assert lock.acquire(blocking=False), "two threads learn a form at once: msgspec may crash"
    try:
        time.sleep(0.05)
        yield
    finally:
        lock.release()


@pytest.mark.parametrize(("form", "of"), [(First, answer), (Second, part)])
def test_one_thread_learns_a_form(
    form: type[Any], of: Callable[[bytes], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it, and learn it not again."""
    learning, made, gate = threading.Lock(), list[Any](), threading.Barrier(THREADS)
    decoder = msgspec.json.Decoder

    def learn(form: Any) -> msgspec.json.Decoder[Any]:
        with alone(learning):
            made.append(form)
            return decoder(form)

    def read(_: int) -> str:
        gate.wait()
        digest: str = of(b'{"digest": "a"}').digest
        return digest

    monkeypatch.setattr(msgspec.json, "Decoder", learn)
    with ThreadPoolExecutor(THREADS) as pool:
        assert ["a"] * THREADS == [*pool.map(read, range(THREADS))]
    assert [form] == made
