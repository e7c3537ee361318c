"""Rate limits: who may ask how often, and who has asked too often.

A tenant is counted as a whole, however many keys it has; where keys are not asked for, an address
is. Keys that open nothing are counted by the address that they come from, so that guessing takes
time; whoever has shown a good key is not held up by others who guess from the same address.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import threading
from collections.abc import Sequence

from cachetools import LRUCache

from app.auth.counters import Counters, MemoryCounters, Quota, Standing, Taken
from app.auth.records import Tenant
from app.errors import BackendUnavailable, RateLimited

__all__ = ["RateLimits", "RateLimitExceeded"]

_GOOD = 10_000
"""Good keys that are remembered."""
_NETWORK = 64
"""Bits of an IPv6 address that tell one household from another; the rest anybody chooses."""

log = logging.getLogger(__name__)


class RateLimitExceeded(RateLimited):
    """A refusal, and what is left of each quota that was asked.

    Args:
        message: with room for the name and the limit of the quota that is used up.
        taken: nothing.
    """

    def __init__(self, message: str, taken: Taken) -> None:
        spent = [standing for standing in taken.standings if standing.remaining == 0]
        last = max(spent, key=lambda standing: standing.reset)
        told = message.format(last.quota.name, last.quota.limit)
        super().__init__(f"{told}; try again in {last.reset} s", retry_after=last.reset)
        self.standings = taken.standings


class RateLimits:
    """The limits of one service.

    Args:
        requests: of a tenant in a minute; None for no limit.
        writes: likewise, of those that change something.
        shared: counters that all processes see; None where each has to count for itself.
        secret: of the database: makes the names of those who are counted tell nothing, and differ
            from those of another database on the same counters.
    """

    def __init__(
        self, requests: int | None, writes: int | None, shared: Counters | None, secret: str
    ) -> None:
        self._requests = None if requests is None else Quota("requests", requests)
        self._writes = None if writes is None else Quota("writes", writes)
        tries = requests if requests is not None else writes
        self._tries = None if tries is None else Quota("tries", tries)
        self._shared = shared
        self._own = MemoryCounters()
        self._secret = secret.encode()
        self._good: LRUCache[bytes, bool] = LRUCache(_GOOD)
        self._lock = threading.Lock()
        self._failing = False

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self._tries is not None

    def count_tenant(self, tenant: Tenant, *, writes: bool) -> tuple[Standing, ...]:
        """Count a request of a tenant; what is left to it.

        Raises:
            RateLimited: it had asked too often already.
        """
        return self._count("tenant", str(tenant.id), f"tenant {tenant.name!r}", writes)

    def count_address(self, address: str, *, writes: bool) -> tuple[Standing, ...]:
        """Count a request from an address, where nobody needs a key.

        Raises:
            RateLimited: too many came from there already.
        """
        return self._count("address", _network(address), "this address", writes)

    def check_tries(self, address: str, credentials: str) -> None:
        """Let nobody try one more key who has tried too many, unless this one was good before.

        Raises:
            RateLimited: too many keys that open nothing came from there.
        """
        with self._lock:
            if self._good.get(self._digest(credentials)):  # reading it makes it the newest
                return
        self._try(address, cost=0)

    def note_good(self, credentials: str) -> None:
        """These opened something."""
        with self._lock:
            self._good[self._digest(credentials)] = True

    def note_bad(self, address: str, credentials: str) -> None:
        """These opened nothing.

        Raises:
            RateLimited: others from the same address did so at the same moment, too often.
        """
        with self._lock:
            self._good.pop(self._digest(credentials), None)
        self._try(address, cost=1)

    def _count(self, kind: str, who: str, called: str, writes: bool) -> tuple[Standing, ...]:
        quotas = [self._requests, self._writes if writes else None]
        wanted = [quota for quota in quotas if quota is not None]
        if not wanted:
            return ()
        taken = self._take(kind, who, wanted)
        if not taken.admitted:
            raise RateLimitExceeded(
                f"{called} has made too many {{}}: {{}} a minute are allowed", taken
            )
        return taken.standings

    def _try(self, address: str, cost: int) -> None:
        if self._tries is not None:
            taken = self._take("tries", _network(address), [self._tries], cost)
            if not taken.admitted:
                raise RateLimitExceeded(
                    "too many {} of wrong keys came from this address: {} a minute are allowed",
                    taken,
                )

    def _take(self, kind: str, who: str, quotas: Sequence[Quota], cost: int = 1) -> Taken:
        """Count where all processes see it or, while that cannot be reached, here."""
        name = self._digest(f"{kind} {who}").hex()
        if self._shared is not None:
            try:
                taken = self._shared.take(name, quotas, cost)
            except BackendUnavailable as error:
                self._note_failure(error)
            else:
                self._note_success()
                return taken
        return self._own.take(name, quotas, cost)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self._secret, digest_size=16).digest()

    def _note_failure(self, error: BackendUnavailable) -> None:
        """One line when it begins, not one a request."""
        if not self._failing:
            self._failing = True
            log.warning("%s; until it answers each process counts requests for itself", error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            log.info("requests are counted in Redis again")


def _network(address: str) -> str:
    """The address, or the network that one household has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # of a socket that is no network's
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _NETWORK), strict=False))
