"""Machines that share nothing but Postgres and a bucket: no read is stale, no support missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.machines import Changes, cluster, machines
from tests.support.backends import PostgresBackend
from tests.support.repetitions import repetitions
from tests.support.servers.postgres import Postgres
from tests.support.servers.s3_server import S3


@pytest.mark.long
def test_each_machine_reads_what_the_other_wrote(
    postgres: Postgres, s3: S3, tmp_path: Path
) -> None:
    """Changes through either are there for the other at once, and for a job of either's worker."""
    bucket = s3.bucket()
    with machines(tmp_path, PostgresBackend(postgres), bucket, s3.variables()) as (one, other):
        changes = Changes(one, other, seed=19)
        changes.run(repetitions(2000, 40), kill_every=repetitions(10, 30))
        changes.read_all()
        assert [] == changes.wrong
        assert (len(changes.known), "exact") == cluster(one)
