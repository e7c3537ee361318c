"""Guides run line by line against a service, and print what they say."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from modelkin.client._transport.embedded import EmbeddedService
from tests.docs.pages import blocks, run_python
from tests.support.app.backups import Copies
from tests.support.backends import SQLITE
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.in_place_of_embedded import InPlaceOfEmbedded
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import Receiver, receiving

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with nothing in it that a guide uses, as the reader's."""
    running = Server(tmp_path_factory.mktemp("guides")).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def here(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, where clients find the service."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path


def carried_out(name: str) -> dict[str, Any]:
    """The names that a guide leaves, after each Python block printed the text block behind it."""
    names: dict[str, Any] = {}
    found = blocks((DOCS / name).read_text())
    printed = [run_python(text, name, names) for kind, text in found if kind == "python"]
    assert [text for kind, text in found if kind == "text"] == printed
    assert printed
    return names


@pytest.mark.slow
def test_privacy(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of privacy: a blinded space, what comes back, and what is refused."""
    operators: list[Server] = []  # those that the page embeds

    def another(*_: object) -> InPlaceOfEmbedded:
        (folder := here / f"operator-{len(operators)}").mkdir()
        operators.append(Server(folder).start())
        return InPlaceOfEmbedded(operators[-1])

    monkeypatch.setattr(EmbeddedService, "of", another)
    carried_out("privacy.md")
    assert [0, 0, 0] == [operator.stop() for operator in operators]


@pytest.mark.slow
def test_choosing(here: Path) -> None:
    """The guide to choose K, importance and banding; it leaves two pictures."""
    carried_out("choosing.md")
    plt.close("all")
    assert {"coverage.png", "stability.png"} == {path.name for path in here.iterdir()}


def test_signatures(here: Path, server: Server) -> None:
    """The guide of own signatures, and its upload by plain HTTP."""
    names = carried_out("signatures.md")
    [curl] = [text for kind, text in blocks((DOCS / "signatures.md").read_text()) if kind == "sh"]
    words = shlex.split(curl.replace("\\\n", ""))
    assert words[:3] == ["curl", "-X", "PUT"]
    url = words[3].replace("http://127.0.0.1:8000", server.url)
    kind = dict([words[5].split(": ")])
    answer = httpx.put(url, headers=kind, content=names["own"].to_bytes(), trust_env=False)
    assert (201, "org/model") == (answer.status_code, answer.json()["model"])


@pytest.mark.slow
def test_backups(tmp_path: Path) -> None:
    """The commands of the guide: a backup, its check, a restoration, its check."""
    (tmp_path / "old").mkdir()
    SQLITE.migrated_url(tmp_path / "old")
    said = (DOCS / "backups.md").read_text()
    lines = re.findall(r"^ *modelkin serve (.+)$", said, re.MULTILINE)
    places = {"backup": "old", "verify --backup": "old", "restore": "new"}
    done = []
    for line in lines:
        where = next((place for begin, place in places.items() if line.startswith(begin)), "old")
        words = shlex.split(line.replace("/backups", str(tmp_path)))
        finished = Copies(SQLITE, tmp_path / where).run(*words)
        assert 0 == finished.returncode, finished.stderr
        done.append(words[0])
    assert ["backup", "verify", "verify", "restore", "verify"] == done
    assert [path.suffix for path in (tmp_path / "new").glob("*.db")] == [".db"]


@pytest.mark.slow
def test_watching(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide from nothing to alerts, with a hub and a receiver on this machine."""
    family = random_tensors(1)
    for number in range(6):
        _push(hub, f"acme/other-{number}", random_tensors(9 + number))
    _push(hub, "acme/base", family)
    _push(hub, "acme/code", random_tensors(2))
    _push(hub, "acme/chat", drifted(family, 3), base_model="acme/base")
    (tmp_path / "service").mkdir()
    running = Server(tmp_path / "service", "--egress-allow=127.0.0.1").start()
    monkeypatch.setenv("MODELKIN_URL", running.url)
    with receiving() as receiver:
        page = (DOCS / "watching.md").read_text().replace("https://huggingface.co", hub.url)
        page = page.replace("https://alerts.example/modelkin", f"{receiver.url}/ok")
        names: dict[str, Any] = {}
        printed = []
        for kind, text in blocks(page):
            if "client.sources.poll(" in text:
                wrong = {"base_model": "acme/code"}
                _push(hub, "acme/chat-legal", drifted(family, 4), **wrong)
            if kind == "python":
                printed.append(run_python(text, "watching.md", names))
        printed.append(_alerts(receiver, names["receive"]))
        assert ["acme/chat-legal", "acme/base"] == _watched(receiver)
    names["client"].close()
    assert 0 == running.stop()
    assert [text for kind, text in blocks(page) if kind == "text"] == list(filter(None, printed))


def drifted(tensors: Tensors, seed: int) -> Tensors:
    """The weights of a model that was trained on a little."""
    noise = random_tensors(seed)
    return {name: (w + np.float32(0.1) * noise[name]).astype("f4") for name, w in tensors.items()}


def _push(hub: Hub, name: str, tensors: Tensors, **card: str) -> None:
    hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card)


def _watched(receiver: Receiver) -> list[str]:
    """The model that came near the watched one, and those in its changes, once that is sent."""
    end = time.monotonic() + 60
    while not receiver.at("/ok/base"):
        assert time.monotonic() < end
        time.sleep(0.05)
    [sent] = receiver.at("/ok/base")
    data = json.loads(sent.body)["data"]
    return [data["model"], *(change["model"] for change in data["changes"])]


def _alerts(receiver: Receiver, receive: Callable[[bytes, dict[str, str]], str]) -> str:
    """What the guide's receiver makes of the alerts, without the ping, once two have come."""
    end = time.monotonic() + 60
    lines: set[str] = set()
    while len(lines) < 3:
        assert time.monotonic() < end, lines
        lines = {receive(one.body, one.headers) for one in list(receiver.at("/ok"))}
        time.sleep(0.05)
    return "".join(f"{line}\n" for line in sorted(lines - {"ping"}))
