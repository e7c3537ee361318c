"""The places of a worker's jobs: what runs beside what, and what waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.jobs.records import JobRecord, QueueName
from app.tenancy.auth.records import Tenant
from tests.support.jobs.records import job_of
from tests.support.servers.waiting import wait_for
from workers.pool import JobPool


class Places:
    """A pool of four places, beside those of short jobs, whose jobs end when they are released."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.release = threading.Event()
        self.pool = JobPool(self._execute, 4, lambda: self.ended.append("a place"))

    def _execute(self, job: JobRecord) -> None:
        self.release.wait(20)
        if job.kind == "buggy":
            raise ZeroDivisionError

    def fill(self, queue: QueueName, tenant_id: int, kind: str = "count") -> int:
        """Start jobs of a tenant until it has no free place, and count them."""
        begun = 0
        while self.pool.has_place(queue, tenant_id):
            job = job_of(f"{queue} {tenant_id} {begun}", Tenant(tenant_id, f"t{tenant_id}"), kind)
            self.pool.start(queue, job)
            begun += 1
        return begun


@pytest.fixture
def places() -> Iterator[Places]:
    """A pool whose jobs all end with the test."""
    made = Places()
    yield made
    made.release.set()
    assert made.pool.wait(10)


@pytest.mark.parametrize(
    ("queue", "expected"), [("jobs", [1, 1, 0]), ("hubs", [1, 1, 0]), ("short", [2, 2, 0])]
)
def test_a_tenant_leaves_a_place_of_each_queue_to_others(
    places: Places, queue: QueueName, expected: list[int]
) -> None:
    """Of four places half are for the hubs; short jobs have four besides, two of each tenant."""
    assert expected == [places.fill(queue, tenant) for tenant in (7, 8, 9)]


def test_full_queues_keep_no_other_from_its_places(places: Places) -> None:
    """Jobs that wait for hubs, short ones and all others delay none of another queue."""
    begun: dict[QueueName, int] = {}
    queues: tuple[QueueName, ...] = ("jobs", "hubs", "short")
    for queue in queues:
        begun[queue] = sum(places.fill(queue, tenant) for tenant in range(5))
    assert {"jobs": 2, "hubs": 2, "short": 4} == begun
    assert 8 == len(places.pool.held)


@pytest.mark.parametrize("kind", ["count", "buggy"])
def test_a_place_is_free_once_its_job_has_ended(
    places: Places, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However it ended, the worker is notified; a bug in the record of an end is in the log."""
    assert 1 == places.fill("jobs", 7, kind)
    assert not places.pool.wait(0.01)
    places.release.set()
    wait_for(lambda: places.ended)
    assert (frozenset(), True) == (places.pool.held, places.pool.has_place("jobs", 7))
    assert (kind == "buggy") == ("because of a bug" in caplog.text)
