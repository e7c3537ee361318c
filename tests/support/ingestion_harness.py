"""A service without its edge: its stores, a source, and a worker that does one job when told to."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from app.auth.records import Tenant
from app.bootstrap import open_services
from app.catalog.reader import ModelReader
from app.catalog.records import ModelRecord
from app.catalog.repositories import models
from app.container import Container
from app.hubs.clients.protocol import Hub
from app.hubs.clients.registry import HubRegistry
from app.hubs.records import SourceRecord
from app.hubs.repositories import sources
from app.hubs.service import SourceIn, SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.jobs import queue
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.settings import Settings
from app.spaces import repository as spaces
from modelkin.core.support import Support
from workers.executor import JobExecutor

__all__ = ["Desk", "open_desk"]


class Desk:
    """Everything that a look at a model needs."""

    def __init__(self, services: Container) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.database = services[Database]
        self.looks = SyncScheduler(services[JobService])
        worker = secrets.token_hex(4)
        self.bench = JobExecutor(self.database, services[JobService], worker)
        with self.database.writing() as session:
            queue.add_worker(session, worker, datetime.now(UTC))

    def follow(self, url: str | None, **wanted: Any) -> SourceRecord:
        """A source of a hub."""
        asked = {"kind": "huggingface", "space": "kin", "secret": "s", "poll_seconds": None}
        given = SourceIn(**{**asked, "url": url, **wanted})
        with self.database.writing() as session:
            return self.services[SourceService].create(session, self.tenant, given)

    def look(self, source: SourceRecord, model: str, **hints: Any) -> JobRecord:
        """A look at a model, to wherever it gets at once."""
        job = self.enqueue(source, model, **hints)
        return self.carry_out(job)

    def enqueue(self, source: SourceRecord, model: str, **hints: Any) -> JobRecord:
        """A look that nobody carries out yet."""
        with self.database.writing() as session:
            tenant = self.tenant
            return self.looks.sync_model(session, tenant, source.id, model, **hints)

    def carry_out(self, job: JobRecord) -> JobRecord:
        """One attempt at a job."""
        self.bench.carry_out(job.id, self.show(job).dispatch_no)
        return self.show(job)

    def show(self, job: JobRecord) -> JobRecord:
        with self.database.reading() as session:
            return self.services[JobService].get(session, self.tenant, job.id)

    @property
    def hubs(self) -> HubRegistry:
        """What opens hubs for the looks."""
        return self.services[HubRegistry]

    def opened(self, source: SourceRecord) -> AbstractContextManager[Hub]:
        """The hub of a source."""
        with self.database.reading() as session:
            known = self.services[SourceService].open(session, self.tenant, source.id)
        return self.hubs.hub_of(known)

    def source(self, source: SourceRecord) -> SourceRecord:
        with self.database.reading() as session:
            found = sources.find_source(session, source.id)
        assert found is not None
        return found

    def model(self, name: str, space: str = "kin") -> ModelRecord | None:
        with self.database.reading() as session:
            found = spaces.find_space(session, self.tenant, space)
            return None if found is None else models.find_model(session, found, name)

    def support(self, name: str, space: str = "kin") -> Support:
        with self.database.reading() as session:
            found = spaces.get_space(session, self.tenant, space)
            return self.services[ModelReader].support(found, models.get_model(session, found, name))

    def spaces(self) -> list[str]:
        with self.database.reading() as session:
            return sorted(space.name for space in spaces.all_spaces(session))


@cache
def _migrated() -> bytes:
    """A SQLite database without anything in it: making one takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kin.db"
        with closing(Database(f"sqlite:///{file}", timeout=5)) as database:
            migrate(database)
        return file.read_bytes()


@contextmanager
def open_desk(folder: Path, **settings: Any) -> Iterator[Desk]:
    """A desk on the SQLite database of a folder, which may talk to loopback."""
    file = folder / "kin.db"
    if not file.exists():
        file.write_bytes(_migrated())
    known = {"egress_allow": "127.0.0.1", "hub_timeout_seconds": 2.0, **settings}
    opened = Settings(database_url=f"sqlite:///{file}", **known)
    with open_services(opened, prepared=True) as services:
        yield Desk(services)
