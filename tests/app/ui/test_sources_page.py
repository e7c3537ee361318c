"""The pages of sources: what a hub has that is not read, and what may be wrong with its filters."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.app.harness import open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub


def words(page: str) -> str:
    """The text of a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_pickles_are_counted_and_no_failure(hub: Hub, tmp_path: Path) -> None:
    """A source of a hub with pickles is not in error, and the first page has no failed job of them;
    a damaged file is both.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    hub.push("org/b", {"pytorch_model.bin": b"pickled"})
    with open_hub_app(tmp_path) as app:
        source = app.hubs.create(url=hub.url, poll_seconds=3600, filters={"owners": ["org"]})
        app.worker.run_all()
        inbox, shown = app.http.get("/").text, words(app.http.get(f"/sources/{source['id']}").text)
        assert "not read 1 without a file that is read, such as pickles alone" in shown
        assert "The last error" not in shown
        assert "followed" in words(app.http.get("/sources").text)
        assert "Failed jobs" not in inbox
        assert "Sources in error" not in inbox
        hub.push("org/c", {"model.safetensors": b"damaged"})
        assert "failed" == app.hubs.sync_model(app.hubs.source(source["id"]), "org/c").state
        inbox = app.http.get("/").text
        assert "Failed jobs" in inbox
        assert "Sources in error" in inbox


def test_an_owner_without_models_is_named(hub: Hub, tmp_path: Path) -> None:
    """A misspelt owner is no error, and looks like one who has published nothing yet."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    with open_hub_app(tmp_path) as app:
        filters = {"owners": ["org", "orgg", "<b>"]}
        source = app.hubs.create(url=hub.url, poll_seconds=3600, filters=filters)
        app.worker.run_all()
        shown = app.http.get(f"/v1/sources/{source['id']}").json()
        assert (1, ["<b>", "orgg"]) == (
            shown["last_poll"]["models"],
            shown["last_poll"]["absent_owners"],
        )
        assert shown["last_error"] is None
        page = words(app.http.get(f"/sources/{source['id']}").text)
        assert "not found orgg the hub listed no model of this owner" in page
        assert "followed no model of &lt;b&gt;, orgg" in words(app.http.get("/sources").text)
        hub.push("orgg/a", {"model.safetensors": safetensors(random_tensors(2))})
        app.http.post(f"/v1/sources/{source['id']}/poll").raise_for_status()
        app.worker.run_all()
        found = app.http.get(f"/v1/sources/{source['id']}").json()["last_poll"]
        assert ["<b>"] == found["absent_owners"]
