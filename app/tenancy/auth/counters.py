"""Sliding-window counters of rate limits, in Redis or in this process.

They count by whole seconds. So no sixty consecutive seconds exceed the limit, and the reset time is
exact to the second. In Redis all processes share the counters, by the clock of Redis. Callers stand
behind opaque names. ``rate_limits`` decides what is counted and what is refused.

The library ``limits`` is not used. Its Redis storages open connections of their own, need to know
whether they face a cluster, and have no circuit breaker, so every request would wait for a Redis
that is down. They take two round trips to count and to report what is left. Its memory storage
starts a thread every 10 ms under load, which walks over all callers.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cachetools import LRUCache

from app.infra.storage.redis_script import Script

if TYPE_CHECKING:
    from app.infra.storage.redis import RedisServer

__all__ = ["WINDOW_S", "Counters", "MemoryCounters", "Quota", "RedisCounters", "Standing", "Taken"]

WINDOW_S = 60
"""Seconds that are counted together by default."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on the number of requests within a window of seconds.

    Attributes:
        name: the quota's name, in lower-case letters.
        limit: the most requests within a window, at least 1.
    """

    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The remaining part of a quota.

    Attributes:
        remaining: the number of further requests that are allowed now.
        reset: whole seconds until further requests are allowed, from 1 to the length of the window.
    """

    quota: Quota
    remaining: int
    reset: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking from several quotas at once: from all quotas, or from none."""

    admitted: bool
    standings: tuple[Standing, ...]


class Counters(Protocol):
    """The counters of all callers."""

    def take(self, who: str, quotas: Sequence[Quota], cost: int = 1) -> Taken:
        """Take ``cost`` from each of ``who``'s quotas, if each has something left.

        Refused requests are not counted. A cost of 0 only reads.

        Raises:
            BackendUnavailable: the counters cannot be reached now.
        """


class MemoryCounters:
    """Counters of this process alone.

    Args:
        window: seconds that are counted together.
        callers: the number of callers to remember; the least recently seen is evicted.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        *,
        window: int = WINDOW_S,
        callers: int = 50_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._counted: LRUCache[tuple[str, str], _Seconds] = LRUCache(callers)

    def take(self, who: str, quotas: Sequence[Quota], cost: int = 1) -> Taken:
        with self._lock:
            now = int(self._clock())
            counted = [self._of(who, quota, now) for quota in quotas]
            used = [seconds.total() for seconds in counted]
            admitted = all(n < quota.limit for n, quota in zip(used, quotas, strict=True))
            standings = []
            for quota, seconds, n in zip(quotas, counted, used, strict=True):
                if admitted:
                    seconds.add(cost)
                    n += cost
                standings.append(Standing(quota, max(0, quota.limit - n), seconds.reset()))
        return Taken(admitted, tuple(standings))

    def _of(self, who: str, quota: Quota, now: int) -> _Seconds:
        seconds = self._counted.setdefault((who, quota.name), _Seconds(now, self._window))
        seconds.forward(now)
        return seconds


class _Seconds:
    """The counts of the last seconds, in a ring."""

    __slots__ = ("_counts", "_now")

    def __init__(self, now: int, window: int) -> None:
        self._now = now
        self._counts = array("L", [0]) * window

    def forward(self, now: int) -> None:
        window = len(self._counts)
        for second in range(max(self._now + 1, now - window + 1), now + 1):
            self._counts[second % window] = 0
        self._now = now

    def add(self, count: int) -> None:
        self._counts[self._now % len(self._counts)] += count

    def total(self) -> int:
        return sum(self._counts)

    def reset(self) -> int:
        """Seconds until the oldest count leaves the window."""
        window = len(self._counts)
        for age in range(window - 1, -1, -1):
            if self._counts[(self._now - age) % window]:
                return window - age
        return window


# KEYS[1]: HASH of "quota:second" -> count. ARGV: window, cost; then name and limit of each quota.
# Returns whether it was admitted; then for each quota the count, and the seconds until the oldest
# expires. Seconds in the future go: a clock that was put back would leave them there.
_TAKE = Script("""
local window, cost = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local used, oldest = {}, {}
local kept = redis.call('HGETALL', KEYS[1])
for i = 1, #kept, 2 do
  local name, second = string.match(kept[i], '^(%a+):(%d+)$')
  second = tonumber(second)
  if second == nil or second <= now - window or second > now then
    redis.call('HDEL', KEYS[1], kept[i])
  else
    used[name] = (used[name] or 0) + tonumber(kept[i + 1])
    oldest[name] = math.min(oldest[name] or second, second)
  end
end
local admitted = 1
for i = 3, #ARGV, 2 do
  if (used[ARGV[i]] or 0) >= tonumber(ARGV[i + 1]) then admitted = 0 end
end
local answer = {admitted}
for i = 3, #ARGV, 2 do
  local name = ARGV[i]
  if admitted == 1 and cost > 0 then
    redis.call('HINCRBY', KEYS[1], name .. ':' .. now, cost)
    used[name] = (used[name] or 0) + cost
  end
  answer[#answer + 1] = used[name] or 0
  answer[#answer + 1] = (oldest[name] or now) + window - now
end
if admitted == 1 and cost > 0 then redis.call('EXPIRE', KEYS[1], window) end
return answer
""")


class RedisCounters:
    """Counters in a Redis or a Redis Cluster: one key a caller, gone a window after its last call.

    Args:
        server: closed by the code that opened it.
        window: seconds that are counted together.
    """

    def __init__(self, server: RedisServer, *, window: int = WINDOW_S) -> None:
        self._server = server
        self._window = window

    def take(self, who: str, quotas: Sequence[Quota], cost: int = 1) -> Taken:
        arguments: list[int | str | bytes] = [self._window, cost]
        for quota in quotas:
            arguments += (quota.name, quota.limit)
        admitted, *counts = self._server.run(_TAKE, f"modelkin:rate:{who}", arguments)
        standings = tuple(
            Standing(quota, max(0, quota.limit - int(used)), int(reset))
            for quota, used, reset in zip(quotas, counts[::2], counts[1::2], strict=True)
        )
        return Taken(bool(admitted), standings)
