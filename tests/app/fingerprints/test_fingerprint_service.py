"""Fingerprints in the database: what is stored, what a put changes, and what indices are told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier, Event, Thread

import numpy as np
import pytest

from app.fingerprints.finding.repository import changed_since
from app.fingerprints.records import MAX_TENSORS, Facts, Feed
from app.fingerprints.repositories import feeds
from app.infra.errors import FingerprintExists, FingerprintNotFound
from app.operations.maintenance.fingerprint_tombstones import FingerprintTombstones
from modelkin.errors import InvalidFingerprint, PayloadTooLarge
from tests.support.app.fingerprints import StoredFingerprints
from tests.support.models.made_fingerprints import made_fingerprint

FACTS = Facts(
    ("acme/base", "acme/other"), "merge", "apache-2.0", datetime(2026, 1, 2, tzinfo=UTC), 1 << 40
)


def feed(stored: StoredFingerprints) -> Feed:
    with stored.database.reading() as session:
        return feeds.read_feed(session, stored.tenant.id)


def test_what_was_stored_is_read(stored: StoredFingerprints) -> None:
    """A fingerprint is read as it was sent, with what is said of it, by name and by id."""
    sent = made_fingerprint(1)
    more = {"facts": FACTS, "source_id": "s-1", "hub_revision": "abc"}
    made = stored.put("acme/child", sent, stated_by="hub", **more)
    assert (made.created, made.changed, made.record.revision) == (True, True, 1)
    assert made.record == stored.find("acme/child")
    record = made.record
    assert record.facts == FACTS
    assert (record.scale, record.digest, record.tensors, record.keys) == (4, sent.digest, 2, 80)
    assert (record.lines, record.parameters) == ({1000: 320}, 320_000)
    assert (record.source_id, record.hub_revision, record.stated_by) == ("s-1", "abc", "hub")
    with stored.database.reading() as session:
        service, tenant = stored.service, stored.tenant
        assert sent == service.read(session, record)
        assert {record.id: sent} == service.read_many(session, [record.id, -1])
        assert {record.id: record} == service.by_ids(session, tenant, [record.id, -1])
        assert {"acme/child": record} == service.find_many(session, tenant, ["acme/child", "no"])
        with pytest.raises(FingerprintNotFound, match="did you mean 'acme/child'"):
            service.get(session, tenant, "acme/chidl")


def test_a_put_says_what_it_changed(stored: StoredFingerprints) -> None:
    """The same again changes nothing, statements alone keep the revision, other keys do not."""
    first = stored.put("m", made_fingerprint(1))
    again = stored.put("m", made_fingerprint(1))
    assert (again.record, again.created, again.changed) == (first.record, False, False)
    stated = stored.put("m", made_fingerprint(1), facts=FACTS)
    assert (stated.created, stated.changed, stated.record.revision) == (False, False, 1)
    other = stored.put("m", made_fingerprint(2), facts=FACTS)
    assert (other.created, other.changed, other.record.revision) == (False, True, 2)
    assert other.record.id == first.record.id
    assert other.record == stored.find("m")
    tags = {each.record.version_tag for each in (first, stated, other)}
    assert 3 == len(tags)
    assert feed(stored) == Feed(3, 0, 1, other.record.size)


def test_a_client_cannot_replace_what_a_hub_has(stored: StoredFingerprints) -> None:
    """It may send the same, which changes nothing; the service itself may send another."""
    hub = stored.put("m", made_fingerprint(1), stated_by="hub", facts=FACTS)
    with pytest.raises(FingerprintExists, match="'m'"):
        stored.put("m", made_fingerprint(2))
    assert hub.record == stored.put("m", made_fingerprint(1)).record == stored.find("m")
    assert stored.put("m", made_fingerprint(2), stated_by="hub").changed
    stored.put("n", made_fingerprint(1))
    assert "hub" == stored.put("n", made_fingerprint(2), stated_by="hub").record.stated_by


def test_the_feed_tells_indices_what_changed(
    stored: StoredFingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each changed fingerprint once, in its present state, in pages; and those that are gone."""
    monkeypatch.setattr("app.fingerprints.finding.repository._PER_PAGE", 1)
    many = made_fingerprint(9, 1200)
    for name, sent in (("a", made_fingerprint(1)), ("b", many), ("c", made_fingerprint(3))):
        stored.put(name, sent)
    stored.put("a", made_fingerprint(4))
    gone = stored.delete("c")
    with stored.database.reading() as session:
        [b], [a] = changed_since(session, stored.tenant.id, 0)
        assert [] == list(changed_since(session, stored.tenant.id, a.version))
        assert [gone.id] == feeds.removed_since(session, stored.tenant.id, 3)
        assert [] == feeds.removed_since(session, stored.tenant.id, 5)
    assert (b.version, a.version) == (2, 4)
    assert (1 << a.scale, a.keys.tolist()) == (4, made_fingerprint(4).distinct.tolist())
    assert 512 <= b.keys.size <= 1023
    assert b.keys.tolist() == many.at(1 << b.scale).distinct.tolist()
    assert many.at(1 << b.scale - 1).distinct.size > 1023
    assert feed(stored).fingerprints == 2


def test_old_tombstones_are_compacted(stored: StoredFingerprints) -> None:
    """The oldest go, in batches; an index that has not seen them is told to start again."""
    for number in range(4):
        stored.put("m", made_fingerprint(number))
        stored.delete("m")
    tenant = stored.tenant.id
    with stored.database.reading() as session:
        assert (tenant, 0, 4) in feeds.feeds_to_compact(session, 3)
        assert (tenant, 0, 4) not in feeds.feeds_to_compact(session, 4)
    for deleted in (2, 1, 0):
        with stored.database.writing() as session:
            assert deleted == feeds.prune_tombstones(session, tenant, keep=1, batch_size=2)
    with stored.database.reading() as session:
        assert 1 == len(feeds.removed_since(session, tenant, 0))
    assert feed(stored) == Feed(8, 6, 0, 0)


def test_puts_at_once_have_versions_of_their_own(stored: StoredFingerprints) -> None:
    """Also the first ones of a tenant, who make its feed side by side."""
    ready = Barrier(4)

    def put(number: int) -> None:
        ready.wait()
        stored.put(f"m{number}", made_fingerprint(number))

    threads = [Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [stored.find(f"m{number}") for number in range(4)]
    assert [1, 2, 3, 4] == sorted(record.version for record in records if record is not None)
    assert feed(stored).fingerprints == 4


def test_many_puts_in_one_transaction(stored: StoredFingerprints) -> None:
    """A refused one affects no other, and the second of a name sees the first."""
    stored.put("hub", made_fingerprint(0), stated_by="hub")
    contents = {name: made_fingerprint(at) for at, name in enumerate("abc", 1)}
    puts = [stored.of(name, sent) for name, sent in contents.items()]
    puts[1:1] = [stored.of("hub", made_fingerprint(7)), stored.of("a", made_fingerprint(8))]
    with stored.database.writing() as session:
        found = stored.service.put_each(session, stored.tenant, puts)
    kinds = [each if isinstance(each, Exception) else each.record.revision for each in found]
    assert isinstance(kinds.pop(1), FingerprintExists)
    assert [1, 2, 1, 1] == kinds
    for name, sent in {**contents, "a": made_fingerprint(8)}.items():
        record = stored.find(name)
        assert record is not None
        assert record.digest == sent.digest
    with stored.database.reading() as session:
        page = stored.service.list(session, stored.tenant, limit=2)
        rest = stored.service.list(session, stored.tenant, limit=9, cursor=page.next_cursor)
        hubs = stored.service.list(session, stored.tenant, limit=9, stated_by="hub")
        some = stored.service.list(session, stored.tenant, limit=9, prefix="h")
    assert ["a", "b", "c", "hub"] == [each.name for each in (*page.items, *rest.items)]
    assert ["hub"] == [each.name for each in hubs.items] == [each.name for each in some.items]


def test_too_much_is_refused(stored: StoredFingerprints) -> None:
    """Before it is decoded where its bytes or its header say so, and never after seconds."""
    with pytest.raises(PayloadTooLarge, match="4,194,304 bytes"):
        stored.service.prepare(bytes((4 << 20) + 1))
    many = replace(
        made_fingerprint(1, tensors=1),
        tensors=tuple(
            replace(tensor, names=tuple(f"t{at}" for at in range(MAX_TENSORS + 1)))
            for tensor in made_fingerprint(1, tensors=1).tensors
        ),
    )
    for payload in (many, many.to_bytes()):
        with pytest.raises(InvalidFingerprint, match="20,001, and 1 to 20,000 are allowed"):
            stored.service.prepare(payload)


def test_keys_that_crowd_have_a_coarse_end(stored: StoredFingerprints) -> None:
    """Keys that no hash made end at some scale, too."""
    made = made_fingerprint(1, 2000, tensors=1)
    crowded = replace(made, keys=np.arange(made.keys.size, dtype=np.uint64))
    prepared = stored.service.prepare(crowded)
    assert prepared.finding_keys.size <= 1023
    assert prepared.finding_keys.tolist() == crowded.at(prepared.finding_scale).keys.tolist()


def test_the_clean_up_prunes_tombstones(stored: StoredFingerprints) -> None:
    """Where there are twice as many as stay; others' and few stay."""
    for number in range(5):
        stored.put("m", made_fingerprint(number))
        stored.delete("m")
    pruning = FingerprintTombstones(stored.database, kept=3)
    pruning.run_once(Event())
    assert feed(stored).compacted_version == 0
    stored.put("m", made_fingerprint(5))
    stored.delete("m")
    ended = Event()
    ended.set()
    pruning.run_once(ended)
    assert feed(stored).compacted_version == 0
    pruning.run_once(Event())
    with stored.database.reading() as session:
        assert 3 == len(feeds.removed_since(session, stored.tenant.id, 0))
    assert feed(stored).compacted_version == 6
