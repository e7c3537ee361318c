"""DBOS: the one module that touches it.

A turn of a job is a workflow of DBOS, whose id is the job's and the turn's: handed over twice, it
is carried out once. The queue gives each worker as many as it may have, in an order that is fair to
tenants; a workflow whose worker is gone goes back to the queue when it is told so here. What a job
is, and what becomes of it, DBOS never knows: that is in the service's own database.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError

from app.errors import Unavailable
from app.jobs.queue import ReadyJob
from modelkin.errors import MissingExtra

if TYPE_CHECKING:
    from dbos import DBOSConfig

__all__ = ["DbosQueue", "State", "beside", "require_installed"]

_NAME: Final = "modelkin"
_VERSION: Final = "1"
"""One version for all releases: a workflow has no steps that could have changed, it begins anew."""
_WORKFLOW: Final = "job"
_QUEUE: Final = "jobs"
_APART: Final = "apart"
"""The queue of kinds that wait for others: what is slow there keeps no other job waiting."""
_POLL = 0.2
_CONNECTIONS = 4
_ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
_AT_ONCE = 500

log = logging.getLogger(__name__)
_one = threading.Lock()
"""Held while there is one: DBOS is one object for a whole process."""


@dataclass(frozen=True, slots=True)
class State:
    """What DBOS knows of a turn: whether it has ended, and whose it is while it runs."""

    ended: bool
    worker: str | None


def require_installed() -> None:
    """Raise :class:`MissingExtra` unless DBOS can be imported; does not import it."""
    if importlib.util.find_spec("dbos") is None:
        raise MissingExtra("dbos", "jobs", of=".")


def beside(url: URL) -> URL:
    """Where DBOS keeps its tables: on Postgres in the database itself, as the schema ``dbos``; for
    SQLite in a file beside it, since both would wait for each other's locks in one.
    """
    if url.get_backend_name() != "sqlite":
        return url
    file = Path(str(url.database))
    return url.set(database=str(file.with_name(f"{file.stem}.jobs{file.suffix}")))


class DbosQueue:
    """The queue of one process, open until it is closed. DBOS allows one at a time.

    Args:
        url: of the service's database.
        worker: the name of this worker, which no other ever has.
        carry_out: called with a job's id and turn, in threads of its own, several at a time.
        concurrency: how many at a time; half of them, and one at least, of the kinds apart.
        apart: the kinds that have places of their own. One tenant fills all but one of these.
        migrate: make or change DBOS's tables, if they are not of its version.

    Raises:
        Unavailable: DBOS cannot start; says why.
    """

    def __init__(
        self,
        url: URL,
        worker: str,
        carry_out: Callable[[str, int], None],
        *,
        concurrency: int,
        apart: Collection[str] = (),
        migrate: bool,
    ) -> None:
        require_installed()
        from dbos import DBOS

        if not _one.acquire(timeout=_POLL):
            raise Unavailable("the job queue is still being closed: try again")
        self._dbos = DBOS
        self._apart = apart
        self._engine: Engine | None = None
        try:
            _quieten()
            config = _config(beside(url), worker, concurrency, migrate)
            if url.get_backend_name() != "sqlite":  # else it looks for a database named postgres
                self._engine = config["system_database_engine"] = _engine(url, concurrency)
            DBOS(config=config)
            DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)(_workflow(carry_out))
            DBOS.launch()
            half = max(1, concurrency // 2)
            self._register(_QUEUE, places := max(1, concurrency - half), each_tenant=places)
            self._register(_APART, half, each_tenant=max(1, half - 1))
        except Exception as error:  # of SQLAlchemy, or one of many of its own
            self._close()
            raise Unavailable(f"the job queue cannot start: {_reason(error)}") from error

    def _register(self, queue: str, places: int, *, each_tenant: int) -> None:
        self._dbos.register_queue(
            queue,
            worker_concurrency=places,
            # What makes it a queue of one line for each tenant, served in random order.
            partition_worker_concurrency=each_tenant,
            polling_interval_sec=_POLL,
            on_conflict="always_update",
        )

    def _queue_of(self, offer: ReadyJob) -> str:
        return _APART if offer.kind in self._apart else _QUEUE

    def hand_over(self, offer: ReadyJob) -> None:
        """Queue a turn; one that was queued before stays as it is."""
        with _faults():
            self._dbos.enqueue_workflow_with_options(
                {
                    "workflow_name": _WORKFLOW,
                    "queue_name": self._queue_of(offer),
                    "workflow_id": _id(offer),
                    "app_version": _VERSION,
                    "queue_partition_key": str(offer.tenant_id),
                },
                offer.job_id,
                offer.dispatch_no,
            )

    def states(self, offers: Iterable[ReadyJob]) -> dict[ReadyJob, State | None]:
        """What is known of each turn; None of one that was never queued, or was forgotten."""
        by_id = {_id(offer): offer for offer in offers}
        found: dict[ReadyJob, State | None] = dict.fromkeys(by_id.values())
        ids = list(by_id)
        for start in range(0, len(ids), _AT_ONCE):
            with _faults():
                flows = self._dbos.list_workflows(
                    workflow_ids=ids[start : start + _AT_ONCE], load_input=False, load_output=False
                )
            for flow in flows:
                worker = flow.executor_id if flow.status == "PENDING" else None
                found[by_id[flow.workflow_id]] = State(flow.status in _ENDED, worker)
        return found

    def take_back(self, offer: ReadyJob) -> None:
        """Queue a turn once more whose worker is gone."""
        log.info("job %s goes back to the queue", offer.job_id)
        with _faults():
            self._dbos.resume_workflow(_id(offer), queue_name=self._queue_of(offer))

    def forget(self, age: timedelta) -> None:
        """Drop what is known of turns that ended so long ago."""
        before = (datetime.now(UTC) - age).isoformat()
        with _faults():
            while True:
                flows = self._dbos.list_workflows(
                    status=list(_ENDED),
                    completed_before=before,
                    limit=_AT_ONCE,
                    load_input=False,
                    load_output=False,
                )
                if flows:
                    self._dbos.delete_workflows([flow.workflow_id for flow in flows])
                if len(flows) < _AT_ONCE:
                    return

    def close(self, patience: float) -> bool:
        """Stop taking from the queue, and forget about what still runs here; whether that is done
        in so many seconds. It takes longer where the database is gone.
        """
        closing = threading.Thread(target=self._close, name="dbos-closing", daemon=True)
        closing.start()
        closing.join(patience)
        return not closing.is_alive()

    def _close(self) -> None:
        try:
            self._dbos.destroy(destroy_registry=True)
            if self._engine is not None:
                self._engine.dispose()
        finally:
            _one.release()


def _workflow(carry_out: Callable[[str, int], None]) -> Callable[[str, int], None]:
    def job(job_id: str, dispatch_no: int) -> None:
        carry_out(job_id, dispatch_no)

    return job


def _id(offer: ReadyJob) -> str:
    return f"{offer.job_id}.{offer.dispatch_no}"


def _engine(url: URL, concurrency: int) -> Engine:
    return create_engine(
        url,
        pool_size=_CONNECTIONS + concurrency,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 10},
    )


def _config(url: URL, worker: str, concurrency: int, migrate: bool) -> DBOSConfig:
    from dbos import DBOSPortableJSONSerializer

    return {
        "name": _NAME,
        "system_database_url": url.render_as_string(hide_password=False),
        "sys_db_pool_size": _CONNECTIONS + concurrency,
        "executor_id": worker,
        "application_version": _VERSION,
        "serializer": DBOSPortableJSONSerializer(),  # its own is pickle
        "use_listen_notify": False,  # for messages between workflows, of which there are none
        "run_migrations": migrate,
        "log_level": "WARNING",
    }


def _quieten() -> None:
    """Let its log pass through the service's, from warnings on."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:  # else it brings one of its own
        logger.addHandler(logging.NullHandler())
    logger.propagate = True


@contextmanager
def _faults() -> Iterator[None]:
    """What DBOS cannot do just now is :class:`Unavailable`."""
    from dbos import error as errors

    try:
        yield
    except (SQLAlchemyError, errors.DBOSException) as error:
        raise Unavailable(f"the job queue cannot serve this now: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of what is wrong."""
    told = str(getattr(error, "orig", None) or error).strip()
    return told.splitlines()[0] if told else type(error).__name__
