"""What the inbox counts: each model once, the newest first, and no other tenant's."""

from __future__ import annotations

from datetime import timedelta

from app.kinship.inbox.service import InboxService
from app.tenancy.auth.records import Tenant
from tests.app.kinship.inbox.conftest import NOW, Planter
from tests.support.app.harness import AppHarness


def test_a_model_is_new_once_in_whatever_spaces(app: AppHarness, plant: Planter) -> None:
    """Two spaces and a fingerprint of one name are one; what is older is not new."""
    for space in ("one", "two"):
        plant.model(space, "org/both", at=NOW - timedelta(hours=1))
    plant.fingerprint("org/both", at=NOW)
    plant.fingerprint("org/alone", at=NOW - timedelta(hours=2))
    plant.model("one", "org/old", at=NOW - timedelta(hours=25))
    with app.database.reading() as session:
        found = app.services[InboxService].new(session, app.tenant, NOW)
    assert (2, False) == (found.count, found.is_more)
    assert ["org/both", "org/alone"] == [each.name for each in found.newest]
    assert [True, False] == [each.space in {"one", "two"} for each in found.newest]


def test_copies_are_found_by_lines_and_by_weights(app: AppHarness, plant: Planter) -> None:
    """Each counts once; one name in two spaces is no copy, nor are weights of the past."""
    plant.fingerprint("org/by-lines", verdict="copy")
    for space in ("one", "two"):
        plant.weights(plant.model(space, "org/moved"), b"moved")
    for name in ("org/by-lines", "org/by-weights"):
        plant.weights(plant.model("one", name), b"same")
    for name, revision in (("org/now", 2), ("org/past", 1)):
        plant.weights(plant.model("one", name, revision=2), b"other", revision)
    with app.database.reading() as session:
        found = app.services[InboxService].copies(session, app.tenant)
    assert 2 == found.count
    assert ["org/by-lines", "org/by-weights"] == [each.name for each in found.newest]
    assert ("org/by-lines",) == found.newest[1].others


def test_merges_are_those_that_lines_tell(app: AppHarness, plant: Planter) -> None:
    """Averages or assemblies, the last ones first, with the sentence on each."""
    for number, verdict in enumerate(("average", "assembled", "derived", "average", "average")):
        plant.fingerprint(f"org/m{number}", verdict=verdict)
    with app.database.reading() as session:
        found = app.services[InboxService].merges(session, app.tenant, "average")
        others = app.services[InboxService].merges(session, app.tenant, "assembled")
    assert (3, 1) == (found.count, others.count)
    assert ["org/m4", "org/m3", "org/m0"] == [each.name for each in found.newest]
    assert "what org/m4 is" == found.newest[0].sentence


def test_another_tenant_sees_nothing_of_it(app: AppHarness, plant: Planter) -> None:
    """All sections are empty, whatever others have."""
    plant.weights(plant.model("one", "org/a"), b"same")
    plant.weights(plant.model("one", "org/b"), b"same")
    plant.fingerprint("org/c", verdict="average")
    inbox, other = app.services[InboxService], Tenant(app.tenant.id + 1, "other")
    with app.database.reading() as session:
        assert 0 == inbox.new(session, other, NOW).count
        assert 0 == inbox.merges(session, other, "average").count
        for part in (
            *(inbox.copies, inbox.failed_jobs),
            *(inbox.failed_sources, inbox.failed_deliveries),
        ):
            assert (0, []) == (part(session, other).count, list(part(session, other).newest))
