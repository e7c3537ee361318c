"""Backups of a service under four writers, each restored elsewhere and verified in depth.

    python -m tests.soak.backups [--backups 20]

On SQLite and on Postgres: nothing may be found. Prints a line for each backup.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.app.backups import Copies, writing
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server

WRITERS = 4


def main() -> int:
    """Exit 1 where a restored copy has findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backups", type=int, default=20, help="of each kind of database (20)")
    backups = parser.parse_args().backups
    with postgres_server() as server:
        found = [soak(backend, backups) for backend in (SQLITE, PostgresBackend(server))]
    print(f"{sum(found)} findings in {2 * backups} restored backups")
    return 1 if any(found) else 0


def soak(backend: Backend, backups: int) -> int:
    """Back up and restore so often; how many findings there were."""
    findings = 0
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "live").mkdir()
        server = Server(root / "live", "--keep-revisions=2", backend=backend).start()
        try:
            with writing(server, WRITERS) as done:
                for number in range(backups):
                    time.sleep(1)
                    restored = root / f"restored{number}"
                    findings += restored_findings(backend, root, restored, sum(done))
                    shutil.rmtree(restored)
        finally:
            server.kill()
    return findings


def restored_findings(backend: Backend, root: Path, restored: Path, changes: int) -> int:
    """Back up, restore and verify once; how many findings there are."""
    began = time.monotonic()
    made = Copies(backend, root / "live").back_up(root / "to").rpartition(": ")[2].strip()
    took = time.monotonic() - began
    copy = Copies(backend, restored)
    copy.put_back(root / "to")
    found = copy.verify()
    lines = found.splitlines()
    print(
        f"{backend.name}: after {changes:,} changes, {made} in {took:.1f} s; {len(lines)} findings",
        flush=True,
    )
    if found:
        print(found, flush=True)
    return len(lines)


if __name__ == "__main__":
    sys.exit(main())
