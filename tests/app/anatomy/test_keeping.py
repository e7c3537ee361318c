"""Stored anatomies: kin of both sides, late bases, changes, removals, lost jobs, events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete

from app.anatomy.records import Kin, ModelAnatomy, Summary
from app.anatomy.repositories import anatomies
from app.anatomy.service import AnatomyService
from app.fingerprints.records import Facts, FingerprintRecord
from app.infra.db.tables.anatomies import AnatomyRow
from app.jobs.service import JobService
from modelkin import Fingerprint
from tests.app.anatomy.families import Family, derived, stranger, tensors_of
from tests.sdk.core.fingerprints.planted import fingerprint
from tests.support.fixtures import on_one_database
from tests.support.servers.webhook_receiver import receiving


def kin(family: Family, record: FingerprintRecord) -> list[Kin]:
    with family.app.database.reading() as session:
        return anatomies.kin_of(session, record.tenant_id, record.id, limit=100)


def summaries(family: Family, record: FingerprintRecord) -> dict[int, Summary]:
    with family.app.database.reading() as session:
        return anatomies.find_summaries(session, record.tenant_id, [record.id])


def summary(family: Family, record: FingerprintRecord) -> Summary:
    return summaries(family, record)[record.id]


def merged() -> Fingerprint:
    """Half of the layers of one model, and half of another's."""
    first, second = tensors_of(0), tensors_of(1)
    return fingerprint({k: (first if k[7:8] in "01" else second)[k] for k in first}, None)


def with_table(seed: int) -> Fingerprint:
    """A model of its own but for word vectors, which it has of the first one."""
    return fingerprint(tensors_of(seed) | {"embed": tensors_of(0)["embed"]}, None)


def test_a_put_stores_what_two_models_are_to_each_other(family: Family) -> None:
    """One row for each order, with verdict, sentence, shares and P; none of a stranger."""
    base = family.put("base", stranger(0), stated_by="hub")
    family.put("stranger", stranger(1))
    child = family.put("child", derived("more tokens"))
    family.work()
    [down], [up] = kin(family, child), kin(family, base)
    assert [(child.id, base.id), (base.id, child.id)] == [
        (each.fingerprint_id, each.other_id) for each in (down, up)
    ]
    assert ("derived", "vocabulary_resized") == (down.verdict, down.relation)
    assert "vocabulary grown by 65 rows, all else of base" == down.sentence
    assert (down.share, down.share_of_other) == (up.share_of_other, up.share)
    assert down.log10_p == up.log10_p < -1000
    found = summary(family, child)
    assert ("derived", (base.id,), False) == (found.verdict, found.parents, found.is_due)


def test_a_family_has_the_members_that_its_tree_has(family: Family) -> None:
    """A base that is declared, or published before; the order of storing makes none."""
    silent = family.put("silent", derived("more tokens"))
    base = family.put("base", stranger(0))
    named = family.put("named", derived("fused"), facts=Facts(base_models=("base",)))
    models = silent, base, named
    family.work()
    assert [None, None, base.id] == [summary(family, each).base for each in models]
    first, later = (Facts(published_at=datetime(2026, month, 1, tzinfo=UTC)) for month in (1, 2))
    family.put("base", stranger(0), facts=first)
    family.put("silent", derived("more tokens"), facts=later)
    family.work()
    assert [base.id, None, base.id] == [summary(family, each).base for each in models]


def test_a_root_whose_anatomy_is_not_made_is_listed(family: Family) -> None:
    """A child's anatomy may be stored first; the page says that the root's is being looked for."""
    base = family.put("base", stranger(0))
    family.put("child", derived("fused"), facts=Facts(base_models=("base",)))
    family.work()
    with family.app.database.writing() as session:
        session.execute(delete(AnatomyRow).where(AnatomyRow.fingerprint_id == base.id))
    page = family.app.http.get("/anatomies")
    assert 200 == page.status_code
    assert "being looked for" in page.text


@pytest.mark.slow
def test_a_base_that_comes_after_its_children_gets_its_edges(family: Family) -> None:
    """Its children's anatomies are made again, and say what they come from."""
    children = [family.put(how, derived(how)) for how in ("fused", "more tokens")]
    family.put("other", stranger(1))
    family.work()
    base = family.put("base", stranger(0), stated_by="hub")
    family.work()
    assert {each.id for each in children} == {each.other_id for each in kin(family, base)}
    assert [(base.id,)] * 2 == [summary(family, each).parents[:1] for each in children]


@on_one_database
@pytest.mark.slow
def test_a_second_parent_that_comes_late_is_named(family: Family) -> None:
    """It adds lines that the first parent has not, and is no kin of it."""
    child = family.put("merge", merged())
    first = family.put("first", stranger(0))
    family.work()
    assert ("derived", (first.id,)) == (
        summary(family, child).verdict,
        summary(family, child).parents,
    )
    second = family.put("second", stranger(1))
    family.work()
    found = summary(family, child)
    assert ("assembled", {first.id, second.id}) == (found.verdict, {*found.parents})


@on_one_database
def test_a_table_that_a_third_model_has_parts_two_that_were_kin(family: Family) -> None:
    """It is common from then on: nobody is stored as kin by it, nor shown; true kin stay."""
    first = family.put("first", stranger(0))
    second = family.put("second", with_table(2))
    family.work()
    assert [second.id] == [each.other_id for each in kin(family, first)]
    third = family.put("third", with_table(3))
    family.work()
    for each in (first, second, third):
        found = summary(family, each)
        assert ([], "unknown", ()) == (kin(family, each), found.verdict, found.parents)
        assert found.common > 0
        page = family.app.http.get("/relatives", params={"of": each.name}).text
        assert "No stored model has lines in common" in page
    copy = family.put("copy", with_table(2))
    family.work()
    assert [[copy.id], [second.id]] == [
        [each.other_id for each in kin(family, of)] for of in (second, copy)
    ]


@on_one_database
@pytest.mark.slow
def test_a_fingerprint_that_changes_has_other_kin(family: Family) -> None:
    """What was known of the one before is forgotten on both sides."""
    base = family.put("base", stranger(0))
    child = family.put("child", derived("fused"))
    family.work()
    family.put("child", stranger(1))
    family.work()
    assert ([], []) == (kin(family, child), kin(family, base))
    assert ("unknown", "unknown") == (
        summary(family, child).verdict,
        summary(family, base).verdict,
    )


@on_one_database
@pytest.mark.slow
def test_a_parent_that_the_service_reads_now_is_named_first(family: Family) -> None:
    """The same keys, stated by a client before, stand where those of a hub's file do."""
    claimed, read = family.put("a", stranger(0)), family.put("b", stranger(0), stated_by="hub")
    child = family.put("child", derived("fused"))
    family.work()
    assert (read.id, claimed.id) == summary(family, child).parents
    family.put("a", stranger(0), stated_by="hub")
    family.work()
    assert (claimed.id, read.id) == summary(family, child).parents


@on_one_database
def test_who_states_a_parent_may_change_while_an_anatomy_is_made(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once more, since it is no kin yet that is asked again."""
    claimed, read = family.put("a", stranger(0)), family.put("b", stranger(0), stated_by="hub")
    child, make = family.put("child", derived("fused")), AnatomyService.anatomy

    def read_meanwhile(*arguments: Any, **named: Any) -> ModelAnatomy:
        found = make(*arguments, **named)
        monkeypatch.undo()
        family.put("a", stranger(0), stated_by="hub")
        return found

    monkeypatch.setattr(AnatomyService, "anatomy", read_meanwhile)
    due = anatomies.Due(child.id, True, None, 0)
    family.keeper.make(family.app.tenant, due)
    assert {} == summaries(family, child)
    family.keeper.make(family.app.tenant, due)
    assert (claimed.id, read.id) == summary(family, child).parents


@on_one_database
@pytest.mark.slow
def test_what_is_removed_is_in_no_anatomy(family: Family) -> None:
    """Its rows go with it, and its kin are asked again."""
    family.put("base", stranger(0))
    child = family.put("child", derived("fused"))
    family.work()
    family.delete("base")
    family.work()
    assert ([], "unknown") == (kin(family, child), summary(family, child).verdict)


@on_one_database
@pytest.mark.slow
def test_a_job_that_is_carried_out_twice_stores_the_same(family: Family) -> None:
    """As after a worker that died before its job was recorded as done."""
    base = family.put("base", stranger(0))
    child = family.put("child", derived("fused"))
    family.work()
    before = kin(family, child), kin(family, base)
    with family.app.database.writing() as session:
        ids = [base.id, child.id]
        now = datetime.now(UTC)
        anatomies.mark_due(session, base.tenant_id, ids, now, is_changed=True)
    for due in (base.id, child.id):
        family.keeper.make(family.app.tenant, anatomies.Due(due, True, None, 0))
    assert undated(*before) == undated(kin(family, child), kin(family, base))


def undated(*kin: list[Kin]) -> list[dict[str, Any]]:
    names = [name for name in Kin.__slots__ if name != "made_at"]
    return [{name: getattr(each, name) for name in names} for some in kin for each in some]


@on_one_database
def test_puts_of_a_moment_enqueue_one_job(family: Family) -> None:
    """It divides what is due among jobs that work side by side."""
    puts = [family.put(name, stranger(seed)) for seed, name in enumerate("abc")]
    jobs = family.app.services[JobService]
    with family.app.database.reading() as session:
        [divides] = jobs.list(session, family.app.tenant, limit=10).items
    family.work()
    with family.app.database.reading() as session:
        *shards, first = jobs.list(session, family.app.tenant, limit=10).items
    assert (divides.id, {"shards": len(puts)}) == (first.id, first.result)
    assert [1] * len(puts) == [each.result["made"] for each in shards if each.result]
    assert all(summary(family, each).made_at for each in puts)


@on_one_database
def test_a_put_and_a_large_import_wait_for_each_other_in_turn(family: Family) -> None:
    """The last put is the next, then the first of the import, which later puts do not hold up."""
    family.put_all({f"import/{number}": stranger(0) for number in range(9)})
    first, second, *_, last = sorted(due(family, 9))
    puts = [family.put(name, stranger(1)).id for name in ("put", "later")]
    assert [puts[1], first, puts[0], second, last] == due(family, 5)
    assert 11 == len({*due(family, 11)})


def due(family: Family, limit: int) -> list[int]:
    """The next fingerprints whose anatomies are made, by their ids."""
    with family.app.database.reading() as session:
        now, tenant = datetime.now(UTC), family.app.tenant.id
        found = anatomies.due_anatomies(session, tenant, 0, 1, now, limit=limit)
    return [each.fingerprint_id for each in found]


@on_one_database
def test_an_anatomy_whose_job_was_lost_is_made(family: Family) -> None:
    """The workers look for what is due, and enqueue it."""
    base = family.put("base", stranger(0))
    jobs = family.app.services[JobService]
    with family.app.database.writing() as session:
        for job in jobs.list(session, family.app.tenant, limit=10).items:
            jobs.cancel(session, family.app.tenant, job.id)
        ids, long_ago = [base.id], datetime(2020, 1, 1, tzinfo=UTC)
        anatomies.mark_due(session, base.tenant_id, ids, long_ago, is_changed=True)
    family.work()
    assert {} == summaries(family, base)
    family.app.worker.tick()
    assert "unknown" == summary(family, base).verdict


@on_one_database
@pytest.mark.slow
def test_an_event_says_of_whom_a_model_is_a_copy(family: Family) -> None:
    """To subscriptions of all spaces, once for what is new, and not for further relatives."""
    family.put("base", stranger(0), stated_by="hub")
    family.work()
    with receiving() as receiver:
        family.app.webhooks.subscribe(f"{receiver.url}/ok", "anatomy.changed")
        family.put("copy", derived("renamed"))
        family.put("child", derived("noise .2"))
        family.work()
        events = [json.loads(each.body)["data"] for each in receiver.at("/ok")]
        told = {each["model"]: each for each in events}
    copy = told["copy"]
    assert ("copy", ["base"], "unknown") == (
        copy["verdict"],
        copy["copies"],
        copy["previous_verdict"] or "unknown",
    )
    assert {"model": "base", "verdict": "copy", "share_of_lines": 1.0, "stated_by": "hub"} == copy[
        "parents"
    ][0]
    assert "/v1/fingerprints/copy/anatomy" == copy["url"]
    assert "derived" == told["child"]["verdict"]
