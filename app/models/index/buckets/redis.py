"""LSH buckets in Redis: one SET a bucket, read with one round trip.

Redis may lose any of its data at any time. Then the state is missing or old as well, and the
database shows which changes to repeat. Values from Redis are checked and never unpickled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from app.models.index.buckets.batching import MAX_BUCKET_SIZE, normalize_step
from app.models.index.buckets.protocol import (
    BANDING_VERSION,
    BucketCandidates,
    BucketSizes,
    BucketState,
)
from app.models.index.buckets.redis_scripts import (
    APPLY,
    CANDIDATES,
    DROP,
    MEMBERS,
    SIZES,
    STATE,
    SWEEP,
)

if TYPE_CHECKING:
    from app.infra.storage.redis import AnyRedis, RedisServer

__all__ = ["RedisBuckets"]

log = logging.getLogger(__name__)

_BUILD = re.compile(rb"[0-9]{1,19}:[0-9]{1,19}")
_DROPPED = "modelkin:dropped"
"""SET of ``space:epoch``: the builds that were dropped, or are about to be dropped."""


class RedisBuckets:
    """The :class:`app.models.index.buckets.protocol.Buckets` of a Redis or a Redis Cluster.

    Args:
        server: the caller closes it.
        cap: entries beyond which a bucket is never read.
    """

    max_step_size = 200
    """The most models in a step: 30 ms at 64 bands, in which Redis serves no other client."""

    def __init__(self, server: RedisServer, *, cap: int = MAX_BUCKET_SIZE) -> None:
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
    ) -> bool:
        changes = normalize_step(upserts, removals, max_step_size=self.max_step_size)
        arguments: list[bytes | int] = [_build(epoch), epoch, since, until, BANDING_VERSION]
        arguments.append(len(changes.upserts))
        for model_id, keys in changes.upserts.items():
            arguments += (model_id, keys)
        arguments += changes.removals
        return bool(self._server.run(APPLY, _key(space_id), arguments))

    def candidates(
        self, space_id: int, keys: npt.NDArray[np.uint64], limit: int
    ) -> BucketCandidates:
        packed = np.unique(keys).astype(">u8").tobytes()
        answer = self._server.run(CANDIDATES, _key(space_id), (self._cap, limit, packed))
        state, ids, left_out = answer
        try:
            found = np.sort(np.array(ids, np.int64))
        except (ValueError, OverflowError):
            log.warning("a bucket of space %d holds what is not a model: built again", space_id)
            self.drop(space_id)
            return BucketCandidates(np.empty(0, np.int64), False, None)
        return BucketCandidates(found, left_out > 0, _state(state))

    def members(self, space_id: int, ids: Sequence[int]) -> dict[int, bytes]:
        found = self._server.run(MEMBERS, _key(space_id), tuple(ids))
        return {int(found[at]): _sort_keys(found[at + 1]) for at in range(0, len(found), 2)}

    def sizes(self, space_id: int) -> BucketSizes | None:
        fields, models = self._server.run(SIZES, _key(space_id), ())
        state = _state(fields)
        return None if state is None else BucketSizes(int(models), None, state)

    def drop(self, space_id: int) -> None:
        state = self.state(space_id)
        if state is not None:
            # Noted before it is dropped: a build that is not noted would never be swept.
            dropped = f"{space_id}:{state.epoch}"
            self._server.call(lambda client: client.sadd(_DROPPED, dropped))
        self._server.run(DROP, _key(space_id), ())

    def sweep(self, models: int = 200) -> int:
        for build in self._dropped_builds():
            if not _BUILD.fullmatch(build):
                self._server.call(partial(_forget, build))
                continue
            space_id, epoch = (int(part) for part in build.split(b":"))
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
        """Do nothing: the caller owns the server."""

    def _dropped_builds(self) -> list[bytes]:
        noted = self._server.call(lambda client: client.smembers(_DROPPED))
        return sorted(bytes(build) for build in noted)  # type: ignore[arg-type]


def _forget(build: bytes, client: AnyRedis) -> None:
    client.srem(_DROPPED, build)


def _key(space_id: int) -> str:
    """The name of the state; the part in braces puts all keys of a space into one hash slot."""
    return f"modelkin:{{{space_id}}}:state"


def _sort_keys(keys: bytes) -> bytes:
    """Keys of eight bytes each, ascending; others as they are, which no model has."""
    if len(keys) % 8:
        return keys
    return np.sort(np.frombuffer(keys, ">u8")).tobytes()


def _build(epoch: int) -> bytes:
    return (epoch & 0xFFFFFFFF).to_bytes(4, "big")


def _state(fields: Sequence[Any]) -> BucketState | None:
    """The state that Redis holds; None if there is none, or the value is not a state."""
    try:
        epoch, version, banding_version = (int(field) for field in fields[:3])
    except (TypeError, ValueError):
        return None
    return BucketState(epoch, version, banding_version)
