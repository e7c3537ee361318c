"""Measure a backfill of fingerprints that workers divide among them, on one Postgres.

The hub is a real server on loopback that needs an equal while for each file, however many are asked
for: it sends none before every worker that has something to do waits for one. These whiles are
counted, so the processors of this machine, which all workers share, do not decide. First one worker
reads all models again. Then eight do; half-way one of them is killed, and another one is added.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.fingerprints.service import FingerprintService
from app.hubs.backfill import FingerprintBackfill
from app.hubs.records import FingerprintCounts, SourceRecord
from app.hubs.repositories import fingerprint_states
from app.hubs.service import SourceService
from benchmarks.report import Findings, Row, Table
from tests.support.app.harness import KEY, AppHarness, open_app
from tests.support.backends import PostgresBackend
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Handler, Hub, loopback_hub
from tests.support.servers.forkserver import ModuleProcess
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import environment

LIBRARIES = ("sqlalchemy", "psycopg", "httpx", "numpy")

WORKERS = 8
_LEASE_S = 5.0
_SHAPES: dict[str, tuple[int, ...]] = {"a.weight": (96, 80), "b.weight": (70, 64)}
_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A backfill that has ended.

    Attributes:
        whiles: how often the hub has sent what was waited for.
        sent: how often the hub sent each file.
        counts: how far the fingerprints are.
    """

    whiles: int
    sent: Counter[str]
    counts: FingerprintCounts


def run(quick: bool) -> Findings:
    """Read the models again by one worker, then by eight."""
    models, workers = (6, 2) if quick else (80, WORKERS)
    with _followed(models) as (app, hub, source, folder):
        one = _Backfill(app, hub, source, folder / "one").run(1)
        eight = _Backfill(app, hub, source, folder / "several").run(workers, models // 2)
    ratio = one.whiles / eight.whiles
    what = f"{models} models: {workers} workers, one killed and one added"
    whole = FingerprintCounts(models, 0, 0)
    rows = [
        Row(
            f"{what}: the whiles of a file",
            str(eight.whiles),
            f"one worker: {one.whiles}",
            f"{ratio:.2f}×",
            "≥ 7×",
            ratio >= 7,
        ),
        Row(
            f"models without a fingerprint afterwards, {what}",
            str(models - eight.counts.read),
            f"one worker: {models - one.counts.read}",
            "",
            "0",
            one.counts == eight.counts == whole,
        ),
    ]
    facts = [
        [each, str(sum(done.sent.values())), str(sum(n > 1 for n in done.sent.values()))]
        for each, done in (("one worker", one), (f"{workers} workers", eight))
    ]
    return Findings(rows, [Table("What the hub sent", ["", "downloads", "of these again"], facts)])


@contextmanager
def _followed(models: int) -> Iterator[tuple[AppHarness, Hub, SourceRecord, Path]]:
    """A service on Postgres that has stored the models of a hub, without fingerprints."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hub = stack.enter_context(loopback_hub())
        backend = PostgresBackend(stack.enter_context(postgres_server()))
        app = stack.enter_context(open_app(folder, backend))
        for number in range(models):
            tensors = random_tensors(number, _SHAPES)
            hub.push(f"org/m{number:04}", {"model.safetensors": safetensors(tensors)})
        source = app.hubs.follow(hub.url, fingerprints=False, backfill_per_hour=None)
        for name in hub.repos:
            job = app.hubs.sync_model(source, name)
            assert job.error is None, job.error
        yield app, hub, source, folder


class _Backfill:
    """One backfill of all models.

    Args:
        folder: for the output of its workers.
    """

    def __init__(self, app: AppHarness, hub: Hub, source: SourceRecord, folder: Path) -> None:
        self._app, self._hub, self._source, self._folder = app, hub, source, folder
        self._sent, self._whiles = Counter[str](), 0
        self._waiting, self._lock = list[threading.Event](), threading.Lock()
        self._workers: list[ModuleProcess] = []

    def run(self, workers: int, killed_after: int | None = None) -> _Run:
        """Forget all fingerprints, and have workers make them again.

        Args:
            killed_after: models after which one worker is killed, and another one added.
        """
        self._folder.mkdir()
        self._forget()
        self._hub.on_cdn = self._wait
        try:
            for _ in range(workers):
                self._start()
            self._until(lambda: all("takes jobs" in w.stdout.read_text() for w in self._workers))
            while self._counts().waiting:
                self._until(lambda: self._all_wait(workers))
                if killed_after is not None and self._counts().read >= killed_after:
                    killed_after = None
                    self._workers[0].kill()
                    self._start()
                self._send()
        finally:
            self._hub.on_cdn = lambda _: False
            self._send()
            for worker in self._workers:
                worker.kill()
                worker.wait(_LEASE_S)
        return _Run(self._whiles, self._sent, self._counts())

    def _wait(self, request: Handler) -> bool:
        """Be a slow hub: wait for the others who ask."""
        sent = threading.Event()
        with self._lock:
            self._sent[request.path.partition("?")[0]] += 1
            self._waiting.append(sent)
        sent.wait(_LIMIT_S)
        return False

    def _all_wait(self, workers: int) -> bool:
        """Whether each worker waits for a file, or there is no more for it to do."""
        waiting = self._counts().waiting
        with self._lock:
            return len(self._waiting) >= min(workers, waiting)

    def _send(self) -> None:
        """End the while of all files that are waited for."""
        with self._lock:
            self._whiles += bool(self._waiting)
            for sent in self._waiting:
                sent.set()
            self._waiting.clear()

    def _start(self) -> None:
        number = len(self._workers)
        log = self._folder / f"{number}.log"
        flags = (
            f"--database-url={self._app.database.url.render_as_string(hide_password=False)}",
            f"--blob-url=file://{self._folder.parent}/blobs",
            f"--job-lease-seconds={_LEASE_S:g}",
            "--job-concurrency=4",  # one backfill at a time
            "--egress-allow=127.0.0.1",
            "--hub-timeout-seconds=3600",  # its whiles last as long as this machine needs
        )
        settings = environment(MODELKIN_KERNELS="reference", MODELKIN_ENCRYPTION_KEYS=KEY)
        worker = ModuleProcess("workers", *flags, env=settings, stdout=log, stderr=log)
        worker.start()
        self._workers.append(worker)

    def _forget(self) -> None:
        """Have all models to be read again."""
        service, source = self._app.services[FingerprintService], self._source
        with self._app.database.writing() as session:
            page = service.list(session, self._app.tenant, limit=1000)
            for record in page.items:
                service.delete(session, self._app.tenant, record.name)
            for name in self._hub.repos:
                fingerprint_states.keep(session, source.id, name, {}, whole=False)
            self._app.services[SourceService].update(
                session, self._app.tenant, source.id, {"fingerprints": True}
            )

    def _counts(self) -> FingerprintCounts:
        with self._app.database.reading() as session:
            found = self._app.services[SourceService].fingerprint_counts(session, [self._source])
        return found[self._source.id]

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait, and enqueue what is due, as the workers themselves do a while after their start."""
        end = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < end, [
                each.stdout.read_text()[-500:] for each in self._workers
            ]
            self._app.services[FingerprintBackfill].due()
            time.sleep(0.2)
