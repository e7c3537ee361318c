"""One script for many keys of a Redis or a Redis Cluster, in one round trip to each server."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from redis import Redis, RedisCluster
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import MovedError, NoScriptError, RedisClusterException, RedisError

from app.infra.outages import Outage
from app.infra.storage.circuit_breaker import CircuitBreaker
from app.infra.storage.redis import AnyRedis, RedisServer
from app.infra.storage.redis_script import Script

__all__ = ["RedisBatches"]

Arguments = Mapping[str, Sequence[bytes | int]]

_PAUSE_S: Final = 2.0
"""Seconds without calls of a server that did not answer."""


class RedisBatches:
    """Runs scripts for many keys at once. A server that does not answer costs its own keys alone.

    Args:
        server: the connection, which the caller closes.
        effect: what follows while a server is away, for the log.
    """

    def __init__(self, server: RedisServer, effect: str) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._breakers: dict[str, CircuitBreaker] = {}
        self._outage = Outage("a server of the Redis Cluster", effect)

    def run(self, script: Script, arguments: Arguments) -> dict[str, Any]:
        """The results of a script by key, without those of servers that do not answer or refuse.

        A result may be an error: what the key holds is of another type than the script takes.

        Raises:
            BackendUnavailable: no server answers.
        """
        return self._server.call(lambda client: self._run(client, script, arguments))

    def delete(self, pattern: str, is_old: Callable[[bytes], bool]) -> int:
        """Delete the keys of a pattern that are old; return how many these were.

        All keys of all servers are looked through, some at a time.

        Raises:
            BackendUnavailable: a server does not answer.
        """

        def command(client: AnyRedis) -> int:
            deleted = 0
            for name in client.scan_iter(match=pattern, count=1000):
                if is_old(name):
                    deleted += int(client.unlink(name))
            return deleted

        return self._server.call(command)

    def _run(self, client: AnyRedis, script: Script, arguments: Arguments) -> dict[str, Any]:
        found: dict[str, Any] = {}
        failure: RedisError | OSError | None = None
        for name, (connection, keys) in _by_server(client, arguments).items():
            breaker = self._breaker(name)
            if not breaker.allows():
                failure = failure or NotConnected(f"{name} did not answer a moment ago")
                continue
            try:
                found |= _results(connection, script, {key: arguments[key] for key in keys})
            except (RedisError, OSError) as error:
                breaker.failed()
                failure = error
            else:
                breaker.succeeded()
        if len(found) < len(arguments) and isinstance(client, RedisCluster):
            with contextlib.suppress(RedisClusterException, RedisError, OSError):
                client.nodes_manager.initialize()  # another server may have its slots by now
        if failure is None:
            self._outage.end()
        elif not found:
            raise failure
        else:
            self._outage.begin()
        return found

    def _breaker(self, name: str) -> CircuitBreaker:
        with self._lock:
            return self._breakers.setdefault(name, CircuitBreaker(_PAUSE_S))


def _by_server(client: AnyRedis, arguments: Arguments) -> dict[str, tuple[Redis, list[str]]]:
    """The keys by the server that holds them, and the connection to each."""
    if not isinstance(client, RedisCluster):
        return {"redis": (client, list(arguments))}
    keys = defaultdict[str, list[str]](list)
    nodes = {}
    for key in arguments:
        node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
        nodes[node.name] = node
        keys[node.name].append(key)
    return {name: (client.get_redis_connection(nodes[name]), keys[name]) for name in nodes}


def _results(connection: Redis, script: Script, arguments: Arguments) -> dict[str, Any]:
    """The results of one server, in one round trip, and in a second one where it is new to it."""
    results = _sent(connection, script, arguments)
    if any(isinstance(each, NoScriptError) for each in results.values()):
        connection.script_load(script.text)
        results = _sent(connection, script, arguments)
    for each in results.values():
        if isinstance(each, RedisError) and str(each).startswith(("CLUSTERDOWN", "LOADING")):
            raise each
    return {key: each for key, each in results.items() if not isinstance(each, MovedError)}


def _sent(connection: Redis, script: Script, arguments: Arguments) -> dict[str, Any]:
    pipe = connection.pipeline(transaction=False)
    for key, values in arguments.items():
        pipe.evalsha(script.sha1, 1, key, *values)
    return dict(zip(arguments, pipe.execute(raise_on_error=False), strict=True))
