"""A run of one test that holds servers of each kind and waits; see test_interrupted_runs.py.

Its name is not that of a file of tests, so a run has it only if it is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

from tests.support.servers.postgres import Postgres
from tests.support.servers.redis_server import RedisProcess


def test_it_is_interrupted(postgres: Postgres, single: RedisProcess) -> None:
    """The processes are written down; nothing but a signal ends this."""
    other = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
    with single.client() as client:
        redis = client.info("server")["process_id"]
    database = int((postgres.data / "postmaster.pid").read_text().split()[0])
    pids = {
        "worker": os.getpid(),
        "Postgres": database,
        "Redis": redis,
        "other": other.pid,
    }
    said = Path(os.environ["HELD_SERVERS"])
    said.with_suffix(".new").write_text(json.dumps(pids))
    said.with_suffix(".new").rename(said)
    threading.Event().wait()
