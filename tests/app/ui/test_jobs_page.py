"""The list of jobs as a page without scripts."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.http_space import ok
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import receiving


@pytest.mark.slow
def test_the_model_of_a_sync_is_a_link(tmp_path: Path) -> None:
    """Until it is stored, to all that has its name."""
    running = Server(tmp_path, MODELKIN_EGRESS_ALLOW="127.0.0.1").start()
    with receiving() as hub, httpx.Client(base_url=running.url, trust_env=False) as http:
        body = {"kind": "huggingface", "space": "followed", "url": hub.url, "secret": "long"}
        source = ok(http.post("/v1/sources", json=body))["id"]
        repo = {"type": "model", "name": "org/jobbed"}
        event = {"event": {"action": "update", "scope": "repo"}, "repo": repo}
        headers = {"X-Webhook-Secret": "long"}
        assert 202 == http.post(f"/v1/hooks/{source}", json=event, headers=headers).status_code
        page = http.get("/jobs?kind=ingest").text
    assert running.stop() == 0
    assert '<a class="model" href="/?q=org%2Fjobbed">org/jobbed</a>' in page
