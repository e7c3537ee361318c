"""A SQLite store with up to ten million models that sent signatures, written row by row.

The signatures are those of ``planted_models``: a background with kin of known similarity. They are
drawn and written some at a time, so that the store may be larger than memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from benchmarks.retrieval.planted_models import NEAR, Background, H, drawn_some, plant
from modelkin.types.spaces import SignatureSpec

__all__ = ["SPACE", "Stored", "stored_signatures"]

SPACE = "many"
M = 11_000_000
_CHUNK = 100_000
_MODEL = """
INSERT INTO models (id, tenant_id, space_id, name, kind, support_size, revision, version,
                    attributes, created_at, updated_at, content_id)
SELECT ?1, tenant_id, id, 'm' || ?1, 'signature', 1047200, 1, ?1, '{}', created_at, created_at, 0
FROM spaces
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """The services on such a store, and queries whose kin are known.

    Attributes:
        queries: shape ``(q, H)``.
        near: names of the kin of each query, S ascending.
        nbytes: of the database.
    """

    services: Container
    queries: npt.NDArray[np.uint32]
    near: list[list[str]]
    nbytes: int


@contextmanager
def stored_signatures(background: Background, n: int, queries: int) -> Iterator[Stored]:
    """The services of a store with n models; it is deleted at the end."""
    with TemporaryDirectory(prefix="modelkin-bench-") as folder:
        path = Path(folder, "m.db")
        settings = Settings(_env_file=None, database_url=f"sqlite:///{path}", embedded_worker="off")
        with open_services(settings) as services, services[Database].writing() as session:
            services[SpaceService].create(
                session,
                services[Tenant],
                SPACE,
                RequestedSpace(
                    num_parameters=M,
                    layout=None,
                    scheme=None,
                    num_perm=H,
                    seed=SignatureSpec().seed,
                ),
            )
        asked, near = _fill(path, background, n, queries)
        with open_services(settings) as services:
            yield Stored(services, asked, near, path.stat().st_size)


def _fill(
    path: Path, background: Background, n: int, queries: int
) -> tuple[npt.NDArray[np.uint32], list[list[str]]]:
    asked = drawn_some(background, queries, 1, background.popular)
    near = np.random.default_rng(1).permutation(n)[: queries * NEAR].reshape(queries, NEAR)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # No other process reads it yet, and it is deleted if this fails.
        for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN"):
            database.execute(statement)
        for begin in range(0, n, _CHUNK):
            number = begin // _CHUNK + 2
            values = drawn_some(background, min(_CHUNK, n - begin), number)
            plant(background, values, asked, near - begin, np.random.default_rng(number))
            ids = range(begin + 1, begin + len(values) + 1)
            database.executemany(_MODEL, ((model_id,) for model_id in ids))
            rows = zip(ids, values, strict=True)
            database.executemany("INSERT INTO signatures VALUES (?, ?)", rows)
        database.execute("UPDATE spaces SET signatures = ?1, version = ?1", (n,))
        database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
    return asked, [[f"m{row + 1}" for row in rows] for rows in near.tolist()]
