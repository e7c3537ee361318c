"""LSH buckets in Redis: one SET a bucket, read with one round trip.

Redis may lose any of it at any time: then the state is gone with it, or older, and the database
says what is missing. No value is ever unpickled, or trusted to be what it should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from app.index.buckets.batching import CAP, gather
from app.index.buckets.protocol import BucketState, Candidates
from app.index.buckets.redis_scripts import APPLY, CANDIDATES, DROP, STATE, SWEEP
from app.infra.storage.redis import AnyRedis, RedisServer

__all__ = ["RedisBuckets"]

_DROPPED = "modelkin:dropped"
"""SET of ``space:epoch``: the builds that were dropped, or are about to be."""


class RedisBuckets:
    """The :class:`app.index.buckets.protocol.Buckets` of a Redis or a Redis Cluster.

    Args:
        server: whose close is left to whoever opened it.
        cap: entries beyond which a bucket is never read.
    """

    at_once = 200
    """At 64 bands some 30 ms, during which Redis serves nobody else."""

    def __init__(self, server: RedisServer, *, cap: int = CAP) -> None:
        self._server = server
        self._cap = cap

    def state(self, space_id: int) -> BucketState | None:
        return _state(self._server.run(STATE, _key(space_id), ()))

    def apply(
        self,
        space_id: int,
        epoch: int,
        since: int,
        until: int,
        upserts: Iterable[tuple[int, npt.NDArray[np.uint64]]],
        removals: Iterable[int],
        *,
        banding_version: int = 0,
    ) -> bool:
        changes = gather(upserts, removals, at_once=self.at_once)
        arguments: list[bytes | int] = [_build(epoch), epoch, since, until, banding_version]
        arguments.append(len(changes.upserts))
        for model_id, keys in changes.upserts.items():
            arguments += (model_id, keys)
        arguments += changes.removals
        return bool(self._server.run(APPLY, _key(space_id), arguments))

    def candidates(self, space_id: int, keys: npt.NDArray[np.uint64], limit: int) -> Candidates:
        packed = np.unique(keys).astype(">u8").tobytes()
        answer = self._server.run(CANDIDATES, _key(space_id), (self._cap, limit, packed))
        state, ids, left_out = answer
        return Candidates(np.sort(np.array(ids, np.int64)), left_out > 0, _state(state))

    def drop(self, space_id: int) -> None:
        state = self.state(space_id)
        if state is not None:
            # Noted first: a build that is dropped and not noted would never be swept.
            dropped = f"{space_id}:{state.epoch}"
            self._server.call(lambda client: client.sadd(_DROPPED, dropped))
        self._server.run(DROP, _key(space_id), ())

    def sweep(self, models: int = 200) -> int:
        for build in self._dropped():
            space_id, epoch = (int(part) for part in build.split(":"))
            arguments = (_build(epoch), epoch, models)
            swept = int(self._server.run(SWEEP, _key(space_id), arguments))
            if swept > 0:
                return swept
            if swept == 0:
                self._server.call(partial(_forget, build))
        return 0

    def ping(self) -> None:
        self._server.ping()

    def close(self) -> None:
        """The server is whose it was given by."""

    def _dropped(self) -> list[str]:
        noted = self._server.call(lambda client: client.smembers(_DROPPED))
        return sorted(bytes(build).decode() for build in noted)  # type: ignore[arg-type]


def _forget(build: str, client: AnyRedis) -> None:
    client.srem(_DROPPED, build)


def _key(space_id: int) -> str:
    """The state's name; what stands in braces decides the slot of all that is the space's."""
    return f"modelkin:{{{space_id}}}:state"


def _build(epoch: int) -> bytes:
    return (epoch & 0xFFFFFFFF).to_bytes(4, "big")


def _state(fields: Sequence[Any]) -> BucketState | None:
    """What Redis holds as the state; None if that is nothing, or not what was written."""
    try:
        epoch, version, banding_version = (int(field) for field in fields[:3])
    except (TypeError, ValueError):
        return None
    return BucketState(epoch, version, banding_version)
