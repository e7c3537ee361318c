"""Mirrors of a hub that answer with less than the hub does, or with something else."""

from __future__ import annotations

from tests.app.hubs.conftest import GOOD, refused
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, weight_support
from tests.support.servers.fake_huggingface import Handler, Hub


def test_a_mirror_without_lengths_ranges_and_sizes(hub: Hub, app: AppHarness) -> None:
    """The end of the connection is that of the file, whose digest says that it is whole."""

    def whole(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(GOOD)
        request.close_connection = True
        return True

    hub.push("org/a", {"model.safetensors": GOOD})
    hub.sizes["model.safetensors"] = -1
    hub.on_cdn = whole
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert "succeeded" == job.state, job.error
    assert weight_support(random_tensors(1)) == app.hubs.support("org/a")


def test_a_login_page_in_place_of_a_file(hub: Hub, app: AppHarness) -> None:
    """A page that comes with the status of a file is none, and the job is tried again."""

    def page(request: Handler) -> bool:
        request.say(200, b"<!doctype html><title>Sign in", Content_Type="text/html")
        return True

    hub.push("org/a", {"model.safetensors": GOOD})
    hub.on_cdn = page
    state, code, detail = refused(app, hub.url)
    assert ("queued", "hub_unavailable") == (state, code)
    assert f"declares {len(GOOD)} bytes of model.safetensors and sends 29" in detail
