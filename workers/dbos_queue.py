"""``DbosQueue``: the queue of workers, and the only module that uses DBOS.

A dispatch of a job is a workflow of DBOS, identified by the job and its dispatch number. So a
dispatch that is enqueued twice runs once. Of each queue a worker gets as many as it may run, in an
order that is fair to tenants, and never all of one tenant. The workflow of a dead worker is
enqueued again from here. The state and the result of a job are in the service's own database, not
in DBOS.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError

from app.errors import Unavailable
from app.infra.private_files import prepare_database_file
from app.jobs.queue import Dispatch
from app.jobs.records import QueueName
from modelkin.errors import MissingExtra

if TYPE_CHECKING:
    from dbos import DBOSConfig

__all__ = ["DbosQueue", "DispatchState", "queue_url", "require_installed"]

_NAME: Final = "modelkin"
_VERSION: Final = "1"
"""One version for all releases: a workflow has no steps that could change; it restarts as a whole.
"""
_WORKFLOW: Final = "job"
_SHORT_PLACES, _SHORT_PLACES_PER_TENANT = 4, 2
"""Short jobs at a time, beside all others: of all tenants, and of each."""
_POLL_INTERVAL_S = 0.2
_POOL_SIZE = 4
_ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
_BATCH_SIZE = 500

log = logging.getLogger(__name__)
_open_queue = threading.Lock()
"""Held while a queue is open: DBOS is one object for a whole process."""


@dataclass(frozen=True, slots=True)
class DispatchState:
    """The state of a dispatch in DBOS: whether it has ended, and its worker while it runs."""

    ended: bool
    worker: str | None


def require_installed() -> None:
    """Raise :class:`MissingExtra` unless DBOS can be imported; does not import it."""
    if importlib.util.find_spec("dbos") is None:
        raise MissingExtra("dbos", "jobs", of=".")


def queue_url(url: URL) -> URL:
    """The database of DBOS's tables: on Postgres the service's, in the schema ``dbos``.

    For SQLite it is a file beside the database: in one file both would wait for each other's locks.
    """
    if url.get_backend_name() != "sqlite":
        return url
    file = Path(str(url.database))
    return url.set(database=str(file.with_name(f"{file.stem}.jobs{file.suffix}")))


class DbosQueue:
    """The queue of one process, open from :meth:`start` to :meth:`close`.

    DBOS allows one open queue at a time.

    Args:
        url: of the service's database.
        worker: the unique name of this worker.
        execute: called with a job's id and dispatch number, in several threads at a time.
        concurrency: other than short jobs at a time, at least 4; half of them are for the hubs
            queue. One tenant may fill all but one of the places of each queue.
        queues: the queue of each kind, "jobs" by default.
        migrate: create or upgrade DBOS's tables.
    """

    def __init__(
        self,
        url: URL,
        worker: str,
        execute: Callable[[str, int], None],
        *,
        concurrency: int,
        queues: Mapping[str, QueueName] | None = None,
        migrate: bool,
    ) -> None:
        self._url = url
        self._worker = worker
        self._execute = execute
        self._concurrency = concurrency
        self._queues = queues or {}
        self._migrate = migrate
        self._engine: Engine | None = None

    def start(self) -> None:
        """Launch DBOS, which calls ``execute`` from now on.

        Raises:
            MissingExtra: DBOS is not installed.
            Unavailable: DBOS cannot start; says why. The queue is closed then.
        """
        require_installed()
        from dbos import DBOS

        if not _open_queue.acquire(timeout=_POLL_INTERVAL_S):
            raise Unavailable("the job queue is still being closed: try again")
        self._dbos = DBOS
        concurrency = self._concurrency
        places = concurrency + _SHORT_PLACES
        try:
            _quieten()
            config = _config(queue_url(self._url), self._worker, places, self._migrate)
            if self._url.get_backend_name() == "sqlite":  # DBOS needs an engine named postgres
                prepare_database_file(Path(str(queue_url(self._url).database)))
            else:
                self._engine = config["system_database_engine"] = _engine(self._url, places)
            DBOS(config=config)
            DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)(_workflow(self._execute))
            DBOS.launch()
            half = concurrency // 2
            self._register("jobs", concurrency - half, each_tenant=concurrency - half - 1)
            self._register("hubs", half, each_tenant=half - 1)
            self._register("short", _SHORT_PLACES, each_tenant=_SHORT_PLACES_PER_TENANT)
        except Exception as error:  # of SQLAlchemy, or one of many types of DBOS
            self._close()
            raise Unavailable(f"the job queue cannot start: {_reason(error)}") from error

    def _register(self, queue: QueueName, places: int, *, each_tenant: int) -> None:
        self._dbos.register_queue(
            queue,
            worker_concurrency=places,
            # A partition for each tenant; DBOS serves partitions in random order.
            partition_worker_concurrency=each_tenant,
            polling_interval_sec=_POLL_INTERVAL_S,
            on_conflict="always_update",
        )

    def _queue_of(self, dispatch: Dispatch) -> QueueName:
        return self._queues.get(dispatch.kind, "jobs")

    def enqueue(self, dispatch: Dispatch) -> None:
        """Enqueue a dispatch; one that is enqueued already stays as it is."""
        with _faults():
            self._dbos.enqueue_workflow_with_options(
                {
                    "workflow_name": _WORKFLOW,
                    "queue_name": self._queue_of(dispatch),
                    "workflow_id": _id(dispatch),
                    "app_version": _VERSION,
                    "queue_partition_key": str(dispatch.tenant_id),
                },
                dispatch.job_id,
                dispatch.dispatch_no,
            )

    def states(self, dispatches: Iterable[Dispatch]) -> dict[Dispatch, DispatchState | None]:
        """The state of each dispatch; None if it was never enqueued, or was pruned."""
        by_id = {_id(dispatch): dispatch for dispatch in dispatches}
        found: dict[Dispatch, DispatchState | None] = dict.fromkeys(by_id.values())
        ids = list(by_id)
        for start in range(0, len(ids), _BATCH_SIZE):
            with _faults():
                flows = self._dbos.list_workflows(
                    workflow_ids=ids[start : start + _BATCH_SIZE],
                    load_input=False,
                    load_output=False,
                )
            for flow in flows:
                worker = flow.executor_id if flow.status == "PENDING" else None
                found[by_id[flow.workflow_id]] = DispatchState(flow.status in _ENDED, worker)
        return found

    def enqueue_again(self, dispatch: Dispatch) -> None:
        """Enqueue the dispatch of a dead worker again."""
        log.info("job %s goes back to the queue", dispatch.job_id)
        with _faults():
            self._dbos.resume_workflow(_id(dispatch), queue_name=self._queue_of(dispatch))

    def prune(self, age: timedelta) -> None:
        """Delete the workflows that ended so long ago."""
        before = (datetime.now(UTC) - age).isoformat()
        with _faults():
            while True:
                flows = self._dbos.list_workflows(
                    status=list(_ENDED),
                    completed_before=before,
                    limit=_BATCH_SIZE,
                    load_input=False,
                    load_output=False,
                )
                if flows:
                    self._dbos.delete_workflows([flow.workflow_id for flow in flows])
                if len(flows) < _BATCH_SIZE:
                    return

    def close(self, timeout: float) -> bool:
        """Stop taking jobs, without waiting for those that run; whether it is closed in time.

        It takes longer where the database is unavailable.
        """
        closing = threading.Thread(target=self._close, name="dbos-closing", daemon=True)
        closing.start()
        closing.join(timeout)
        return not closing.is_alive()

    def _close(self) -> None:
        try:
            self._dbos.destroy(destroy_registry=True)
            if self._engine is not None:
                self._engine.dispose()
        finally:
            _open_queue.release()


def _workflow(execute: Callable[[str, int], None]) -> Callable[[str, int], None]:
    def job(job_id: str, dispatch_no: int) -> None:
        execute(job_id, dispatch_no)

    return job


def _id(dispatch: Dispatch) -> str:
    return f"{dispatch.job_id}.{dispatch.dispatch_no}"


def _engine(url: URL, places: int) -> Engine:
    return create_engine(
        url,
        pool_size=_POOL_SIZE + places,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 10},
    )


def _config(url: URL, worker: str, places: int, migrate: bool) -> DBOSConfig:
    from dbos import DBOSPortableJSONSerializer

    return {
        "name": _NAME,
        "system_database_url": url.render_as_string(hide_password=False),
        "sys_db_pool_size": _POOL_SIZE + places,
        "executor_id": worker,
        "application_version": _VERSION,
        "serializer": DBOSPortableJSONSerializer(),  # its own is pickle
        "use_listen_notify": False,  # only for messages between workflows, which are not used
        "run_migrations": migrate,
        "log_level": "WARNING",
    }


def _quieten() -> None:
    """Pass DBOS's warnings and errors on to the service's log."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:  # else DBOS adds a handler of its own
        logger.addHandler(logging.NullHandler())
    logger.propagate = True


@contextmanager
def _faults() -> Iterator[None]:
    """Turn errors of DBOS and its database into :class:`Unavailable`."""
    from dbos import error as errors

    try:
        yield
    except (SQLAlchemyError, errors.DBOSException) as error:
        raise Unavailable(f"the job queue cannot serve this now: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of an error's message."""
    message = str(getattr(error, "orig", None) or error).strip()
    return message.splitlines()[0] if message else type(error).__name__
