"""``modelkin merge``: parties as processes, through deaths of each of them and of the service."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import modelkin
from tests.support.federations.merging import Floats, HubMerge
from tests.support.federations.sharing import fedavg, updates
from tests.support.http_space import Space, ok
from tests.support.servers import forkserver
from tests.support.servers.forkserver import ModuleProcess
from tests.support.servers.server_process import Server, environment

pytestmark = pytest.mark.slow

M = 40_000
NAMES = [f"org/m{at}" for at in range(5)]
TIMEOUT_S = 60.0


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    """A service that tests kill, at an address that it keeps."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / "service"
    folder.mkdir()
    server = Server(folder, f"--port={port}").start()
    yield server
    server.kill()


class Process:
    """``modelkin merge join`` as a process, which is killed and started again."""

    def __init__(
        self, folder: Path, url: str, space: str, name: str, vector: Floats, *options: str
    ) -> None:
        self.folder = folder / name.replace("/", "-")
        self.folder.mkdir()
        save_file({"w": torch.from_numpy(vector)}, self.folder / "x.safetensors")
        self._arguments = [
            *("merge", "join", "--url", url),
            *("--space", space, "--merge", "m", "--model", name, "--examples", "1"),
            *("x.safetensors", "-o", "merged.safetensors", "--json", *options),
        ]
        self.start()

    def start(self) -> None:
        self.process = ModuleProcess(
            *("modelkin", *self._arguments),
            folder=self.folder,
            env=environment(),
            stdout=self.folder / ".out",
            stderr=self.folder / ".error",
        )
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def again(self) -> None:
        """Die without a word, and be started by the same command."""
        self.kill()
        self.start()

    def said(self) -> str:
        """What it wrote of its errors."""
        return (self.folder / ".error").read_text()

    def merged(self) -> Floats:
        """What it has written, once it has ended well."""
        assert 0 == self.process.wait(TIMEOUT_S), self.said()
        assert 5 == len(json.loads((self.folder / ".out").read_text())["members"])
        found: Floats = load_file(self.folder / "merged.safetensors")["w"].numpy()
        assert ["merged.safetensors", "x.safetensors"] == sorted(
            path.name for path in self.folder.iterdir() if path.name not in {".out", ".error"}
        )
        return found


@pytest.fixture
def parties() -> Iterator[list[Process]]:
    """The processes of a test, none of which outlives it."""
    started: list[Process] = []
    yield started
    for party in started:
        party.kill()


def wait_for(parties: list[Process], condition: Callable[[], Any]) -> None:
    """Wait; a party that finds no service when it starts is started again, as by a supervisor."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, [party.said() for party in parties]
        for party in parties:
            if party.process.exitcode not in {None, 0}:
                party.start()
        time.sleep(0.02)


@pytest.mark.parametrize("conceal", [True, False])
def test_every_death_ends_in_the_right_bytes(
    mortal: Server, parties: list[Process], tmp_path: Path, conceal: bool
) -> None:
    """Five parties, all aggregators: members, aggregators and the service die in each state."""
    vectors = updates(5, M)
    with httpx.Client(base_url=mortal.url, timeout=60, trust_env=False) as http:
        space = Space(http, M)
        merge = HubMerge(
            space,
            dict(zip(NAMES, vectors, strict=True)),
            conceal=conceal,
            aggregators=5,
            weights="equal",
            deadline=600,
        )
        assert 201 == merge.created.status_code
        options = () if conceal else ("--plain",)
        # The fifth party is played here: no state ends before the test says so.
        parties += [
            Process(tmp_path, mortal.url, space.name, name, vector, *options)
            for name, vector in zip(NAMES[:4], vectors, strict=False)
        ]
        last = merge.parties[NAMES[4]]
        wait_for(parties, lambda: [NAMES[4]] == merge.show()["awaited"])
        parties[0].again()
        restart(mortal)
        ok(last.join())
        wait_for(parties, lambda: "sending" == merge.state)
        parties[1].again()
        restart(mortal)
        wait_for(parties, lambda: [NAMES[4]] == merge.show()["awaited"])
        last.send()
        wait_for(parties, lambda: "combining" == merge.state)
        parties[2].again()
        restart(mortal)
        wait_for(parties, lambda: [NAMES[4]] == merge.show()["awaited"])
        ok(last.judge())
        wait_for(parties, lambda: [NAMES[4]] == merge.show()["awaited"])
        last.aggregate()
        assert "done" == merge.state
        parties[3].again()
        wanted = fedavg(vectors, [1.0] * 5)
        for found in (*(party.merged() for party in parties), last.merged()):
            if conceal:
                assert np.abs(found - wanted).max() < 5 * 2.0**-30 + 1e-8
            else:
                assert np.array_equal(wanted.astype(np.float32), found)
        assert_nothing_readable(mortal, vectors)


def restart(server: Server) -> None:
    server.kill()
    server.start()


def assert_nothing_readable(server: Server, vectors: list[Floats]) -> None:
    """No four values in a row of any member are in the database or in a file of the service."""
    stored = [path.read_bytes() for path in server.folder.rglob("*") if path.is_file()]
    assert any(b"MKSC" in data for data in stored)
    for vector in vectors:
        for at in range(0, M, M // 50):
            pattern = vector[at : at + 4].tobytes()
            assert not any(pattern in data for data in stored)


def modelkin_of(url: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run("modelkin", *arguments, "--url", url, folder=folder, env=environment())


def test_joining_says_what_to_give(http: httpx.Client, server: Server, tmp_path: Path) -> None:
    """A base for a merge of differences; --plain and --min-members for one that shows more."""
    space = Space(http, 1000)
    space.put("a", modelkin.Support.from_indices(range(9), 1000))
    save_file({"w": torch.zeros(1000)}, tmp_path / "x.safetensors")
    given = ("merge", "join", "--space", space.name, "--model", "a", "x.safetensors", "-o", "o")
    wanted = {"members": ["a"], "min_members": 1, "of": "delta", "conceal": False}
    ok(http.put(f"{space.path('merges')}/m", json=wanted))
    options: tuple[str, ...] = ()
    for says, more in (
        ("(--base)", ("--base", "x.safetensors")),
        ("(--plain)", ("--plain",)),
        ("(--min-members 1)", ("--min-members", "1")),
        ("examples", ()),
    ):
        refused = modelkin_of(server.url, tmp_path, *given, "--merge", "m", *options)
        assert 1 == refused.returncode
        assert says in refused.stderr
        options += more
    assert not (tmp_path / "o").exists()


def test_create_and_show(http: httpx.Client, server: Server, tmp_path: Path) -> None:
    """A merge is created by donors, and shown with who is awaited; errors are one line."""
    space = Space(http, 1000)
    indices = np.arange(0, 1000, 4)
    for at in range(6):
        space.put(f"m{at}", modelkin.Support.from_indices(indices + (at % 2) * (at > 3), 1000))
    create = ("merge", "create", "--space", space.name, "--merge", "july")
    made = modelkin_of(server.url, tmp_path, *create, "--donors-of", "m0", "-k", "3")
    assert 0 == made.returncode, made.stderr
    assert "july, joining" in made.stdout
    shown = modelkin_of(
        server.url, tmp_path, "merge", "show", "--space", space.name, "--merge", "july", "--json"
    )
    fields = json.loads(shown.stdout)
    assert 3 == len(fields["awaited"]) == len(fields["parties"])
    assert sum(party["weight"] for party in fields["parties"]) == pytest.approx(1)
    listed = modelkin_of(server.url, tmp_path, "merge", "show", "--space", space.name)
    assert "july" in listed.stdout
    wrong = modelkin_of(server.url, tmp_path, *create, "--member", "nothing")
    assert 1 == wrong.returncode
    assert wrong.stderr.startswith("modelkin: 40")
    assert 1 == wrong.stderr.count("\n")
