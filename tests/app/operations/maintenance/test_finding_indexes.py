"""The upkeep of the indexes of fingerprints."""

from __future__ import annotations

import threading
from pathlib import Path

from app.container import Container
from app.fingerprints.finding.index import FindingIndex
from app.infra.deadlines import NEVER
from app.operations.maintenance.finding_indexes import FindingIndexes
from tests.support.app.fingerprints import StoredFingerprints, made_fingerprint


def test_large_indexes_are_there_before_they_are_asked(services: Container, tmp_path: Path) -> None:
    """Those of tenants with many fingerprints, and no others, are written to the disk."""
    large, small = StoredFingerprints(services), StoredFingerprints(services)
    for number in range(3):
        large.put(str(number), made_fingerprint(number))
    small.put("0", made_fingerprint(0))
    index = FindingIndex(tmp_path, tail_entries=10)
    upkeep = FindingIndexes(large.database, index, least=3)
    upkeep.run_once(threading.Event())
    index.wait()
    assert [str(large.tenant.id)] == [path.name for path in tmp_path.iterdir()]
    assert list(tmp_path.glob("*/*.segment"))
    with large.database.reading() as session:
        found = index.find(session, large.tenant.id, made_fingerprint(1), deadline=NEVER)
    assert 1 == len(found.candidates)
    stopped = threading.Event()
    stopped.set()
    upkeep.run_once(stopped)
