"""How the lines of a batch are read: long ones in turn, and in memory of the budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.infra.errors import Unavailable
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import DECODED_BYTES_PER_BYTE, QUICK_BYTES, Run, run_here
from app.infra.http.requests.memory_budget import Budget, Reservation
from app.models.catalog.batches import RefusedEntry
from app.models.catalog.endpoints.batch_lines import LineReader
from modelkin import Support
from modelkin.wire import signature_to_json

M = 10_000
LIMITS = BodyLimits(8 << 20, 1 << 20, 5.0)
SIGNED = signature_to_json(Support.from_indices(range(100), M).signature())


def line(size: int) -> memoryview:
    """A line of so many bytes."""
    text = json.dumps({"model": "a", "signature": SIGNED}).encode()
    return memoryview(text.ljust(size))


def test_a_long_line_is_parsed_in_turn_and_in_memory_of_the_budget() -> None:
    """A line of a megabyte becomes thirty; a short one takes neither, nor is more taken later."""
    hold = Reservation(Budget(1 << 30, 0.1), "tenant")
    held: list[int] = []

    @contextmanager
    def parsing(_size: int) -> Iterator[Run]:
        held.append(hold.size)
        yield run_here

    reader = LineReader(LIMITS, M, LIMITS.max_json_bytes, hold, parsing)
    for size in (QUICK_BYTES, LIMITS.max_json_bytes, LIMITS.max_json_bytes):
        assert not isinstance(reader.read(line(size)), RefusedEntry)
    nothing, some, the_same = held
    assert 0 == nothing
    assert DECODED_BYTES_PER_BYTE * LIMITS.max_json_bytes < some == the_same


def test_a_line_without_a_turn_ends_the_batch() -> None:
    """The lines behind it have no chance either; the client has made no mistake."""

    @contextmanager
    def parsing(_size: int) -> Iterator[Run]:
        raise Unavailable("the bodies of others are served")
        yield run_here

    hold = Reservation(Budget(1 << 30, 0.1), "tenant")
    with pytest.raises(Unavailable):
        LineReader(LIMITS, M, 100, hold, parsing).read(line(100))
