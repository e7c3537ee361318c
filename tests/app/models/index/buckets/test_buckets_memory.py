"""The memory store keeps the contract."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from app.models.index.buckets.protocol import Buckets
from tests.app.models.index.buckets.contract import CAP, BucketsContract
from tests.app.models.index.buckets.machine import BucketsMachine
from tests.app.models.index.buckets.oracle import EPOCH, keys
from tests.support.memory_buckets import MemoryBuckets


class TestMemory(BucketsContract):
    @pytest.fixture
    def buckets(self) -> Buckets:
        """A store of the test's own."""
        return MemoryBuckets(cap=CAP)


@pytest.mark.slow
def test_any_history_is_followed() -> None:
    """After any events in any order, the store answers as a dict would."""
    kept = MemoryBuckets(cap=3)

    class Machine(BucketsMachine):
        buckets = kept
        cap = 3

    run_state_machine_as_test(Machine, settings=settings(max_examples=60))


def test_a_closed_store_has_freed_its_memory() -> None:
    """Closing frees the memory of all spaces."""
    buckets = MemoryBuckets()
    buckets.apply(1, EPOCH, 0, 1, [(7, keys(1))], [])
    buckets.close()
    assert buckets.state(1) is None
