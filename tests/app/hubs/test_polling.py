"""Polls: they find what events did not announce, and sync only models that changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from app.hubs.clients.protocol import HubModel
from app.hubs.filters import Filters
from app.hubs.polling import TICK, HubPoller, compare
from app.hubs.records import SeenModel, SourceRecord
from app.hubs.repositories import source_models, sources
from app.hubs.service import DEFAULT_POLL_S, OpenSource, SourceIn, SourceService
from app.hubs.sync_requests import POLL
from app.infra.db.tables.jobs import JobRow
from app.infra.storage.encryption import Secrets
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin.errors import InvalidParameter
from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import PostgresBackend
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub, answering, loopback_hub
from tests.support.servers.postgres import Postgres


def opened(kind: str = "huggingface", **filters: list[str]) -> OpenSource:
    """A source with defaults in all other fields."""
    tenant, url = Tenant(1, "t"), "http://hub"
    followed = Filters.of(filters)
    return OpenSource("s", tenant, kind, "kin", url, None, None, None, followed, "keep", _NOW)


_NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = st.sampled_from(["a", "b", "c", "d"])
REVISIONS = st.sampled_from(["1", "2"])


@given(
    st.dictionaries(NAMES, REVISIONS),
    st.dictionaries(NAMES, st.tuples(st.none() | REVISIONS, st.booleans(), st.booleans())),
)
def test_a_listing_is_held_against_what_was_seen(
    listing: dict[str, str], seen: dict[str, tuple[str | None, bool, bool]]
) -> None:
    """Models that are new, changed or newly gone are synced, and no others."""
    known = {name: SeenModel(name, *state) for name, state in seen.items()}
    found = compare(opened(), (HubModel(*line) for line in listing.items()), known)
    assert {n: r for n, r in listing.items() if n not in seen} == found.new
    assert {n: r for n, r in listing.items() if n in seen and seen[n][0] != r} == found.changed
    assert {n for n, (r, there, _) in seen.items() if r and there and n not in listing} == set(
        found.gone
    )
    missing = {n for n, (r, there, here) in seen.items() if r and here and not there} - set(listing)
    assert missing == set(found.unlisted)
    assert {n for n, (_, there, _) in seen.items() if not there and n in listing} == set(found.back)
    assert len(listing) == found.models


def test_what_is_not_followed_is_not_looked_at() -> None:
    """Filters apply to every line; a name that no model can have is counted."""
    lines = [
        HubModel("org/a", "1", ("x",)),
        HubModel("org/b", "1"),
        HubModel("org/(c)", "1", ("x",)),
    ]
    found = compare(opened(tags=["x"]), iter(lines), {})
    assert ({"org/a": "1"}, 1) == (found.new, found.unnamable)


def test_what_is_stored_is_followed_whatever_it_lost() -> None:
    """A line that filters speak against counts if its model is here, and else does not."""
    lines = [HubModel("org/a", "2"), HubModel("org/b", "2")]
    known = {n: SeenModel(n, "1", True, placed=n == "org/a") for n in ("org/a", "org/b")}
    found = compare(opened(tags=["x"]), iter(lines), known)
    assert ({"org/a": "2"}, ["org/b"]) == (found.changed, found.gone)


def test_a_model_without_a_version_is_nothing_yet() -> None:
    """In a registry. Where a hub lists no revision, the model must be synced to learn it."""
    registered, listed = HubModel("a", None, unreleased=True), HubModel("a", None)
    assert {} == compare(opened("mlflow"), iter([registered]), {}).new
    assert {"a": None} == compare(opened(), iter([listed]), {}).new
    known = {"a": SeenModel("a", "1", True, False)}
    assert {"a": None} == compare(opened("mlflow"), iter([registered]), known).changed


def test_other_tags_of_the_same_version_are_a_change() -> None:
    """Where tags may change alone; tags that were never seen are noted, and nothing is synced."""
    line = HubModel("a", "1", ("stage:new",), mutable_tags=True)
    for before, synced, noted in (
        (None, {}, {"a": line.tags_digest}),
        ("other", {"a": "1"}, {"a": line.tags_digest}),
        (line.tags_digest, {}, {}),
    ):
        known = {"a": SeenModel("a", "1", True, True, before)}
        found = compare(opened("mlflow"), iter([line]), known)
        assert (synced, noted) == (found.changed, found.tags)
    fixed = replace(line, mutable_tags=False)
    known = {"a": SeenModel("a", "1", True, True, "other")}
    assert {} == compare(opened(), iter([fixed]), known).changed


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub without a model."""
    with loopback_hub() as made:
        yield made


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service that carries out jobs only when the test asks."""
    with open_hub_app(tmp_path) as made:
        yield made


def push(hub: Hub, name: str, seed: int) -> str:
    return hub.push(name, {"model.safetensors": safetensors(random_tensors(seed))})


def waiting(app: AppHarness, kind: str) -> list[JobRecord]:
    """The queued jobs of a kind, oldest first."""
    with app.database.reading() as session:
        tenant = app.tenant
        page = app.services[JobService].list(session, tenant, limit=100, state="queued", kind=kind)
    return list(page.items)[::-1]


def polled(app: AppHarness, source: SourceRecord) -> tuple[dict[str, Any], list[str]]:
    """The result of a poll, and the models that it found, after their syncs."""
    if not waiting(app, POLL):
        with app.database.writing() as session:
            app.services[SourceService].poll(session, app.tenant, source.id)
    (poll,) = waiting(app, POLL)
    done = app.worker.execute(poll)
    assert "succeeded" == done.state, done.error
    syncs = waiting(app, "ingest")
    for sync in syncs:
        app.worker.execute(sync)
    assert done.result is not None
    return done.result, [sync.parameters["model"] for sync in syncs]


@pytest.mark.slow
@pytest.mark.parametrize("on_delete", ["keep", "remove"])
def test_what_got_lost_is_found(hub: Hub, app: AppHarness, on_delete: str) -> None:
    """A new source brings what is there; later polls what is new, was pushed, moved or deleted."""
    for number, name in enumerate("abcd"):
        push(hub, f"org/{name}", number)
    push(hub, "other/x", 9)
    given = {"filters": {"owners": ["org"]}, "on_delete": on_delete}
    source = app.hubs.follow(hub.url, poll_seconds=60, **given)
    result, synced = polled(app, source)
    names = ["org/a", "org/b", "org/c", "org/d"]
    assert (4, 4, names) == (result["models"], result["new"], sorted(synced))
    assert all(app.hubs.model(name) for name in synced)
    assert ({"models": 4, "new": 0, "changed": 0, "gone": 0, "unnamable": 0}, []) == polled(
        app, source
    )
    push(hub, "org/a", 10)
    push(hub, "org/new", 11)
    del hub.repos["org/b"]
    hub.move("org/c", "org/moved")
    before = app.hubs.model("org/a")
    _, synced = polled(app, source)
    assert {"org/a", "org/b", "org/c", "org/moved", "org/new"} == set(synced)
    after = app.hubs.model("org/a")
    assert before is not None
    assert after is not None
    assert before.digest != after.digest
    assert (on_delete == "keep") is (app.hubs.model("org/b") is not None)
    assert app.hubs.model("org/new")
    assert app.hubs.model("org/moved")
    assert [] == polled(app, source)[1]
    shown = app.hubs.source(source.id)
    assert shown.last_poll is not None
    assert (4, 0) == (shown.last_poll["models"], shown.last_poll["gone"])


def test_what_cannot_be_read_is_tried_once(hub: Hub, app: AppHarness) -> None:
    """A damaged file fails one job, not one with every poll, until it changes."""
    hub.push("org/a", {"model.safetensors": b"damaged"})
    source = app.hubs.follow(hub.url)
    assert ["org/a"] == polled(app, source)[1]
    assert [] == polled(app, source)[1]
    error = app.hubs.source(source.id).last_error
    assert error is not None
    assert "org/a" in error["detail"]
    push(hub, "org/a", 1)
    assert ["org/a"] == polled(app, source)[1]
    assert app.hubs.model("org/a")


def test_a_source_that_changes_looks_again(hub: Hub, app: AppHarness) -> None:
    """After a change of its source, the next poll syncs every model that failed or may differ."""
    push(hub, "org/base", 1)
    push(hub, "org/a", 2)
    source = app.hubs.follow(hub.url, importance="delta")
    assert {"org/a", "org/base"} == set(polled(app, source)[1])
    assert app.hubs.model("org/a") is None
    assert [] == polled(app, source)[1]
    with app.database.writing() as session:
        tenant, changes = app.tenant, {"base_model": "org/base", "poll_seconds": 60}
        app.services[SourceService].update(session, tenant, source.id, changes)
    assert {"org/a", "org/base"} == set(polled(app, source)[1])
    [sister] = app.hubs.spaces()
    model = app.hubs.model("org/a", sister)
    assert model is not None
    assert "delta" == model.attributes["hub"]["importance"]
    assert [] == polled(app, source)[1]


@pytest.mark.slow
def test_a_model_that_lost_its_tag_does_not_grow_old(hub: Hub, app: AppHarness) -> None:
    """If not listed, it is requested by name: a push syncs it, a deletion removes it."""
    push(hub, "org/a", 1)
    hub.repos["org/a"].tags = ["wanted"]
    source = app.hubs.follow(hub.url, filters={"tags": ["wanted"]}, on_delete="remove")
    assert ["org/a"] == polled(app, source)[1]
    hub.repos["org/a"].tags = []
    assert ["org/a"] == polled(app, source)[1]
    assert [] == polled(app, source)[1]
    sha = push(hub, "org/a", 2)
    assert ["org/a"] == polled(app, source)[1]
    model = app.hubs.model("org/a")
    assert model is not None
    assert sha == model.attributes["hub"]["revision"]
    assert [] == polled(app, source)[1]
    hub.on_hub = lambda asked: "/org/a" in asked.path and answering(404)(asked)
    assert [] == polled(app, source)[1]
    hub.on_hub = lambda _: False
    del hub.repos["org/a"]
    assert ["org/a"] == polled(app, source)[1]
    assert [] == polled(app, source)[1]
    assert app.hubs.model("org/a") is None


@pytest.mark.slow
def test_what_changes_under_a_look_is_looked_at_again(hub: Hub, app: AppHarness) -> None:
    """If its source changes during the download of a model, that model is synced again.

    This holds for its first sync and for later ones.
    """
    push(hub, "org/a", 1)
    source = app.hubs.follow(hub.url)
    polled(app, source)
    for number, first in enumerate(("org/b", "org/a"), 1):
        push(hub, first, number + 1)
        space, tenant = f"kin-{number}", app.tenant

        def patch(_: Any, space: str = space, tenant: Tenant = tenant) -> bool:
            hub.on_cdn = lambda _: False
            with app.database.writing() as session:
                app.services[SourceService].update(session, tenant, source.id, {"space": space})
            return False

        hub.on_cdn = patch
        assert "succeeded" == app.hubs.sync_model(source, first).state
        assert first in polled(app, source)[1]
        assert app.hubs.model(first, space) is not None
        assert [] == polled(app, source)[1]


def test_a_source_that_is_deleted_under_its_poll(hub: Hub, app: AppHarness) -> None:
    """The poll ends with it, and has found nothing."""
    source = app.hubs.follow(hub.url)
    with app.database.writing() as session:
        tenant = app.tenant
        asked = app.services[SourceService].poll(session, tenant, source.id)

    def delete(_: Any) -> bool:
        hub.on_hub = lambda _: False
        with app.database.writing() as session:
            app.services[SourceService].delete(session, tenant, source.id)
        return False

    hub.on_hub = delete
    done = app.worker.execute(asked)
    assert ("cancelled", None) == (done.state, done.result), done.error


def test_a_poll_and_a_change_take_locks_in_one_order(
    hub: Hub, tmp_path: Path, postgres: Postgres
) -> None:
    """Who changes a source while its poll ends waits for no row that the poll holds, and the other
    way round: neither is ended by the database.
    """
    with open_app(tmp_path, PostgresBackend(postgres)) as app:
        source = app.hubs.create(url=hub.url)["id"]
        database, services = app.database, app.services
        with database.writing() as session:
            sync = source_models.start_sync(session, source, "org/gone", "j") or 0
            found = sources.find_source(session, source)
            assert found is not None
            seen: dict[str, Any] = {"opened": found.updated_at, "revision": "s"}
            source_models.finish_sync(session, source, "org/gone", sync, **seen)
            job = services[SourceService].poll(session, services[Tenant], source)
        finish: Any = services[JobService].handler(POLL)(job, lambda *_: None)

        def end() -> dict[str, int]:
            with database.writing() as session:
                return dict(finish(session))

        with ThreadPoolExecutor(1) as pool:
            with database.writing() as session:
                sources.lock_source(session, services[Tenant], source)
                ending = pool.submit(end)
                with pytest.raises(TimeoutError):
                    ending.result(0.5)
                source_models.request_resync(session, source)
            assert 1 == ending.result(10)["gone"]
        with database.reading() as reader:
            (model,) = source_models.seen_models(reader, source)
        assert ("", False) == (model.revision, model.listed)


def test_a_poll_that_takes_long_is_not_doubled(hub: Hub, app: AppHarness) -> None:
    """While one runs no other becomes due; who asks for one gets one that begins after that."""
    source = app.hubs.follow(hub.url, poll_seconds=60)
    (running,) = waiting(app, POLL)
    past = {"next_poll_at": datetime.now(UTC) - timedelta(seconds=1)}
    with app.database.writing() as session:
        session.execute(update(JobRow).where(JobRow.id == running.id).values(state="running"))
        sources.update_source(session, source.id, past)
    assert 1 == app.services[HubPoller].due()
    assert [] == waiting(app, POLL)
    with app.database.writing() as session:
        asked = app.services[SourceService].poll(session, app.tenant, source.id)
    assert [asked.id] == [job.id for job in waiting(app, POLL)]


def test_a_hub_that_is_away_is_polled_again(hub: Hub, app: AppHarness) -> None:
    """The job is tried again later, the source says why, and nothing is taken as gone."""
    push(hub, "org/a", 1)
    source = app.hubs.follow(hub.url)
    polled(app, source)

    def down(handler: Any) -> bool:
        handler.say(503, b"{}")
        return True

    hub.on_hub = down
    with app.database.writing() as session:
        job = app.services[SourceService].poll(session, app.tenant, source.id)
    job = app.worker.execute(job)
    assert ("queued", 0) == (job.state, job.attempts)
    error = app.hubs.source(source.id).last_error
    assert error is not None
    assert "hub_unavailable" == error["code"]
    assert [] == waiting(app, "ingest")
    assert app.hubs.model("org/a")


def test_sources_become_due(hub: Hub, app: AppHarness) -> None:
    """A source is polled when it is made, and then once in every period; no longer when that is
    cleared, or when it has no url any more.
    """
    source = app.hubs.follow(hub.url, poll_seconds=60)
    periodic = {known.kind: known for known in app.services[JobService].periodic}[TICK]
    assert [source.id] == [job.parameters["source"] for job in waiting(app, POLL)]
    polled(app, source)
    with app.database.reading() as session:
        assert not periodic.wanted(session)
    assert 0 == app.services[HubPoller].due()
    assert source.next_poll_at is not None
    assert 55 < (source.next_poll_at - datetime.now(UTC)).total_seconds() <= 60
    past = {"next_poll_at": datetime.now(UTC) - timedelta(seconds=1)}
    with app.database.writing() as session:
        sources.update_source(session, source.id, past)
    with app.database.reading() as session:
        assert periodic.wanted(session)
    assert (1, 0) == (app.services[HubPoller].due(), app.services[HubPoller].due())
    polled(app, source)
    for changes, is_due in (
        ({"poll_seconds": None}, False),
        ({"poll_seconds": 60}, True),
        ({"url": None}, False),
    ):
        with app.database.writing() as session:
            service, tenant = app.services[SourceService], app.tenant
            changed = service.update(session, tenant, source.id, changes)
        assert is_due is (changed.next_poll_at is not None)


def test_the_public_hub_is_polled_by_owner(app: AppHarness) -> None:
    """It has too many models to list all: a source of it is polled only if it names owners."""
    service = SourceService(app.services[Secrets], app.hubs.sync, app.services[QuotaService])
    given = SourceIn("huggingface", "kin", "s", "https://huggingface.co")
    owned = replace(given, filters={"repos": ["org/*"]}, polled=True)
    tenant = app.tenant
    with app.database.writing() as session:
        assert (None, None) == (
            (made := service.create(session, tenant, given)).poll_seconds,
            made.next_poll_at,
        )
        with pytest.raises(InvalidParameter, match="owners"):
            service.create(session, tenant, replace(given, polled=True))
        assert DEFAULT_POLL_S == service.create(session, tenant, owned).poll_seconds
    assert 1 == len(waiting(app, POLL))


def test_a_base_that_appears_brings_the_deltas(hub: Hub, app: AppHarness) -> None:
    """When the base of a stored model is stored, the poll after that syncs the model once more."""
    push(hub, "org/a", 2)
    hub.repos["org/a"].card = {"base_model": "org/base"}
    push(hub, "org/other", 3)
    source = app.hubs.follow(hub.url)
    assert {"org/a", "org/other"} == set(polled(app, source)[1])
    assert ["kin"] == app.hubs.spaces()
    push(hub, "org/base", 1)
    assert ["org/base"] == polled(app, source)[1]
    assert ["org/a"] == polled(app, source)[1]
    [_, sister] = app.hubs.spaces()
    assert app.hubs.model("org/a", sister)
    assert [] == polled(app, source)[1]


def test_syncs_and_polls_are_jobs_of_the_space(hub: Hub, app: AppHarness) -> None:
    """A sync that fails is listed under the space of its source, before that exists, and so is the
    poll that enqueued it.
    """
    hub.push("org/damaged", {"model.safetensors": b"damaged"})
    app.hubs.create(url=hub.url, poll_seconds=3600, filters={"owners": ["org"]})
    app.worker.run_all()
    asked = {"space": "kin", "state": "failed"}
    [failed] = app.http.get("/v1/jobs", params=asked).json()["items"]
    assert ("ingest", "kin", "org/damaged") == (
        failed["kind"],
        failed["space"],
        failed["parameters"]["model"],
    )
    done = app.http.get("/v1/jobs", params={**asked, "state": "succeeded"}).json()["items"]
    assert ["poll"] == [job["kind"] for job in done]
    assert [] == app.hubs.spaces()
