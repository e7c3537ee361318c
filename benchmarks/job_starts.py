"""How soon a job begins once its request is answered, in a service that is otherwise idle.

``python -m benchmarks.job_starts`` enqueues short jobs one at a time, each after a pause in which
the service rests. It measures a service with its embedded worker, one of two processes whose other
one answers, and on Postgres a worker that is a process of its own. It fails unless half of the jobs
begin within 0.1 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from app.jobs.records import JobRecord
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.jobs.deployment import Deployment
from tests.support.servers.postgres import postgres_server

MEDIAN_LIMIT_S = 0.1
_PAUSE_S = 1.5
"""Longer than the pauses between two looks of an idle worker at its table."""
_LOOK_S = 0.005


def enqueue_by_request(http: httpx.Client) -> str:
    """Have a service enqueue the rebuild of an empty space's buckets, and return the job's id."""
    answer = http.post("/v1/spaces/s/jobs", json={"kind": "rebuild_buckets"})
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["id"]
    return job


def measure(deployment: Deployment, url: str, count: int) -> list[float]:
    """The seconds from each answer, which follows the commit, until the job has begun."""
    seconds = []
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": 100}).raise_for_status()
        for _ in range(count):
            time.sleep(_PAUSE_S)
            job = enqueue_by_request(http)
            began = time.monotonic()
            while find(deployment, job).state == "queued":
                time.sleep(_LOOK_S)
            seconds.append(time.monotonic() - began)
            while not find(deployment, job).finished:
                time.sleep(_LOOK_S)
            assert find(deployment, job).state == "succeeded"
    return seconds


def find(deployment: Deployment, job: str) -> JobRecord:
    """The present state of a job."""
    with deployment.database.reading() as session:
        return deployment.jobs.find_all(session, [job])[job]


def run(name: str, backend: Backend, count: int, *flags: str, worker: bool = False) -> bool:
    """Print the figures of one deployment; whether the limit was kept."""
    with tempfile.TemporaryDirectory(prefix="modelkin-starts-") as folder:
        deployment = Deployment(Path(folder), backend)
        try:
            url = deployment.service(*flags).address()
            if worker:
                deployment.worker().says("takes jobs")
            seconds = measure(deployment, url, count)
        finally:
            deployment.close()
    first, median, late = seconds[0], np.median(seconds), np.quantile(seconds, 0.95)
    figures = f"first {first * 1e3:.0f} ms, median {median * 1e3:.0f} ms, p95 {late * 1e3:.0f} ms"
    print(f"{name}: {count} jobs, {figures}", flush=True)
    return bool(median <= MEDIAN_LIMIT_S)


def main() -> int:
    """1 if the limit was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    count = parser.parse_args().jobs
    kept = run("SQLite, one process", SQLITE, count)
    kept &= run("SQLite, two processes", SQLITE, count, "--processes=2")
    with postgres_server() as postgres:
        kept &= run("Postgres, a worker of its own", PostgresBackend(postgres), count, worker=True)
    print("kept" if kept else "NOT KEPT")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
