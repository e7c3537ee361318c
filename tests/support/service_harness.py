"""A space in a database whose jobs are in the test's own hands: no server and no worker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from app.auth.records import Tenant
from app.bootstrap import open_services
from app.catalog.batches import BatchService, Entry
from app.catalog.puts import Stored
from app.catalog.writer import ModelWriter
from app.clustering import service
from app.clustering.request import ClusteringRequest
from app.clustering.service import ClusteringService
from app.container import Container
from app.errors import SpaceNotFound
from app.infra.db.database import Database
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.settings import Settings
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from modelkin import Support
from tests.support.backends import Backend
from tests.support.planted_clusters import M, named, planted

__all__ = ["Place", "kin", "opened", "place", "silent"]

_numbers = itertools.count()


def silent(done: int, total: int, stage: str = "") -> None:
    """Nobody listens."""


class Place:
    """A space in a database, and what can be done to it without a server or a worker."""

    def __init__(self, services: Container) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.database = services[Database]
        self.name = f"s{next(_numbers)}"
        with self.database.writing() as session:
            made = services[SpaceService].create(
                session,
                services[Tenant],
                self.name,
                num_parameters=M,
                layout=None,
                scheme="affine32",
                num_perm=256,
                seed=1,
            )
        self.id = made[0].id

    @property
    def space(self) -> SpaceRecord:
        with self.database.reading() as session:
            found = spaces.find_space_by_id(session, self.id)
        if found is None:
            raise SpaceNotFound(self.name)
        return found

    def put(self, models: Mapping[str, Support]) -> None:
        entries = [Entry(name, support) for name, support in models.items()]
        with self.database.reading() as session:
            results = self.services[BatchService].put(session, self.space, entries)
        assert all(isinstance(outcome, Stored) for _, outcome in results)

    def remove(self, *names: str) -> None:
        for name in names:
            with self.database.writing() as session:
                self.services[ModelWriter].delete(session, self.space, name)

    def drop(self) -> None:
        space = self.space
        with self.database.writing() as session:
            self.services[SpaceService].delete(session, space)

    def ask(self, asked: ClusteringRequest | None = None) -> JobRecord:
        """The job of a request."""
        with self.database.writing() as session:
            return self.services[ClusteringService].create(
                session,
                self.tenant,
                self.space,
                asked or ClusteringRequest("agglomerative"),
            )

    def begin(self, job: JobRecord, progress: Any = silent) -> Any:
        """Carry a job out, up to its end, which is for ``finish``."""
        return self.services[JobService].handler(service.KIND)(job, progress)

    def finish(self, end: Any) -> Mapping[str, Any]:
        """What a worker does in the transaction in which a job succeeds."""
        with self.database.writing() as session:
            result: Mapping[str, Any] = end(session)
            return result

    def cluster(self, asked: ClusteringRequest | None = None) -> dict[str, int]:
        """The labels of a new clustering."""
        self.finish(self.begin(self.ask(asked)))
        return self.labels()

    def labels(self, which: str = service.LATEST) -> dict[str, int]:
        """The labels of a clustering."""
        clusterings = self.services[ClusteringService]
        with self.database.reading() as session:
            held = clusterings.content(session, clusterings.get(session, self.space, which))
        return dict(zip(held.models, held.labels, strict=True))

    def known(self) -> list[Any]:
        """All clusterings, newest first."""
        with self.database.reading() as session:
            page = self.services[ClusteringService].list(
                session, self.space, limit=100, cursor=None
            )
        return list(page.items)


@pytest.fixture(scope="module")
def opened(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The services on each database, for all tests here."""
    folder = tmp_path_factory.mktemp("clusterings")
    stores = Settings(database_url=backend.url(folder), blob_url=f"file://{folder}/blobs")
    with open_services(stores) as services:
        yield services


@pytest.fixture
def place(opened: Container) -> Iterator[Place]:
    """An empty space."""
    made = Place(opened)
    yield made
    with contextlib.suppress(SpaceNotFound):
        made.drop()


@pytest.fixture
def kin(place: Place) -> Place:
    """Three groups of models: of 8, 6 and 4."""
    place.put(named(planted((8, 6, 4))[0]))
    return place
