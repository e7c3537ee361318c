"""``RateLimits``: the limits of requests and writes, by tenant or by address.

A tenant is counted as a whole, however many keys it has; where keys are not required, an address
is. Wrong keys are counted by address, so that guessing takes time. Callers with a valid key are not
affected by others who guess from the same address.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import threading
from collections.abc import Sequence

from cachetools import LRUCache

from app.infra.errors import BackendUnavailable, RateLimited
from app.tenancy.auth.counters import Counters, MemoryCounters, Quota, Standing, Taken
from app.tenancy.auth.records import Tenant

__all__ = ["RateLimits", "RateLimitExceeded"]

_MAX_VALID_KEYS = 10_000
"""Valid keys that are remembered."""
_IPV6_PREFIX_BITS = 64
"""Bits of an IPv6 address that identify a household; a client may choose the rest freely."""

log = logging.getLogger(__name__)


class RateLimitExceeded(RateLimited):
    """A refusal, with the standing of each quota.

    Args:
        message: the text, with placeholders for the name and the limit of the exhausted quota.
        taken: the result that was not admitted.
    """

    def __init__(self, message: str, taken: Taken) -> None:
        spent = [standing for standing in taken.standings if standing.remaining == 0]
        last = max(spent, key=lambda standing: standing.reset)
        text = message.format(last.quota.name, last.quota.limit)
        super().__init__(f"{text}; try again in {last.reset} s", retry_after=last.reset)
        self.standings = taken.standings


class RateLimits:
    """The limits of one service.

    Args:
        requests: requests of a tenant in a minute; None for no limit.
        writes: requests that change something, in a minute; None for no limit.
        shared: counters that all processes share; None where each process counts alone.
        secret: the database's secret. Callers get opaque names from it, so two databases may share
            counters.
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
        self._valid: LRUCache[bytes, bool] = LRUCache(_MAX_VALID_KEYS)
        self._lock = threading.Lock()
        self._failing = False

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self._tries is not None

    def count_tenant(self, tenant: Tenant, *, writes: bool) -> tuple[Standing, ...]:
        """Count a request of a tenant; return the standing of its quotas.

        Raises:
            RateLimited: the tenant has reached a limit.
        """
        return self._count("tenant", str(tenant.id), f"tenant {tenant.name!r}", writes)

    def count_address(self, address: str, *, writes: bool) -> tuple[Standing, ...]:
        """Count a request from an address, where no key is required.

        Raises:
            RateLimited: the address has reached a limit.
        """
        return self._count("address", _network(address), "this address", writes)

    def check_tries(self, address: str, credentials: str) -> None:
        """Refuse another key from an address with too many wrong keys, unless it was valid before.

        Raises:
            RateLimited: too many wrong keys came from this address.
        """
        with self._lock:
            if self._valid.get(self._digest(credentials)):  # reading it makes it the newest
                return
        self._try(address, cost=0)

    def note_good(self, credentials: str) -> None:
        """Remember valid credentials."""
        with self._lock:
            self._valid[self._digest(credentials)] = True

    def note_bad(self, address: str, credentials: str) -> None:
        """Count wrong credentials.

        Raises:
            RateLimited: too many wrong keys came from this address at the same moment.
        """
        with self._lock:
            self._valid.pop(self._digest(credentials), None)
        self._try(address, cost=1)

    def _count(self, group: str, who: str, called: str, writes: bool) -> tuple[Standing, ...]:
        quotas = [self._requests, self._writes if writes else None]
        wanted = [quota for quota in quotas if quota is not None]
        if not wanted:
            return ()
        taken = self._take(group, who, wanted)
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

    def _take(self, group: str, who: str, quotas: Sequence[Quota], cost: int = 1) -> Taken:
        """Count in the shared counters, or in this process while those cannot be reached."""
        name = self._digest(f"{group} {who}").hex()
        if self._shared is not None:
            try:
                taken = self._shared.take(name, quotas, cost)
            except BackendUnavailable:
                self._note_failure()
            else:
                self._note_success()
                return taken
        return self._own.take(name, quotas, cost)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self._secret, digest_size=16).digest()

    def _note_failure(self) -> None:
        """Log one line when it begins, not one a request."""
        if not self._failing:
            self._failing = True
            log.warning("until Redis answers, each process counts requests for itself")

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            log.info("requests are counted in Redis again")


def _network(address: str) -> str:
    """Return the address, or the household's network for IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # of a Unix socket
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_BITS), strict=False))
