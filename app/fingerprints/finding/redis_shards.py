"""The finding keys of all tenants in Redis, divided among shards by key.

A shard has its state beside its keys, in one hash slot. So whatever Redis loses, of a server that
dies, starts empty or falls back, the shard's version says, and the database shows what to repeat.
The shards of a tenant are spread over all servers of a cluster, and a server that is away costs its
part of the keys: what the others have is as good a sample, of as many keys less.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.records import AFTER_HUBS, Changed, Keys
from app.fingerprints.finding.redis_scripts import APPLY, FORGET, HOLDERS, START, STATES

if TYPE_CHECKING:
    from app.infra.storage.redis_batches import RedisBatches

__all__ = [
    "SHARDS",
    "RedisShards",
    "ShardHolders",
    "ShardState",
    "are_later",
    "epoch_of",
    "holder_of",
]

Ints = npt.NDArray[np.int64]

SHARDS: Final = 256
"""The shards of a tenant."""
_VERSION_BITS: Final = 24
"""The lowest bits of the version of a fingerprint that its holder names, beside its id."""
_VERSIONS: Final = (1 << _VERSION_BITS) - 1
_HOLDER_BYTES: Final = 8
_MIXED: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


@dataclass(frozen=True, slots=True)
class ShardState:
    """What a shard says of itself.

    Attributes:
        epoch: the database that it follows.
        build: the name of what it holds.
        version: that of the feed which it has reached.
        needed: that which it needs to reach before it is asked.
        entries: its holders, those of past states included.
    """

    epoch: int
    build: bytes
    version: int
    needed: int
    entries: int


@dataclass(frozen=True, slots=True)
class ShardHolders:
    """The holders of keys.

    Attributes:
        states: the states of the shards that have the keys and answered; None where it has none.
        shards: the shard of each key, shape ``(n,)``.
        at: the place of the key of each holder among those that were asked.
        holders: see :func:`holder_of`; of shards that have a state.
        more: whether a key has more holders than were read, a flag a key.
    """

    states: Mapping[int, ShardState | None]
    shards: Ints
    at: Ints
    holders: Ints
    more: npt.NDArray[np.bool_]


def epoch_of(token: str) -> int:
    """The number of a database, by the token that names it in other stores."""
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big") >> 1


def holder_of(ids: Any, versions: Any) -> Any:
    """The number that names a fingerprint at a version, in the value of a key."""
    return ids << _VERSION_BITS | versions & _VERSIONS


def are_later(holders: Ints, version: int) -> npt.NDArray[np.bool_]:
    """Which holders are of versions after one, as far as the bits tell: none is 2^23 away."""
    after = (holders - version) & _VERSIONS
    return (after > 0) & (after <= _VERSIONS >> 1)


class RedisShards:
    """The shards of all tenants of one database.

    Args:
        batches: of the server, which the caller closes.
        epoch: a number of the database, below 2^63.
    """

    def __init__(self, batches: RedisBatches, epoch: int) -> None:
        self._batches = batches
        self._epoch = epoch

    def states(self, tenant_id: int) -> dict[int, ShardState | None]:
        """The states of the shards that answer; None where there is none of this database.

        Raises:
            BackendUnavailable: no server answers.
        """
        names = {_name(tenant_id, shard): shard for shard in range(SHARDS)}
        found = self._batches.run(STATES, dict.fromkeys(names, ()))
        return {names[name]: self._state(fields) for name, fields in found.items()}

    def start(self, tenant_id: int, shards: Collection[int], needed: int) -> None:
        """Begin shards again, without anything."""
        arguments = {
            _name(tenant_id, shard): (self._epoch, secrets.token_bytes(4), needed)
            for shard in shards
        }
        if arguments:
            self._batches.run(START, arguments)

    def apply(
        self,
        tenant_id: int,
        states: Mapping[int, ShardState],
        changed: Sequence[Changed],
        until: int,
        needed: int,
    ) -> dict[int, ShardState]:
        """Take shards from their versions to a later one, each whole or not at all.

        Args:
            states: the shards, all of one version.
            changed: what changed between both versions.

        Returns:
            The shards that are at the later version now: the others are of servers that do not
            answer, or another process was faster.
        """
        of_hubs = _by_shard([each for each in changed if each.rank < AFTER_HUBS])
        of_clients = _by_shard([each for each in changed if each.rank >= AFTER_HUBS])
        names = {_name(tenant_id, shard): shard for shard in states}
        arguments = {
            _name(tenant_id, shard): (
                *(self._epoch, state.build, state.version, until, needed),
                *(*of_hubs(shard), *of_clients(shard)),
            )
            for shard, state in states.items()
        }
        return {
            names[name]: replace(states[names[name]], version=until)
            for name, applied in self._batches.run(APPLY, arguments).items()
            if applied == 1
        }

    def holders(self, tenant_id: int, keys: Keys, most: int) -> ShardHolders:
        """The first holders of each key, of the shards that answer.

        Args:
            keys: distinct, ascending.
            most: holders of a key that are read.

        Raises:
            BackendUnavailable: no server answers.
        """
        shards = shards_of(keys)
        places = {int(shard): np.flatnonzero(shards == shard) for shard in np.unique(shards)}
        names = {_name(tenant_id, shard): shard for shard in places}
        arguments = {
            name: (most * _HOLDER_BYTES, keys[places[shard]].astype(">u8").tobytes())
            for name, shard in names.items()
        }
        states = dict[int, ShardState | None]()
        at, found = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        more = np.zeros(keys.size, np.bool_)
        for name, answer in self._batches.run(HOLDERS, arguments).items():
            shard = names[name]
            states[shard] = state = self._state(answer[0] if isinstance(answer, list) else None)
            if state is None:
                continue
            for place, held, left in zip(places[shard], answer[1::2], answer[2::2], strict=True):
                some = np.frombuffer(held, ">i8", len(held) // _HOLDER_BYTES).astype(np.int64)
                at.append(np.full(some.size, place))
                found.append(some)
                more[place] = left > 0
        return ShardHolders(states, shards, np.concatenate(at), np.concatenate(found), more)

    def forget(
        self, tenant_id: int, found: ShardHolders, keys: Keys, holders: Ints, most: int
    ) -> None:
        """Take holders out of keys, among those of each that are read.

        Args:
            found: of these keys.
            holders: which no transaction from now on will see.
            most: holders of a key that are read.
        """
        shards, packed = shards_of(keys), _packed(holders)
        arguments = {
            _name(tenant_id, shard): (
                *(self._epoch, state.build, most * _HOLDER_BYTES),
                *(keys[shards == shard].astype(">u8").tobytes(), packed),
            )
            for shard, state in found.states.items()
            if state is not None and (shards == shard).any()
        }
        self._batches.run(FORGET, arguments)

    def sweep(self, tenant_id: int) -> int:
        """Delete what shards held before they began again; return how many keys these were."""
        present, past = dict[int, bytes | None](), set[tuple[int, bytes]]()

        def is_past(name: bytes) -> bool:
            found = _KEY.fullmatch(name)
            if found is None:
                return False
            shard, build = int(found[1]), found[2]
            if (shard, build) not in past and present.get(shard) != build:
                # Another process may have begun the shard again since the last look.
                present[shard] = self._build(tenant_id, shard)
                if present[shard] not in (build, None):
                    past.add((shard, build))
            return (shard, build) in past

        return self._batches.delete(f"mkf{{{tenant_id}.*", is_past)

    def _build(self, tenant_id: int, shard: int) -> bytes | None:
        """The present build of a shard; None if it has none, or does not answer."""
        name = _name(tenant_id, shard)
        state = self._state(self._batches.run(STATES, {name: ()}).get(name))
        return None if state is None else state.build

    def _state(self, fields: Any) -> ShardState | None:
        """The state of a shard; None if it has none, or one that is foreign or no state."""
        try:
            epoch, build, *numbers = fields
            version, needed, entries = map(int, numbers)
            state = ShardState(int(epoch), bytes(build), version, needed, entries)
        except (TypeError, ValueError):
            return None
        return state if state.epoch == self._epoch and len(state.build) == 4 else None


def shards_of(keys: Keys) -> Ints:
    """The shard of each key. Keys are mixed: those of coarse scales are all small numbers."""
    mixed: Ints = ((keys * _MIXED) >> np.uint64(56)).astype(np.int64)
    return mixed


def _name(tenant_id: int, shard: int) -> str:
    """The name of a state; the part in braces puts all keys of a shard into one hash slot."""
    return f"mkf{{{tenant_id}.{shard}}}:state"


def _by_shard(changed: Sequence[Changed]) -> Callable[[int], tuple[bytes, bytes]]:
    """The keys of fingerprints in a shard, ascending, and the holder of each, by version."""
    keys = np.concatenate([np.empty(0, np.uint64), *(each.keys for each in changed)])
    holders = np.repeat(
        np.array([holder_of(each.id, each.version) for each in changed], np.int64),
        [each.keys.size for each in changed],
    )
    order = np.argsort(keys, kind="stable")
    keys, holders = keys[order], holders[order]
    shards = shards_of(keys)

    def of(shard: int) -> tuple[bytes, bytes]:
        some = shards == shard
        return keys[some].astype(">u8").tobytes(), _packed(holders[some])

    return of


def _packed(holders: Ints) -> bytes:
    return holders.astype(">i8").tobytes()


_KEY: Final = re.compile(rb"mkf\{\d+\.(\d{1,3})\}(.{4}).{8}c?", re.DOTALL)
