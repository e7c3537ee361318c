"""A service's store with as many models as its explorer is for: signatures in planted groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from app.bootstrap import open_services
from app.infra.db.database import Database
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin.core.sketching.signature import Signature

__all__ = ["SPACE", "fill"]

SPACE: Final = "bench"
_M, _K, _H = 11_000_000, 1_100_000, 256
_GROUP_SIZE: Final = 100
_KEEP: Final = 0.5
"""The share of its group's values that a model has: their Jaccard index with the centre."""
_OWNERS: Final = 300
_ALONE: Final = 0.1
"""The share of models that are in no group."""


def fill(folder: Path, models: int) -> None:
    """Store so many models below ``folder``, as ``demo.service.running`` opens them."""
    url = f"sqlite:///{folder / 'modelkin.db'}"
    settings = Settings(_env_file=None, database_url=url, embedded_worker="off")
    with open_services(settings) as services:
        with services[Database].writing() as session:
            services[SpaceService].create(
                session,
                services[Tenant],
                SPACE,
                RequestedSpace(
                    num_parameters=_M,
                    layout=None,
                    scheme="affine32",
                    num_perm=_H,
                    seed=1,
                ),
            )
        with services[Database].reading() as session:
            space = services[SpaceService].get(session, services[Tenant], SPACE)
            services[BatchService].put(session, space, _entries(models))


def _entries(models: int) -> Iterator[BatchEntry]:
    rng = np.random.default_rng(0)
    groups = max(2, models // _GROUP_SIZE)
    centres = rng.integers(0, 2**32, (groups, _H), np.uint32)
    for number in range(models):
        group = int(groups * rng.random() ** 2)  # some are much larger than others
        values = rng.integers(0, 2**32, _H, np.uint32)
        if rng.random() > _ALONE:
            values = np.where(rng.random(_H) < _KEEP, centres[group], values)
        signature = Signature(values, scheme="affine32", seed=1, num_parameters=_M, support_size=_K)
        yield BatchEntry(
            f"owner-{number % _OWNERS:03d}/model-{number:06d}",
            signature,
            tags=[f"round-{number % 40}", f"site {group % 12}"],
            attributes={"family": f"family {group % 20}", "accuracy": round(rng.random(), 4)},
            base_model=f"org/base-{group}",
        )
