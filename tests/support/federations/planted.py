"""A realistic federation: clients share most indices, and kin share the rest too.

Brute force gives the expected results of stop-lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
from sqlalchemy import select

import modelkin
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.index import stop_list_repository
from app.index.buckets.sql import SqlBuckets
from app.infra.db.database import Database, Reader
from app.infra.db.tables.index import BandedSignatureRow
from app.maintenance.stop_lists import StopListService
from app.settings import Settings
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.stores import open_reader
from modelkin import Banding, BulkItem, Support
from modelkin.core.sketching.banding import band_keys
from tests.support.http_space import Space, ranking
from tests.support.servers.server_process import Server
from tests.support.servers.waiting import wait_for

__all__ = [
    "BANDING",
    "BASE",
    "CLIENTS",
    "KIN",
    "Stores",
    "assert_banded",
    "common",
    "federation",
    "filled",
    "kin_of",
    "left",
    "lsh",
    "settled",
    "stores",
    "unrelated_client",
]

M, K = 10_000, 600
_POOL, _FROM_POOL = 560, 375
BANDING = Banding(64, 2)
"""One that touches nearly every client while common indices count."""


def _client(rng: np.random.Generator, rare: np.ndarray) -> Support:
    pool = rng.choice(_POOL, _FROM_POOL, replace=False)
    return Support.from_indices(np.sort(np.concatenate([pool, rare])), M)


def unrelated_client(rng: np.random.Generator) -> Support:
    """A client with 375 of the 560 common indices; the other 225 are random."""
    return _client(rng, rng.choice(np.arange(_POOL, M), K - _FROM_POOL, replace=False))


def kin_of(rng: np.random.Generator, base: Support, kept: int = 190) -> Support:
    """A client that shares ``kept`` of the 225 indices with another one."""
    rare = base.indices[base.indices >= _POOL]
    others = np.setdiff1d(np.arange(_POOL, M), rare, assume_unique=True)
    new = rng.choice(others, rare.size - kept, replace=False)
    return _client(rng, np.concatenate([rng.choice(rare, kept, replace=False), new]))


def federation(seed: int, unrelated: int = 26, kin: int = 4) -> dict[str, Support]:
    """``base``, kin of S about .73 to it, and unrelated clients of S about .42."""
    rng = np.random.default_rng(seed)
    base = unrelated_client(rng)
    close = {f"kin{i}": kin_of(rng, base) for i in range(kin)}
    return {
        "base": base,
        **close,
        **{f"far{i:02d}": unrelated_client(rng) for i in range(unrelated)},
    }


CLIENTS = federation(11)
BASE = CLIENTS["base"]
KIN = {name: support for name, support in CLIENTS.items() if name.startswith("kin")}


def common(supports: Mapping[str, Support], share: float = 0.5) -> list[int]:
    """The indices that at least this share of the supports contains."""
    counts = Counter(i for support in supports.values() for i in support.indices.tolist())
    return sorted(i for i, count in counts.items() if count >= max(2, share * len(supports)))


def left(support: Support, stop_list: list[int]) -> Support | None:
    """The support without the stop-list's indices, computed with Python's sets."""
    rest = sorted(set(support.indices.tolist()) - set(stop_list))
    return Support.from_indices(rest, support.num_parameters) if rest else None


class Stores:
    """The stores of a running service, as its commands open them.

    Args:
        database: its database.
        lists: its stop-lists.
    """

    def __init__(self, database: Database, lists: StopListService) -> None:
        self.database = database
        self.lists = lists

    def space(self, name: str) -> SpaceRecord:
        """The only space of this name."""
        with self.database.reading() as session:
            [found] = spaces.all_spaces(session, name)
        return found

    def stop_list(self, name: str) -> list[int]:
        """The indices of the stop-list in force."""
        space = self.space(name)
        with self.database.reading() as session:
            indices = stop_list_repository.get_indices(session, space.id, space.banding_version)
        return [] if indices is None else Support.from_bytes(indices).indices.tolist()

    def banded(self, name: str) -> dict[str, bytes | None]:
        """The digest or signature that gave each model's bands; None for a model without bands."""
        space = self.space(name)
        with self.database.reading() as session:
            return {
                model.name: stop_list_repository.get_band_values(
                    session, model.id, space.banding_version
                )
                for model in _models(session, space)
            }

    def versions(self, name: str) -> set[int]:
        """The versions that have band values."""
        of_space = BandedSignatureRow.space_id == self.space(name).id
        with self.database.reading() as session:
            return set(session.scalars(select(BandedSignatureRow.version).where(of_space)))

    def in_buckets(self, name: str, expected: Mapping[str, Support | None]) -> dict[str, set[str]]:
        """The models that share one of the database's buckets with each expected model.

        Args:
            expected: the remaining support of each model; None is in no bucket.
        """
        space, buckets = self.space(name), SqlBuckets(self.database)
        with self.database.reading() as session:
            names = {model.id: model.name for model in _models(session, space)}
        return {
            asked: {
                names[i]
                for i in buckets.candidates(
                    space.id, band_keys(support.signature().values, space.banding), 1 << 30
                ).ids.tolist()
            }
            for asked, support in expected.items()
            if support is not None
        }


@contextmanager
def stores(server: Server) -> Iterator[Stores]:
    """The stores of a service."""
    settings = Settings(database_url=server.database_url, blob_url=f"file://{server.blobs}")
    database = Database(server.database_url, timeout=10)
    try:
        yield Stores(database, StopListService(database, open_reader(settings, database)))
    finally:
        database.close()


def _models(session: Reader, space: SpaceRecord) -> list[ModelRecord]:
    page = models.list_models(session, space, limit=1000, cursor=None)
    return list(page.items)


def filled(
    http: httpx.Client, client: modelkin.Client, supports: dict[str, Support], **body: Any
) -> Space:
    """Create a space with some models."""
    space = Space(http, next(iter(supports.values())).num_parameters, **body)
    summary = client.put_many(space.name, [BulkItem(*each) for each in supports.items()])
    assert len(supports) == summary.created
    return space


def lsh(space: Space, model: str = "base", **params: Any) -> dict[str, Any]:
    """The neighbours by buckets, once buckets are in use; earlier answers must be right too."""
    return settled(
        lambda: space.neighbors(model, **{"method": "lsh", "min_similarity": 0.6, **params})
    )


def settled(ask: Any) -> dict[str, Any]:
    """Repeat a request until its answer is no longer degraded, and return the answer."""
    answers: list[dict[str, Any]] = []

    def whole() -> bool:
        answers.append(ask())
        return not answers[-1]["degraded"]

    wait_for(whole)
    assert all(ranking(answers[-1]) == ranking(answer) for answer in answers)
    return answers[-1]


def assert_banded(opened: Stores, space: Space, supports: dict[str, Support | None]) -> None:
    """Check that band values and shared buckets of every model equal those of a recomputation.

    Args:
        supports: the models of the space; None for a signature without a support.
    """
    stop_list = opened.stop_list(space.name)
    rest = {n: None if s is None else left(s, stop_list) for n, s in supports.items()}
    minhashes = {
        name: None if support is None else support.signature().values.astype("<u4").tobytes()
        for name, support in rest.items()
    }
    assert minhashes == opened.banded(space.name)
    asked = next(name for name, support in rest.items() if support is not None)
    lsh(space, asked)
    expected = {name: mates(support, rest) for name, support in rest.items() if support is not None}
    assert expected == opened.in_buckets(space.name, rest)


def mates(support: Support, others: dict[str, Support | None]) -> set[str]:
    """The models that agree with a support in all values of a band."""
    own = bands(support)
    return {n for n, o in others.items() if o is not None and (bands(o) == own).all(axis=1).any()}


def bands(support: Support) -> np.ndarray:
    """The values of a support's signature, band by band."""
    return support.signature().values[: BANDING.num_values].reshape(BANDING.bands, BANDING.rows)
