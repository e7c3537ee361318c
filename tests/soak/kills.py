"""Kills of a service under load at random moments: is anything lost that was acknowledged?

``python -m tests.soak.kills`` (``make soak``) kills a service on each database fifty times.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.faults.ledger import killed_under_load
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server


def main() -> None:
    """Kill a service on each database, and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="on each database")
    parser.add_argument("--seed", type=int, default=2026)
    asked = parser.parse_args()
    with postgres_server() as postgres:
        backends: tuple[Backend, ...] = (SQLITE, PostgresBackend(postgres))
        for backend in backends:
            with tempfile.TemporaryDirectory() as folder:
                server = Server(Path(folder), backend=backend).start()
                writes = killed_under_load(server, asked.kills, asked.seed)
                assert server.stop() == 0
            print(f"{backend.name}: {asked.kills} kills, {writes} writes acknowledged, 0 lost")


if __name__ == "__main__":
    main()
