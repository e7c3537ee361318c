"""``verify`` of fingerprints: what it finds in damaged rows, and what it can mend."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.repositories import feeds
from app.operations.copies.fingerprint_checks import FingerprintChecks
from app.operations.copies.records import Finding
from tests.support.app.fingerprints import StoredFingerprints
from tests.support.models.made_fingerprints import made_fingerprint


def findings(stored: StoredFingerprints, *, deep: bool) -> list[Finding]:
    """Those about the tenant of a test."""
    checks = FingerprintChecks(stored.database, deep=deep)
    mine = f"tenant {stored.tenant.id}"
    return [f for f in checks.findings() if f.subject.partition(",")[0] == mine]


def change(stored: StoredFingerprints, what: str, where: str = "fingerprint_payloads") -> None:
    with stored.database.writing() as session:
        given = {"tenant": stored.tenant.id, "bytes": b"x" * 99}
        query = text(f"{what.format(table=where)} WHERE tenant_id = :tenant")
        session.execute(query, given if ":bytes" in what else {"tenant": stored.tenant.id})


def test_whole_fingerprints_have_no_finding(stored: StoredFingerprints) -> None:
    """Few keys and many, replaced and removed ones."""
    stored.put("a", made_fingerprint(1))
    stored.put("a", made_fingerprint(2))
    stored.put("b", made_fingerprint(3, 1200))
    stored.delete("a")
    assert [] == findings(stored, deep=True)


@pytest.mark.parametrize(
    ("damage", "deep", "problem"),
    [
        ("DELETE FROM {table}", False, "its payload is missing"),
        ("UPDATE {table} SET data = :bytes", False, "99 bytes"),
        ("UPDATE fingerprints SET digest = 'sha256:0'", True, "has the digest"),
    ],
)
def test_damage_is_found(stored: StoredFingerprints, damage: str, deep: bool, problem: str) -> None:
    """With its model, and without a repair: a backup has it, or its owner."""
    stored.put("org/a", made_fingerprint(1))
    change(stored, damage)
    [found] = findings(stored, deep=deep)
    assert "org/a" in found.subject
    assert problem in found.problem
    assert found.repair is None


def test_a_changed_bit_is_found(stored: StoredFingerprints) -> None:
    """A payload of the right length that no checksum fits."""
    record = stored.put("a", made_fingerprint(1)).record
    with stored.database.reading() as session:
        data = bytearray(stored.service.payload(session, record))
    data[-9] ^= 1
    with stored.database.writing() as session:
        query = text("UPDATE fingerprint_payloads SET data = :d WHERE fingerprint_id = :id")
        session.execute(query, {"d": bytes(data), "id": record.id})
    assert [] == findings(stored, deep=False)
    [found] = findings(stored, deep=True)
    assert "damaged" in found.problem


def test_keys_and_counts_are_mended(stored: StoredFingerprints) -> None:
    """From the payload, at a new version that indices read; and the counts of the tenant."""
    record = stored.put("a", made_fingerprint(1)).record
    change(stored, "UPDATE {table} SET finding_keys = :bytes")
    change(stored, "UPDATE {table} SET fingerprints = 7, bytes = 7", "fingerprint_feeds")
    found = findings(stored, deep=True)
    assert 2 == len(found)
    for each in found:
        assert each.repair is not None
        each.repair()
    assert [] == findings(stored, deep=True)
    with stored.database.reading() as session:
        [[changed]] = TenantFeed(session, stored.tenant.id).changed_since(record.version)
        assert changed.keys.tolist() == made_fingerprint(1).distinct.tolist()
        feed = feeds.read_feed(session, stored.tenant.id)
    assert (1, record.size) == (feed.fingerprints, feed.bytes)
