"""Indexes of a database that was restored from a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bootstrap import open_services
from app.container import Container
from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.index import FindingIndex
from app.infra.deadlines import NEVER
from app.tenancy.auth.records import Tenant
from tests.support.app.backups import Copies
from tests.support.app.fingerprints import StoredFingerprints, made_fingerprint
from tests.support.app.harness import settings_of
from tests.support.backends import Backend


@pytest.mark.slow
def test_indexes_of_before_are_not_trusted(backend: Backend, tmp_path: Path) -> None:
    """A restored database has less than an index that a machine still has, and goes on otherwise.

    It counts its feeds on from where no index can have come.
    """
    index = FindingIndex(tmp_path / "index", tail_entries=10)

    def found(services: Container, number: int) -> set[int]:
        asked = made_fingerprint(number)
        with stored.database.reading() as session:
            feed = TenantFeed(session, stored.tenant.id)
            assert feed.version >= feed.compacted_version
            answer = index.find_by(feed, stored.tenant.id, asked, deadline=NEVER)
        return {each.id for each in answer.candidates}

    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    with open_services(settings_of(before, backend)) as services:
        stored = StoredFingerprints(services, services[Tenant])
        first = stored.put("first", made_fingerprint(1)).record.id
        Copies(backend, before).back_up(tmp_path / "to")
        lost = stored.put("lost", made_fingerprint(2)).record.id
        assert ({first}, {lost}) == (found(services, 1), found(services, 2))
        index.wait()
    Copies(backend, after).put_back(tmp_path / "to")
    with open_services(settings_of(after, backend)) as services:
        stored = StoredFingerprints(services, services[Tenant])
        assert ({first}, set()) == (found(services, 1), found(services, 2))
        other = stored.put("other", made_fingerprint(3)).record.id
        assert (set(), {other}) == (found(services, 2), found(services, 3))
    index.close()
