"""A space without endpoints; the test itself carries out its clustering jobs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from app.container import Container
from app.infra.db.database import Database
from app.infra.errors import SpaceNotFound
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.kinship.clustering import service
from app.kinship.clustering.records import ClusteringContent
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.service import ClusteringService
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.puts import Stored
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.tenancy.auth.records import Tenant
from modelkin import Layout, Signature, Support
from tests.support.models.planted_clusters import M

__all__ = ["AppSpace", "silent"]

_numbers = itertools.count()


def silent(done: int, total: int, stage: str = "") -> None:
    """Progress that is not recorded."""


class AppSpace:
    """A new space with the actions of its owner and of a worker.

    Args:
        services: the services of the process.
        layout: of the space.
        num_parameters: M.
    """

    def __init__(
        self, services: Container, *, layout: Layout | None = None, num_parameters: int = M
    ) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.database = services[Database]
        self.name = f"s{next(_numbers)}"
        with self.database.writing() as session:
            made = services[SpaceService].create(
                session,
                services[Tenant],
                self.name,
                RequestedSpace(
                    num_parameters=num_parameters,
                    layout=None if layout is None else StoredLayout.of(layout),
                    scheme="affine32",
                    num_perm=256,
                    seed=1,
                ),
            )
        self.id = made[0].id

    @property
    def space(self) -> SpaceRecord:
        with self.database.reading() as session:
            found = spaces.find_space_by_id(session, self.id)
        if found is None:
            raise SpaceNotFound(self.name)
        return found

    def put(self, models: Mapping[str, Support | Signature]) -> None:
        entries = [BatchEntry(name, support) for name, support in models.items()]
        with self.database.reading() as session:
            results = self.services[BatchService].put(session, self.space, entries)
        assert all(isinstance(result.outcome, Stored) for result in results)

    def remove(self, *names: str) -> None:
        for name in names:
            with self.database.writing() as session:
                self.services[ModelWriter].delete(session, self.space, name)

    def drop(self) -> None:
        space = self.space
        with self.database.writing() as session:
            self.services[SpaceService].delete(session, space)

    def enqueue(self, asked: ClusteringRequest | None = None) -> JobRecord:
        """Enqueue a clustering."""
        with self.database.writing() as session:
            return self.services[ClusteringService].create(
                session,
                self.tenant,
                self.space,
                asked or ClusteringRequest("agglomerative"),
            )

    def begin(self, job: JobRecord, progress: Any = silent) -> Any:
        """Carry out a job up to its final transaction: see :meth:`finish`."""
        return self.services[JobService].handler(service.JOB_KIND)(job, progress)

    def finish(self, end: Any) -> Mapping[str, Any]:
        """Run the transaction that a worker commits when a job succeeds."""
        with self.database.writing() as session:
            result: Mapping[str, Any] = end(session)
            return result

    def cluster(self, asked: ClusteringRequest | None = None) -> dict[str, int]:
        """The labels of a new clustering."""
        self.finish(self.begin(self.enqueue(asked)))
        return self.labels()

    def labels(self, which: str = service.LATEST) -> dict[str, int]:
        """The labels of a clustering."""
        held = self.content(which)
        return dict(zip(held.models, held.labels, strict=True))

    def content(self, which: str = service.LATEST) -> ClusteringContent:
        """All that a clustering holds of its clusters."""
        clusterings = self.services[ClusteringService]
        with self.database.reading() as session:
            return clusterings.content(session, clusterings.get(session, self.space, which))

    def clusterings(self) -> list[Any]:
        """All clusterings, newest first."""
        with self.database.reading() as session:
            page = self.services[ClusteringService].list(
                session, self.space, limit=100, cursor=None
            )
        return list(page.items)
