"""The finding index of a machine, families of fingerprints, and what all rows say of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np

from app.fingerprints.finding.feed import reading_feeds
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Feed, Keys
from app.fingerprints.finding.redis_shards import RedisShards, epoch_of
from app.fingerprints.finding.shared_index import SharedIndex
from app.fingerprints.finding_keys import coarse_end
from app.infra.db.database import Database
from app.infra.storage.redis import RedisServer
from app.infra.storage.redis_batches import RedisBatches
from modelkin.core.fingerprints.comparison import MODEL_LIMIT, chance
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.tensors import LinesOfTensor
from tests.app.fingerprints.finding.made_hub import keys

__all__ = ["kin_by_rows", "member", "opened_index"]

_KEYS, _SCALE, _LENGTH = 300, 4, 1000
_TAIL = 40 * _KEYS


@contextmanager
def opened_index(folder: Path, database: Database, redis_url: str | None) -> Iterator[FindingIndex]:
    """The index of a machine, which writes files from some 40 fingerprints on.

    Args:
        folder: its own.
        redis_url: of what it shares with other machines, if it does.
    """
    with ExitStack() as stack:
        shared = None
        if redis_url is not None:
            server = stack.enter_context(closing(RedisServer(redis_url)))
            shards = RedisShards(RedisBatches(server, "less is found"), epoch_of("machines"))
            shared = stack.enter_context(closing(SharedIndex(shards, reading_feeds(database))))
        index = FindingIndex(folder, tail_entries=_TAIL, shared=shared)
        yield stack.enter_context(closing(index))


def member(family: int, seed: int) -> Fingerprint:
    """A model with a part of its family's keys, and its own."""
    base = keys(np.random.default_rng(family), _KEYS, _SCALE)
    draw = np.random.default_rng([family, seed])
    kept = base[draw.random(base.size) < draw.uniform(0.2, 0.95)]
    return _made(np.union1d(kept, keys(draw, _KEYS - kept.size, _SCALE)))


def kin_by_rows(feed: Feed, asked: Fingerprint) -> dict[int, int]:
    """The keys that a fingerprint has in common with each of its kin, by all rows."""
    scale, own = coarse_end(asked)
    kin = dict[int, int]()
    for page in feed.changed_since(0):
        for each in page:
            count = np.intersect1d(own, each.keys, assume_unique=True).size
            _, log10_p = chance(count, asked.lines, each.lines, max(scale, 1 << each.scale))
            if log10_p < MODEL_LIMIT:
                kin[each.id] = count
    return kin


def _made(held: Keys) -> Fingerprint:
    """A valid fingerprint of keys, in one tensor."""
    rows = _KEYS * _SCALE
    tensor = LinesOfTensor(("t",), (rows, _LENGTH), {_LENGTH: rows}, None, bytes(128))
    owners, lengths = np.zeros(held.size, np.uint32), np.full(held.size, _LENGTH, np.uint32)
    return Fingerprint(_SCALE, (tensor,), {_LENGTH: rows}, held, owners, lengths)
