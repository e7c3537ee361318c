"""A space with models in a service's store, which is gone after the measurement."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.spaces.records import SpaceRecord
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin import Layout

__all__ = ["stored"]


@contextmanager
def stored(
    entries: Iterator[BatchEntry], num_parameters: int, layout: Layout | None = None
) -> Iterator[tuple[Container, SpaceRecord]]:
    """The services of a SQLite store, and a space with these models."""
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'm.db'}"
        with open_services(Settings(_env_file=None, database_url=url)) as services:
            with services[Database].writing() as session:
                space, _ = services[SpaceService].create(
                    session,
                    services[Tenant],
                    "bench",
                    RequestedSpace(
                        num_parameters=num_parameters,
                        layout=None if layout is None else StoredLayout.of(layout),
                        scheme=None,
                        num_perm=256,
                        seed=1,
                    ),
                )
            with services[Database].reading() as session:
                services[BatchService].put(session, space, entries)
            with services[Database].reading() as session:
                space = services[SpaceService].get(session, services[Tenant], "bench")
            yield services, space
