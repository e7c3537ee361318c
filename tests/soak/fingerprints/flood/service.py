"""Two services of one hub, of which forgers flood one: what it costs, and whom."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import httpx

from app.bootstrap import open_services
from app.infra.db.database import Database
from app.tenancy.auth.tenants import ensure_tenant
from modelkin import Fingerprint
from tests.soak.bystander import CROWD, Load
from tests.soak.fingerprints.flood.members import Member, forged_lines
from tests.support.app.fingerprints import StoredFingerprints
from tests.support.app.harness import settings_of
from tests.support.servers.server_process import Server

__all__ = ["Flooded", "services"]

_LINES: Final = 100
_TOLD: Final = 10_000
_PATIENCE_S: Final = 300.0
_JSONL: Final = {"Content-Type": "application/jsonl"}


class Flooded(Load):
    """A service of two tenants, one of which has a hub that forgers write to.

    Args:
        folder: for the service, which is not running yet.
        base: what is forged.
        quota: the fingerprints that a tenant may have.
        worker: whether it makes anatomies.

    Attributes:
        seconds: those of all requests that put forgeries.
    """

    def __init__(self, folder: Path, base: Fingerprint, quota: int, *, worker: bool) -> None:
        self._folder, self._base, self._quota = folder, base, quota
        self.seconds = 0.0
        folder.mkdir()
        super().__init__(self._made(worker=worker), models=0, supports=0)

    def restart(self, *, worker: bool) -> None:
        """Start the service again, with or without the jobs that make anatomies."""
        self.server.stop()
        self.server = self._made(worker=worker).start()

    def _made(self, *, worker: bool) -> Server:
        flags = "--auth=required", f"--embedded-worker={'on' if worker else 'off'}"
        return Server(self._folder, *flags, MODELKIN_QUOTA_FINGERPRINTS=str(self._quota))

    def store(self, known: Sequence[Member]) -> None:
        """Store a hub as the service does that has read it."""
        with open_services(settings_of(self.server.folder), prepared=True) as opened:
            with opened[Database].writing() as session:
                tenant = ensure_tenant(session, CROWD)
            stored = StoredFingerprints(opened, tenant)
            for each in known:
                stored.put(each.name, each.fingerprint, stated_by=each.stated_by, facts=each.facts)

    def forge(self, begin: int, end: int) -> Counter[int]:
        """Put forgeries; what each was answered: 201 or 507. ``seconds`` grow by those of puts."""
        answered = Counter[int]()
        with self.client(CROWD) as http:
            for first in range(begin, end, _LINES):
                some = forged_lines(self._base, first, min(first + _LINES, end))
                body = b"".join(some)
                began = time.monotonic()
                answer = http.post("/v1/fingerprints", content=body, headers=_JSONL)
                self.seconds += time.monotonic() - began
                text = answer.raise_for_status().text
                answered[201] += text.count('"status":"created"')
                answered[507] += text.count('"code":"quota_exceeded"')
                if (first + _LINES) % _TOLD == 0:
                    sys.stderr.write(f"{first + _LINES:,} in {self.seconds:.0f} s\n")
        return answered

    def first_answer(self, path: str) -> tuple[float, Counter[int]]:
        """The seconds until a question is answered, and the statuses until then."""
        statuses, began = Counter[int](), time.monotonic()
        with self.client(CROWD) as http:
            while True:
                answer = http.get(path)
                statuses[answer.status_code] += 1
                took = time.monotonic() - began
                if answer.status_code == httpx.codes.OK:
                    return took, statuses
                assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
                assert took < _PATIENCE_S, answer.text

    def due(self) -> int:
        """How many anatomies are to be made."""
        file = f"file:{self.server.folder / 'm.db'}?mode=ro"
        with closing(sqlite3.connect(file, uri=True, timeout=30)) as database:
            [count] = database.execute(
                "SELECT count(*) FROM anatomies WHERE due_at IS NOT NULL"
            ).fetchone()
        return int(count)


@contextmanager
def services(
    folder: Path, known: Sequence[Member], quota: int, *, worker: bool = True
) -> Iterator[tuple[Flooded, Flooded]]:
    """Two services that have the same hub.

    Args:
        quota: the fingerprints that a tenant may have.
        worker: whether they make anatomies; then all are made.
    """
    made = list[Flooded]()
    try:
        for name in ("quiet", "flooded"):
            load = Flooded(folder / name, known[0].fingerprint, quota, worker=worker)
            load.store(known)
            load.server.start()
            made.append(load)
            load.fill()
            end = time.monotonic() + _PATIENCE_S
            while worker and load.due():
                assert time.monotonic() < end, "anatomies are left"
                time.sleep(0.1)
        yield made[0], made[1]
    finally:
        for each in made:
            each.server.kill()
