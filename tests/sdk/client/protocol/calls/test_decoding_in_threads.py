"""Answers decoded by threads of one process, each form for the first time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._transport.messages import Response

THREADS = 4


@dataclass(frozen=True)
class First:
    """A form that nothing else decodes."""

    digest: str


@contextmanager
def alone(lock: threading.Lock) -> Iterator[None]:
    """Fail where another thread is in here; stay long enough that others come."""
    assert lock.acquire(blocking=False), "two threads learn a form at once: msgspec may crash"
    try:
        time.sleep(0.05)
        yield
    finally:
        lock.release()


def test_one_thread_learns_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for it, and learn it not again."""
    learning, made, gate = threading.Lock(), list[Any](), threading.Barrier(THREADS)
    decoder = msgspec.json.Decoder

    def learn(form: Any) -> msgspec.json.Decoder[Any]:
        with alone(learning):
            made.append(form)
            return decoder(form)

    def read(_: int) -> str:
        gate.wait()
        return decode(Response(200, {}, b'{"digest": "a"}'), First).digest

    monkeypatch.setattr(msgspec.json, "Decoder", learn)
    with ThreadPoolExecutor(THREADS) as pool:
        assert ["a"] * THREADS == [*pool.map(read, range(THREADS))]
    assert [First] == made
