"""A database with jobs, and the service and worker processes that carry them out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import text

from app.infra.db.database import Database
from app.jobs.queue import heartbeats
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.service import SCOPES, KeyService
from app.tenancy.auth.tenants import ensure_tenant
from tests.support.backends import Backend
from tests.support.jobs.handlers import register
from tests.support.servers.forkserver import ModuleProcess
from tests.support.servers.server_process import environment

TIMEOUT_S = 60.0
LEASE_S = 2.0
"""Seconds of silence in the tests."""


class Deployment:
    """A migrated database with jobs.

    Args:
        folder: for its files and those of its processes.
        backend: the kind of its database.
    """

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.folder = folder
        self.url = backend.migrated_url(folder)
        self.database = Database(self.url, timeout=10)
        self.jobs = JobService()
        register(self.jobs)
        with self.database.writing() as session:
            session.execute(text("CREATE TABLE effects (job VARCHAR(40))"))
        self.tenant = self.make_tenant("default")
        self._processes: list[Process] = []

    def make_tenant(self, name: str) -> Tenant:
        """Create the tenant of this name, or return it."""
        with self.database.writing() as session:
            return ensure_tenant(session, name)

    def make_key(self, tenant: str, *scopes: str) -> str:
        """Create a key of a tenant."""
        with self.database.writing() as session:
            return KeyService().create(session, tenant, scopes=scopes or SCOPES)

    def enqueue(
        self,
        kind: str,
        *,
        tenant: Tenant | None = None,
        dedup_key: str | None = None,
        not_before: datetime | None = None,
        **parameters: Any,
    ) -> JobRecord:
        """Enqueue a job and commit; its handler writes to :meth:`begun`."""
        with self.database.writing() as session:
            return self.jobs.enqueue(
                session,
                tenant or self.tenant,
                kind,
                {"file": str(self.folder / "begun"), **parameters},
                dedup_key=dedup_key,
                not_before=not_before,
            )

    def show(self, job: JobRecord) -> JobRecord:
        """The current state of a job."""
        with self.database.reading() as session:
            return self.jobs.get(session, job.tenant, job.id)

    def cancel(self, job: JobRecord) -> JobRecord:
        """Cancel a job and return it."""
        with self.database.writing() as session:
            return self.jobs.cancel(session, job.tenant, job.id)

    def until(self, job: JobRecord, condition: Callable[[JobRecord], object]) -> JobRecord:
        """Wait until the condition holds for the job, and return it."""
        end = time.monotonic() + TIMEOUT_S
        while not condition(now := self.show(job)):
            alive = any(process.lives for process in self._processes)
            assert alive, (now, self.logs())
            assert time.monotonic() < end, (now, self.logs())
            time.sleep(0.1)
        return now

    def ended(self, job: JobRecord) -> JobRecord:
        """Wait until the job has ended, and return it."""
        return self.until(job, lambda now: now.finished)

    def running(self, job: JobRecord) -> JobRecord:
        """Wait until the job has reported progress, and return it."""
        return self.until(job, lambda now: now.state == "running" and now.progress is not None)

    def registered_workers(self) -> set[str]:
        """The names of the workers that are registered now."""
        with self.database.reading() as session:
            return set(heartbeats(session))

    def begun(self, job: JobRecord) -> list[int]:
        """The attempts that the handler has started and recorded."""
        file = self.folder / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(job.id)]

    def effects(self, job: JobRecord) -> int:
        """The number of times that the effect of the job was applied."""
        query = text("SELECT count(*) FROM effects WHERE job = :job")
        with self.database.reading() as session:
            return int(session.execute(query, {"job": job.id}).scalar_one())

    def worker(self, *flags: str, module: str = "tests.support.jobs.worker_main") -> Process:
        """A new ``python -m workers``, started; ``module`` runs another one in its place."""
        return self._start(module, *flags)

    def service(self, *flags: str) -> Process:
        """A new ``python -m app``, started."""
        return self._start("tests.support.jobs.service_main", "--port=0", *flags)

    def logs(self) -> str:
        """The output of all processes."""
        return "\n".join(process.log.read_text() for process in self._processes)

    def close(self) -> None:
        """Stop all processes and close the database."""
        for process in self._processes:
            process.kill()
        self.database.close()

    def _start(self, module: str, *flags: str) -> Process:
        log = self.folder / f"{len(self._processes)}.log"
        stores = f"--database-url={self.url}", f"--blob-url=file://{self.folder}/blobs"
        process = Process(log, module, *stores, f"--job-lease-seconds={LEASE_S:g}", *flags)
        self._processes.append(process)
        return process


class Process:
    """A process of the service or of a worker.

    Args:
        log: the file of its output.
        module: its entry point.
        flags: its command line.
        settings: more of its environment.
    """

    def __init__(self, log: Path, module: str, *flags: str, **settings: str) -> None:
        self.log = log
        # The jobs of these tests compute nothing; numba would only take time to load.
        env = environment(MODELKIN_KERNELS="reference", **settings)
        self._process = ModuleProcess(module, *flags, env=env, stdout=log, stderr=log)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.is_alive()

    def says(self, *words: str) -> str:
        """Wait for the first line that contains one of the words, and return it."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            said = self.log.read_text()
            for line in said.splitlines():
                if any(word in line for word in words):
                    return line
            assert time.monotonic() < end, said
            assert self.lives, said
            time.sleep(0.05)

    def address(self) -> str:
        """Wait for the address that it serves at, and return it."""
        return next(w for w in self.says("running on http://").split() if w.startswith("http"))

    def kill(self) -> None:
        """Send SIGKILL if it runs."""
        if self.lives:
            self._process.kill()
            self._process.wait(TIMEOUT_S)

    def pause(self) -> None:
        """Freeze the process until :meth:`wake`."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> Self:
        """Let the process continue."""
        os.kill(self.pid, signal.SIGCONT)
        return self

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the exit code."""
        return self._process.wait(TIMEOUT_S)
