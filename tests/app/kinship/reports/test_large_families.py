"""Reports of families in which a model has more kin than a report reads of it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

from app.fingerprints.service import FingerprintService
from app.infra.db.tables.anatomies import KinRow
from app.kinship.reports.repositories.evidence import NEAREST
from tests.app.kinship.reports.conftest import Hub
from tests.support.app.fingerprints import made_fingerprint

BASE = "org/base"
CHILDREN = [f"org/child-{number:02}" for number in range(NEAREST + 4)]


def plant_kin(hub: Hub) -> None:
    """Children have most of each other's lines, and fewer of their base."""
    with hub.app.database.writing() as session:
        service = hub.app.services[FingerprintService]
        found = service.find_many(session, hub.tenant, [BASE, *CHILDREN])
        session.add_all(
            KinRow(
                fingerprint_id=found[one].id,
                other_id=found[other].id,
                tenant_id=hub.tenant.id,
                verdict="derived",
                relation="changed",
                sentence=f"shares weights with {other}",
                share=0.3 if BASE in (one, other) else 0.9,
                share_of_other=0.3,
                share_of_parameters=0.3,
                keys=100,
                expected=0.1,
                log10_p=-200.0,
                made_at=datetime(2026, 2, 1, tzinfo=UTC),
            )
            for one, other in permutations(found, 2)
        )


def test_a_base_explains_its_children_however_many_are_nearer(empty: Hub) -> None:
    """It is not among the nearest of any, and is confirmed, and none is a base of another one."""
    empty.put(BASE, made_fingerprint(1), 0)
    for days, name in enumerate(CHILDREN, 1):
        empty.put(name, made_fingerprint(1 + days), days, base_models=(BASE,))
    empty.app.worker.run_all()
    plant_kin(empty)
    report = empty.make()
    assert [] == report["undeclared"]
    assert (len(CHILDREN), 0) == (report["size"]["declared"], report["size"]["contradicted"])


def test_a_base_explains_what_is_new_with_what_was_there(empty: Hub) -> None:
    """A report about one newcomer asks what its kin are to its base, and they are not in it."""
    empty.put(BASE, made_fingerprint(1), 0)
    for days, name in enumerate(CHILDREN[:-1], 1):
        empty.put(name, made_fingerprint(1 + days), days, base_models=(BASE,))
    empty.make()
    empty.put(CHILDREN[-1], made_fingerprint(90), 90, base_models=(BASE,))
    empty.app.worker.run_all()
    plant_kin(empty)
    report = empty.make()
    assert [CHILDREN[-1]] == [each["model"] for each in report["models"]]
    assert [] == report["undeclared"]
