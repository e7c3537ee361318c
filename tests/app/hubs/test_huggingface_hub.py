"""The hub of these tests is one to Hugging Face's own client; and a push to it is visible here."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelkin import Support, similarity
from tests.support.app.harness import AppHarness
from tests.support.declared_problems import checked
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import TOKEN, Hub
from tests.support.servers.server_process import Server

_CLIENT = """
import hashlib, json, sys
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.utils import GatedRepoError, RepositoryNotFoundError
api = HfApi()
info = api.model_info("org/a", files_metadata=True)
assert info.id == "org/a"
files = {s.rfilename: (s.size, s.lfs and s.lfs.sha256) for s in info.siblings}
path = hf_hub_download("org/a", "model.safetensors", revision=info.sha, cache_dir=sys.argv[1])
readme = hf_hub_download("org/a", "README.md", cache_dir=sys.argv[1])
for name, error in (("org/gated", GatedRepoError), ("org/none", RepositoryNotFoundError)):
    try:
        hf_hub_download(name, "model.safetensors", cache_dir=sys.argv[1])
    except error as raised:
        assert type(raised) is error
    else:
        raise AssertionError(name)
print(json.dumps({
    "sha": info.sha, "files": files, "base": info.card_data.base_model,
    "digest": hashlib.sha256(open(path, "rb").read()).hexdigest(),
    "readme": open(readme).read(),
    "listed": [[m.id, m.sha] for m in api.list_models(author="org", full=True)],
    "moved": api.model_info("org/before").id,
}))
"""


@pytest.mark.slow
def test_the_hub_is_one_to_its_own_client(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """``huggingface_hub``, by HF_ENDPOINT, sees of the hub what ingestion sees, byte by byte."""
    data = safetensors(random_tensors(1))
    sha = hub.push("org/a", {"model.safetensors": data}, card={"base_model": "org/base"})
    for name in ("org/b", "org/c"):
        hub.push(name, {"model.safetensors": data})
    hub.push("org/gated", {"model.safetensors": data}, gated=True)
    hub.moved["org/before"] = "org/a"
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(tmp_path / "cache")],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    digest = hashlib.sha256(data).hexdigest()
    assert (sha, digest, "# A model", "org/base", "org/a") == tuple(
        seen[key] for key in ("sha", "digest", "readme", "base", "moved")
    )
    with app.hubs.opened(app.hubs.follow(hub.url)) as opened:
        ours = opened.look_up("org/a")
        listing = [[m.name, m.revision] for m in opened.models({"owners": ["org"]})]
        target = tmp_path / "ours"
        opened.download(ours, next(f for f in ours.files if f.sha256), target)
    assert seen["listed"] == listing
    assert 4 == len(listing)
    assert seen["files"] == {f.path: [f.size, f.sha256] for f in ours.files}
    assert data == target.read_bytes()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that carries out jobs and may talk to loopback."""
    server = Server(tmp_path_factory.mktemp("service"), "--egress-allow=127.0.0.1").start()
    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
        yield http
    assert 0 == server.stop(), server.log.read_text()
    assert TOKEN not in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def deliver(http: httpx.Client, source: str, action: str, name: str, **repo: Any) -> httpx.Response:
    """A webhook of version 3, as the Hub sends it."""
    payload = {
        "event": {"action": action, "scope": "repo.content" if action == "update" else "repo"},
        "repo": {"type": "model", "name": name, "id": "1", "private": True, **repo},
        "webhook": {"id": "w", "version": 3},
        "updatedRefs": [{"ref": "refs/heads/main", "oldSha": "0", "newSha": repo.get("headSha")}],
    }
    sent_headers = {"X-Webhook-Secret": "s", "Webhook-Id": os.urandom(8).hex()}
    return http.post(f"/v1/hooks/{source}", json=payload, headers=sent_headers)


def test_a_push_has_neighbours(hub: Hub, service: httpx.Client) -> None:
    """Two pushes, two deliveries, and soon each is the other's neighbour by exactly their S."""
    made = {
        "kind": "huggingface",
        "space": "pushed",
        "secret": "s",
        "url": hub.url,
        "token": TOKEN,
        "filters": {"owners": ["org"]},
        "poll_seconds": None,
    }
    answer = service.post("/v1/sources", json=made)
    assert 201 == answer.status_code, answer.text
    source = answer.json()["id"]
    for seed, name in enumerate(("org/a", "org/b")):
        files = {"model.safetensors": safetensors(random_tensors(seed))}
        sha = hub.push(name, files, private=True)
        assert 202 == deliver(service, source, "update", name, headSha=sha).status_code
    items = _neighbors(service, "org/a")
    supports = [
        Support.from_bytes(
            service.get(
                f"/v1/spaces/pushed/supports/{name}",
                headers={"Accept": "application/vnd.modelkin.support"},
            ).content
        )
        for name in ("org/a", "org/b")
    ]
    assert [("org/b", pytest.approx(similarity(*supports)))] == [
        (item["model"], item["similarity"]) for item in items
    ]


def _neighbors(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = http.get(f"/v1/spaces/pushed/neighbors?model={name}")
        if answer.is_success and answer.json()["items"]:
            items: list[dict[str, Any]] = answer.json()["items"]
            return items
        time.sleep(0.1)
    raise AssertionError(answer.text + http.get("/v1/jobs").text)


@pytest.mark.slow
def test_a_download_that_was_cut_off(hub: Hub, tmp_path: Path) -> None:
    """The service is killed in the midst of one: begun again, it does the sync, and nothing of the
    first try is left.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    reached, released = threading.Event(), threading.Event()

    def hang(_: object) -> bool:
        reached.set()
        released.wait(60)
        return False

    hub.on_cdn = hang
    server = Server(tmp_path, "--egress-allow=127.0.0.1").start()
    made = {"kind": "huggingface", "space": "pushed", "secret": "s", "url": hub.url}
    source = httpx.post(f"{server.url}/v1/sources", json={**made, "poll_seconds": None}).json()
    sent_headers = {"X-Webhook-Secret": "s"}
    repo = {"type": "model", "name": "org/a"}
    payload = {"event": {"action": "create", "scope": "repo"}, "repo": repo}
    assert httpx.post(
        f"{server.url}/v1/hooks/{source['id']}", json=payload, headers=sent_headers
    ).is_success
    assert reached.wait(60)
    server.kill()
    assert 1 == len(_folders(tmp_path))
    released.set()
    hub.on_cdn = lambda _: False
    server = Server(tmp_path, "--egress-allow=127.0.0.1").start()
    try:
        end = time.monotonic() + 60
        model = f"{server.url}/v1/spaces/pushed/models/org/a"
        while not httpx.get(model).is_success:
            assert time.monotonic() < end, httpx.get(f"{server.url}/v1/jobs").text
            time.sleep(0.1)
        assert [] == _folders(tmp_path)
    finally:
        assert 0 == server.stop()


def _folders(data: Path) -> list[Path]:
    """Those of downloads."""
    return [path for path in data.glob("downloads/*/*") if path.is_dir()]
