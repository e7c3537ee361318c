"""Following jobs: one query for all streams, through faults, as long as a stream is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from app.infra.errors import QueueFull, Unavailable
from app.infra.http.event_stream import EventStream
from app.jobs import watcher
from app.jobs.records import JobRecord
from app.jobs.schemas import JobOut
from app.jobs.watcher import JobWatcher
from app.tenancy.auth.records import Identity, Tenant

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


def watching(
    read: Looks, *, keys: Collection[int] = frozenset(), is_over: Callable[[], bool] = lambda: False
) -> JobWatcher:
    """A watcher, and the keys that are valid as long as it runs."""
    return JobWatcher(read, lambda asked: [each for each in asked if each.key_id in keys], is_over)


def caller(tenant: int = 1, key: int | None = None) -> Identity:
    """The holder of a key of a tenant."""
    return Identity(Tenant(tenant, f"t{tenant}"), frozenset(["read"]), key)


async def told(
    following: JobWatcher,
    first: JobRecord,
    after: int | None = None,
    identity: Identity | None = None,
) -> list[int]:
    """The revisions that a stream sends."""
    stream = following.open(first, identity or caller())
    try:
        return [now.revision async for now in following.follow(stream, after) if now is not None]
    finally:
        following.close(stream)


def test_every_change_is_told_once() -> None:
    """From the known revision to the end, each revision once."""
    looks = Looks([job(2)], [job(2)], [job(3)], [job(5, finished=True)])
    following = watching(looks)
    assert [2, 3, 5] == asyncio.run(told(following, job(1), after=1))


def test_one_look_tells_all() -> None:
    """Each poll reads each job once, for any number of streams; without streams none is made."""
    looks = Looks([job(2), job(2, "b")], [job(3, finished=True), job(3, "b", finished=True)])
    following = watching(looks)

    async def watch() -> list[list[int]]:
        streams = [told(following, job(1, name)) for name in "ab" * 25]
        found = await asyncio.gather(*streams)
        await asyncio.sleep(0.05)
        return found

    assert [[1, 2, 3]] * 50 == asyncio.run(watch())
    assert [{"a", "b"}] * 2 == looks.asked


def test_a_database_that_is_away_ends_no_stream() -> None:
    """The next successful poll continues the stream, and an older answer is not sent."""
    away = Unavailable("it restarts")
    looks = Looks(away, [job(1)], ZeroDivisionError(), away, [job(3, finished=True)])
    following = watching(looks)
    assert [2, 3] == asyncio.run(told(following, job(2)))


def test_a_job_that_is_forgotten_ends_its_stream() -> None:
    """So does a process that is about to end."""
    assert [1] == asyncio.run(told(watching(Looks([])), job(1)))
    assert [1] == asyncio.run(told(watching(Looks([job(2)]), is_over=lambda: True), job(1)))


def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream over the limit is refused with an alternative."""
    monkeypatch.setattr(watcher, "_MAX_STREAMS", 2)
    following = watching(Looks([job(2)]))

    async def watch() -> None:
        streams = [following.open(job(1), caller(tenant)) for tenant in (1, 2)]
        with pytest.raises(Unavailable, match="ask without a stream"):
            following.open(job(1), caller(3))
        for stream in streams:
            following.close(stream)
        following.close(following.open(job(1), caller(3)))

    asyncio.run(watch())


def test_a_tenant_has_places_for_some_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are open count at once; beyond them it is refused, and others are not."""
    monkeypatch.setattr(watcher, "_MAX_STREAMS_PER_TENANT", 2)
    following = watching(Looks([job(2)]))

    async def watch() -> None:
        first, second = (following.open(job(1), caller(1)) for _ in range(2))
        with pytest.raises(QueueFull, match="has 2 event streams open here"):
            following.open(job(1), caller(1))
        other = following.open(job(1), caller(2))
        following.close(first)
        following.close(first)  # which gives back one place, not two
        third = following.open(job(1), caller(1))
        with pytest.raises(QueueFull):
            following.open(job(1), caller(1))
        for stream in (second, third, other):
            following.close(stream)

    asyncio.run(watch())


def test_a_stream_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its key is revoked; others go on, those of callers without a key as well."""
    monkeypatch.setattr(watcher, "_KEY_CHECK_INTERVAL_S", 0.02)
    valid = {7, 8}
    following = watching(Looks([job(2)]), keys=valid)

    async def watch() -> None:
        identities = [caller(key=7), caller(key=8), caller()]
        tasks = [asyncio.create_task(told(following, job(1), None, each)) for each in identities]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in tasks)
        valid.remove(8)
        assert [1, 2] == await asyncio.wait_for(tasks[1], 5)
        await asyncio.sleep(0.1)
        assert [False, True, False] == [task.done() for task in tasks]
        for task in tasks:
            task.cancel()

    asyncio.run(watch())


def test_keys_are_asked_for_less_often_than_jobs() -> None:
    """Once for many polls, and once for all streams of a key."""
    looks = Looks(*([[job(2)]] * 5), [job(3, finished=True)])
    asked: list[set[int | None]] = []

    def usable(callers: Collection[Identity]) -> Collection[Identity]:
        asked.append({each.key_id for each in callers})
        return callers

    following = JobWatcher(looks, usable, is_over=lambda: False)

    async def watch() -> list[list[int]]:
        streams = [told(following, job(1), None, caller(key=key)) for key in (7, 8, 8)]
        return await asyncio.gather(*streams)

    assert [[1, 2, 3]] * 3 == asyncio.run(watch())
    assert (6, [{7, 8}]) == (len(looks.asked), asked)


def test_an_answer_that_is_never_sent_takes_no_place() -> None:
    """A client may leave between the endpoint and the first byte."""
    following = JobWatcher(Looks([job(1)]), lambda _: [], lambda: False)
    for _ in range(51):
        EventStream(partial(following.open, job(1), caller(1)), following, None, JobOut.of)
