"""A Redis server or a Redis Cluster, with timeouts and a circuit breaker.

Owns connections and timeouts. Redis holds nothing that the database cannot rebuild. Its client is
slow to import, so this module is imported only where a Redis is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import parse_url
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from redis.exceptions import TimeoutError as TooSlow
from redis.retry import Retry

from app.infra.errors import BackendUnavailable
from app.infra.outages import Outage
from app.infra.storage.circuit_breaker import CircuitBreaker
from app.infra.storage.redis_script import Script

__all__ = ["AnyRedis", "RedisServer"]

T = TypeVar("T")
AnyRedis = Redis | RedisCluster

_DEFAULT_PORT = 6379


class RedisServer:
    """A connection to Redis, made when first needed; the server reports whether it is a cluster.

    Args:
        url: ``redis://`` or ``rediss://``, with any number of ``HOST:PORT`` separated by commas:
            the nodes of a cluster to try in turn, which name all other nodes.
        timeout: seconds to connect, and to wait for an answer.
        pause: seconds without calls after a failure.
    """

    def __init__(self, url: str, *, timeout: float = 0.5, pause: float = 2.0) -> None:
        self._urls = _single_urls(url)
        self._options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),  # a request has no time for a second try
            "protocol": 2,
        }
        self._timeout = timeout
        self._breaker = CircuitBreaker(pause)
        self._outage = Outage("Redis", "scans answer in the place of buckets")
        self._lock = threading.Lock()
        self._client: AnyRedis | None = None

    def call(self, command: Callable[[AnyRedis], T]) -> T:
        """The result of ``command``, called with the connection.

        Raises:
            BackendUnavailable: Redis is unavailable, refuses, or failed a moment ago.
        """
        if not self._breaker.allows():
            raise BackendUnavailable(
                "Redis did not answer a moment ago and is left alone for now", announced=True
            )
        try:
            answer = command(self._connected_client())
        except (NotConnected, TooSlow, RedisClusterException, OSError) as error:
            self._breaker.failed()
            self._outage.begin()
            raise BackendUnavailable(
                "Redis cannot be reached", reason=str(error), announced=True
            ) from error
        except BackendUnavailable:
            self._breaker.failed()
            raise
        except RedisError as error:
            self._breaker.succeeded()
            raise BackendUnavailable("Redis refused", reason=str(error)) from error
        self._breaker.succeeded()
        self._outage.end()
        return answer

    def run(self, script: Script, key: str, arguments: Sequence[bytes | int | str]) -> Any:
        """Return the result of a script, run on the server that holds ``key``.

        Raises:
            BackendUnavailable: Redis cannot be reached, as for :meth:`call`.
        """

        def command(client: AnyRedis) -> Any:
            try:
                return client.evalsha(script.sha1, 1, key, *arguments)
            except NoScriptError:  # the server was restarted, or is another one
                return client.eval(script.text, 1, key, *arguments)

        return self.call(command)

    def ping(self) -> None:
        """Raise :class:`BackendUnavailable` unless it answers."""
        self.call(lambda client: client.ping())

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _connected_client(self) -> AnyRedis:
        client = self._client
        if client is None:
            # If the server never answers, waiting threads would wait one after another.
            if not self._lock.acquire(timeout=self._timeout):
                raise BackendUnavailable("Redis has not let us connect yet", announced=True)
            try:
                client = self._client
                if client is None:
                    client = self._client = self._connect()
            finally:
                self._lock.release()
        return client

    def _connect(self) -> AnyRedis:
        """Connect to the first address that answers; raise the failure of the last one."""
        for url in self._urls[:-1]:
            try:
                return self._connect_to(url)
            except (NotConnected, TooSlow, RedisClusterException, OSError):
                continue
        return self._connect_to(self._urls[-1])

    def _connect_to(self, url: str) -> AnyRedis:
        single = Redis.from_url(url, **self._options)
        try:
            _refuse_evicting(single)
            if not single.info("cluster").get("cluster_enabled"):
                return single
        except BaseException:
            single.close()
            raise
        single.close()
        parsed: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        options = {k: v for k, v in parsed.items() if k not in {"host", "port", "db"}}
        nodes = [_node(each) for each in self._urls]
        return RedisCluster(startup_nodes=nodes, **{**options, **self._options})


def _refuse_evicting(client: Redis) -> None:
    """Refuse a server that evicts any key: it would lose buckets unnoticed."""
    memory = client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if memory.get("maxmemory") and policy.startswith("allkeys"):
        raise BackendUnavailable(
            f"Redis has maxmemory-policy {policy} and would silently lose buckets: "
            f"set it to noeviction or to a volatile-* policy"
        )


def _single_urls(url: str) -> list[str]:
    """One URL for every ``HOST:PORT`` of ``url``."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=user + at + host)) for host in hosts.split(",")]


def _node(url: str) -> ClusterNode:
    parts = urlsplit(url)
    host, port = parts.hostname or "localhost", parts.port or _DEFAULT_PORT
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]
