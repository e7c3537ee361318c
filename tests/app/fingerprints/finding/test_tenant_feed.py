"""The finding index behind the rows of the database."""

from __future__ import annotations

from datetime import UTC, datetime

from app.container import Container
from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.records import Facts
from app.infra.deadlines import NEVER
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.support.app.fingerprints import StoredFingerprints, made_fingerprint


def test_an_answer_is_that_of_the_rows(services: Container, stored: StoredFingerprints) -> None:
    """Puts, replacements and removals are in the next answer, of this tenant alone."""
    index, base = services[FindingIndex], made_fingerprint(1)
    other = StoredFingerprints(services)
    other.put("foreign", base)

    def found(asked: Fingerprint) -> tuple[set[int], int]:
        with stored.database.reading() as session:
            answer = index.find(session, stored.tenant.id, asked, deadline=NEVER)
        return {each.id for each in answer.candidates}, answer.compared

    assert (set(), 0) == found(base)
    first = stored.put("a", base).record.id
    second = stored.put("b", base, stated_by="hub").record.id
    third = stored.put("c", made_fingerprint(2)).record.id
    assert ({first, second}, 3) == found(base)
    assert ({third}, 3) == found(made_fingerprint(2))
    stored.put("a", made_fingerprint(2))
    stored.delete("b")
    assert (set(), 2) == found(base)
    assert ({first, third}, 2) == found(made_fingerprint(2))


def test_a_client_cannot_come_before_what_the_service_read(stored: StoredFingerprints) -> None:
    """A key lists the fingerprints of hubs first, by their dates, and then those of clients."""
    base = made_fingerprint(1)
    dates = [datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 1990, 2024)]
    makers = ("hub", "client", "hub")
    ids = [
        stored.put(str(at), base, stated_by=maker, facts=Facts(published_at=date)).record.id
        for at, (maker, date) in enumerate(zip(makers, dates, strict=True))
    ]
    with stored.database.reading() as session:
        [page] = TenantFeed(session, stored.tenant.id).changed_since(0)
    ranked = sorted(page, key=lambda each: each.rank)
    assert [ids[0], ids[2], ids[1]] == [each.id for each in ranked]


def test_what_tells_kin_is_read_of_rows(stored: StoredFingerprints) -> None:
    """Finding keys, lines and declared bases; and the ids of names."""
    base = made_fingerprint(1)
    record = stored.put("child", base, facts=Facts(base_models=("base", "other"))).record
    with stored.database.reading() as session:
        feed = TenantFeed(session, stored.tenant.id)
        found = feed.examine([record.id, 10**9])
        assert [record.id] == feed.named(["child", "base"])
    assert {record.id} == found.keys()
    examined = found[record.id]
    assert (base.keys.tolist(), 2) == (examined.keys.tolist(), examined.scale)
    assert ({1000: 320}, ("base", "other")) == (examined.lines, examined.base_models)
