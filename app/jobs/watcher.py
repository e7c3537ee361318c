"""``Watcher``: follows jobs, or other things with revisions, for many streams with one query.

A stream holds neither a thread nor a connection. Polling starts with the first stream and ends with
the last. A stream also ends soon after its key was revoked or has expired, or its visitor signed
out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from anyio.to_thread import run_sync

from app.infra.errors import QueueFull, Unavailable
from app.jobs.records import JobRecord
from app.tenancy.auth.records import Identity

__all__ = ["Followed", "JobWatcher", "Stream", "Watcher"]

_POLL_INTERVAL_S = 0.5
_KEY_CHECK_INTERVAL_S = 20.0
"""Seconds between two checks of the keys and sessions of all streams."""
_MAX_STREAMS = 1000
_MAX_STREAMS_PER_TENANT = 50

log = logging.getLogger(__name__)


class Followed(Protocol):
    """A thing to follow: it changes from revision to revision until it ends."""

    @property
    def id(self) -> str: ...

    @property
    def revision(self) -> int: ...

    @property
    def finished(self) -> bool: ...


T = TypeVar("T", bound=Followed)


@dataclass(frozen=True, slots=True, eq=False)
class Stream(Generic[T]):
    """A place among the streams of a process, from :meth:`Watcher.open` to its ``close``.

    Attributes:
        subject: its state when the stream was opened.
    """

    subject: T
    identity: Identity


class Watcher(Generic[T]):
    """Polls the followed things of one process.

    Args:
        read: returns the existing things with some ids; it runs in a thread and may block.
        usable: returns the callers, of some, whose keys and sessions go on; it may block, too.
        is_over: whether the process is about to end, with all its streams.
    """

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, T]],
        usable: Callable[[Collection[Identity]], Collection[Identity]],
        is_over: Callable[[], bool],
    ) -> None:
        self._read = read
        self._usable = usable
        self._is_over = is_over
        self._streams: set[Stream[T]] = set()
        self._per_tenant: Counter[int] = Counter()
        self._seen: dict[str, T | None] = {}
        self._refused: frozenset[Identity] = frozenset()
        self._checked_at = 0.0
        self._polled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self, subject: T, identity: Identity) -> Stream[T]:
        """Take a place for a stream, in the event loop. Give it back with :meth:`close`.

        Raises:
            QueueFull: the tenant has as many streams as it may.
            Unavailable: all tenants together have as many as the process allows.
        """
        tenant = identity.tenant
        if self._per_tenant[tenant.id] >= _MAX_STREAMS_PER_TENANT:
            raise QueueFull(
                f"this tenant has {_MAX_STREAMS_PER_TENANT} event streams open here, which is all "
                f"that it may have: close one, or ask without a stream"
            )
        if len(self._streams) >= _MAX_STREAMS:
            raise Unavailable(f"{_MAX_STREAMS} streams are open here: ask without a stream")
        stream = Stream(subject, identity)
        self._streams.add(stream)
        self._per_tenant[tenant.id] += 1
        if self._task is None:
            # Without the context of the request that comes first: it polls for all tenants.
            self._task = asyncio.get_running_loop().create_task(self._poll(), context=Context())
        return stream

    def close(self, stream: Stream[T]) -> None:
        """Give the place of a stream back; a second call changes nothing."""
        if stream not in self._streams:
            return
        self._streams.remove(stream)
        tenant_id = stream.identity.tenant.id
        self._per_tenant[tenant_id] -= 1
        if not self._per_tenant[tenant_id]:
            del self._per_tenant[tenant_id]
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = None

    async def follow(self, stream: Stream[T], after: int | None) -> AsyncIterator[T | None]:
        """Yield the subject at once and after each change, until it ends; None after other polls.

        Args:
            after: the revision that the client knows already.
        """
        present = stream.subject
        while True:
            if present.revision != after:
                yield present
                after = present.revision
            if present.finished or self._is_over():
                return
            await self._polled.wait()
            found = self._seen.get(present.id, present)
            if found is None or stream.identity in self._refused:
                return
            if found.revision > present.revision:
                present = found
            else:
                yield None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            try:
                await self._look()
            except Unavailable as error:
                log.info("streams cannot go on now: %s", error)
            except Exception:
                log.exception("streams cannot go on now, because of a bug")
            polled, self._polled = self._polled, asyncio.Event()
            polled.set()

    async def _look(self) -> None:
        """Read the followed things and, less often, the keys and sessions of the streams."""
        asked = frozenset(stream.subject.id for stream in self._streams)
        found = await run_sync(self._read, asked)
        self._seen = {each: found.get(each) for each in asked}
        now = time.monotonic()
        if now - self._checked_at >= _KEY_CHECK_INTERVAL_S:
            callers = frozenset(stream.identity for stream in self._streams)
            keyed = frozenset(caller for caller in callers if caller.key_id is not None)
            self._refused = keyed - frozenset(await run_sync(self._usable, keyed))
            self._checked_at = now


class JobWatcher(Watcher[JobRecord]):
    """Polls the followed jobs of one process."""
