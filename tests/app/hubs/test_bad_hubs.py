"""Tokens, gates and sources that allow no sync: each has its error, and nothing is stored."""

from __future__ import annotations

import pytest

from app.hubs.repositories import source_models
from app.hubs.service import OpenSource, SourceService
from app.hubs.sync_requests import POLL
from app.infra.db.database import Reader
from app.infra.errors import Unavailable
from app.jobs.service import JobService
from app.tenancy.auth.records import Tenant
from tests.app.hubs.conftest import GOOD, refused
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import TOKEN, Hub, answering, loopback_hub


def test_an_unknown_repository(hub: Hub, app: AppHarness) -> None:
    """The hub answers 401 without a token and 404 with one; neither is tried again."""
    for token in (None, TOKEN):
        state, code, detail = refused(app, hub.url, token=token)
        assert ("failed", "hub_not_found") == (state, code)
        assert "/api/models/org/a" in detail


def test_a_token_that_is_no_good(hub: Hub, app: AppHarness) -> None:
    """Says so, and does not take the model for gone; the token is nowhere in the message."""
    hub.push("org/a", {"model.safetensors": GOOD})
    state, code, detail = refused(app, hub.url, token="hf_forged", on_delete="remove")
    assert ("failed", "hub_refused") == (state, code)
    assert "token" in detail
    assert "hf_forged" not in detail


@pytest.mark.parametrize("token", ["hf_SECRET\n", "hf_SE\rCRET", "hf_\0SECRET"])
def test_a_token_that_cannot_be_sent(
    hub: Hub, app: AppHarness, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused before anything is asked, and shown nowhere: not in the job, not in the source,
    not in the log.
    """
    hub.push("org/a", {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url, token=token)
    job = app.hubs.sync_model(source, "org/a")
    assert job.error is not None, job.result
    assert ("failed", "hub_refused", set()) == (job.state, job.error["code"], hub.hub_tokens)
    assert "control character" in job.error["detail"]
    assert "SECRET" not in f"{job} {app.hubs.source(source.id).last_error} {caplog.text}"


@pytest.mark.parametrize("token", ["hf_tök", " hf_blank ", "x" * 8000])
def test_a_token_of_any_text_is_sent(hub: Hub, app: AppHarness, token: str) -> None:
    """In UTF-8, without the blanks at its end that HTTP drops, however long it is."""
    hub.on_hub = answering(200, b"{}")
    app.hubs.sync_model(app.hubs.follow(hub.url, token=token), "org/a")
    sent = f"Bearer {token}".strip().encode().decode("latin-1")
    assert {sent} == {t for t in hub.hub_tokens if t is not None}


def test_a_gated_repository(hub: Hub, app: AppHarness) -> None:
    """Its page is open and its files are not: the message says where to accept the terms."""
    hub.push("org/a", {"model.safetensors": GOOD}, gated=True)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_refused") == (state, code)
    assert "accept its terms" in detail


def test_a_private_repository(hub: Hub, app: AppHarness) -> None:
    """Without a token it looks like a repository that does not exist."""
    hub.push("org/a", {"model.safetensors": GOOD}, private=True)
    assert ("failed", "hub_not_found") == refused(app, hub.url)[:2]


def test_a_name_that_another_hub_has_taken(hub: Hub, app: AppHarness) -> None:
    """Two hubs do not write over each other's models."""
    hub.push("org/a", {"model.safetensors": GOOD})
    app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    before = app.hubs.model("org/a")
    with loopback_hub() as other:
        other.push("org/a", {"model.safetensors": safetensors(random_tensors(2))})
        job = app.hubs.sync_model(app.hubs.follow(other.url), "org/a")
    assert job.error is not None, job.result
    assert ("failed", "conflict") == (job.state, job.error["code"])
    assert before == app.hubs.model("org/a")


def test_a_source_that_only_records(app: AppHarness) -> None:
    """Without a url nothing is asked, and the message says how to change that."""
    source = app.hubs.follow(None)
    job = app.hubs.sync_model(source, "org/a")
    assert job.error is not None
    assert ("failed", "invalid_parameter") == (job.state, job.error["code"])
    assert "only recorded" in job.error["detail"]


def test_a_source_that_is_deleted_ends_its_jobs(hub: Hub, app: AppHarness) -> None:
    """None of them waits or succeeds later; those of other sources stay."""
    source, other = app.hubs.follow(hub.url), app.hubs.follow(hub.url)
    jobs, stays = app.services[JobService], app.hubs.enqueue(other, "org/a")
    ended = [app.hubs.enqueue(source, "org/a"), app.hubs.enqueue(source, "org/b")]
    with app.database.writing() as session:
        ended.append(jobs.enqueue(session, app.tenant, POLL, {"source": source.id}))
        app.services[SourceService].delete(session, app.tenant, source.id)
    with app.database.reading() as session:
        found = {job.id: jobs.get(session, app.tenant, job.id) for job in (*ended, stays)}
    assert all("cancelled" == found[job.id].state for job in ended)
    assert all(found[job.id].finished and found[job.id].error for job in ended)
    assert ("queued", False) == (found[stays.id].state, found[stays.id].cancel_requested)


@pytest.mark.parametrize("fails", [False, True])
def test_a_source_that_is_deleted_while_its_poll_runs(
    hub: Hub, app: AppHarness, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll ends as cancelled, also where the hub is away and it would be tried again."""
    source, service = app.hubs.follow(hub.url), app.services[SourceService]
    with app.database.writing() as session:
        job = service.poll(session, app.tenant, source.id)
    opened = service.open

    def open_late(session: Reader, tenant: Tenant, source_id: str) -> OpenSource:
        found = opened(session, tenant, source_id)
        with app.database.writing() as writer:
            service.delete(writer, tenant, source_id)
        if fails:
            raise Unavailable("the hub is away")
        return found

    monkeypatch.setattr(service, "open", open_late)
    assert "cancelled" == app.worker.execute(job).state


def test_a_failure_is_known_with_its_revision(hub: Hub, app: AppHarness) -> None:
    """What is wrong with a revision is noted, so that a poll does not try it again and again."""
    sha = hub.push("org/a", {"model.safetensors": b"damaged"})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    with app.database.reading() as session:
        seen = list(source_models.seen_models(session, source.id))
    assert [("org/a", sha)] == [(model.name, model.revision) for model in seen]
