"""Following jobs: one query for all streams, through faults, as long as a stream is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from app.auth.records import Tenant
from app.errors import Unavailable
from app.jobs import watcher
from app.jobs.records import JobRecord
from app.jobs.watcher import JobWatcher

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def job(revision: int, name: str = "a", *, finished: bool = False) -> JobRecord:
    """A job at a revision."""
    return JobRecord(
        id=name,
        tenant=Tenant(1, "default"),
        kind="count",
        space_id=None,
        space=None,
        parameters={},
        state="succeeded" if finished else "running",
        progress=None,
        result=None,
        error=None,
        attempts=1,
        cancel_requested=False,
        revision=revision,
        created_at=NOW,
        not_before=None,
        started_at=NOW,
        finished_at=NOW if finished else None,
        dispatch_no=1,
        worker="w",
    )


class Looks:
    """What the database says, look after look; the last again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[set[str]] = []

    def __call__(self, ids: Collection[str]) -> Mapping[str, JobRecord]:
        self.asked.append(set(ids))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {each.id: each for each in answer}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_POLL_INTERVAL_S", 0.01)


async def told(following: JobWatcher, first: JobRecord, after: int | None = None) -> list[int]:
    """The revisions that a stream sends."""
    return [now.revision async for now in following.follow(first, after) if now is not None]


def test_every_change_is_told_once() -> None:
    """From the known revision to the end, each revision once."""
    looks = Looks([job(2)], [job(2)], [job(3)], [job(5, finished=True)])
    following = JobWatcher(looks, is_over=lambda: False)
    assert [2, 3, 5] == asyncio.run(told(following, job(1), after=1))


def test_one_look_tells_all() -> None:
    """Each poll reads each job once, for any number of streams; without streams none is made."""
    looks = Looks([job(2), job(2, "b")], [job(3, finished=True), job(3, "b", finished=True)])
    following = JobWatcher(looks, is_over=lambda: False)

    async def watch() -> list[list[int]]:
        streams = [told(following, job(1, name)) for name in "ab" * 50]
        found = await asyncio.gather(*streams)
        await asyncio.sleep(0.05)
        return found

    assert [[1, 2, 3]] * 100 == asyncio.run(watch())
    assert [{"a", "b"}] * 2 == looks.asked


def test_a_database_that_is_away_ends_no_stream() -> None:
    """The next successful poll continues the stream, and an older answer is not sent."""
    away = Unavailable("it restarts")
    looks = Looks(away, [job(1)], ZeroDivisionError(), away, [job(3, finished=True)])
    following = JobWatcher(looks, is_over=lambda: False)
    assert [2, 3] == asyncio.run(told(following, job(2)))


def test_a_job_that_is_forgotten_ends_its_stream() -> None:
    """So does a process that is about to end."""
    assert [1] == asyncio.run(told(JobWatcher(Looks([]), is_over=lambda: False), job(1)))
    assert [1] == asyncio.run(told(JobWatcher(Looks([job(2)]), is_over=lambda: True), job(1)))


def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream over the limit is refused with an alternative."""
    monkeypatch.setattr(watcher, "_MAX_STREAMS", 2)
    following = JobWatcher(Looks([job(2)]), is_over=lambda: False)

    async def watch() -> None:
        streams = [following.follow(job(1), None) for _ in range(2)]
        for stream in streams:
            following.require_capacity()
            await anext(stream)
        with pytest.raises(Unavailable, match="ask for the job itself"):
            following.require_capacity()
        for stream in streams:
            assert isinstance(stream, AsyncGenerator)
            await stream.aclose()
        following.require_capacity()

    asyncio.run(watch())
