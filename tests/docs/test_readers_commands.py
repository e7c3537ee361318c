"""Commands of pages that no other test reads: they run as they stand there."""

from __future__ import annotations

import re
import shlex
import time
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import modelkin
from tests.docs.pages import blocks
from tests.support.servers import forkserver
from tests.support.servers.forkserver import ModuleProcess
from tests.support.servers.server_process import Server, environment

ROOT = Path(__file__).parents[2]
M = 4000
TIMEOUT_S = 300
DONORS = ("org/a", "org/b", "org/c", "org/d", "org/e")


def commands(page: str, section: str = "") -> list[list[str]]:
    """The lines of shell on a page, from a heading on, as words without comments."""
    text = (ROOT / page).read_text().partition(section)[2] if section else (ROOT / page).read_text()
    lines = (line for kind, each in blocks(text) if kind == "sh" for line in each.splitlines())
    return [shlex.split(line, comments=True) for line in lines]


def sessions(page: str, section: str) -> tuple[list[list[str]], list[str]]:
    """The commands of the consoles on a page, from a heading on, and what each prints."""
    text = (ROOT / page).read_text().partition(section)[2]
    consoles = "".join(each for kind, each in blocks(text) if kind == "console")
    parts = [each.partition("\n") for each in re.split(r"^\$ ", consoles, flags=re.MULTILINE)[1:]]
    words = [shlex.split(command) for command, _, _ in parts]
    return words, [without_digests(shown) for _, _, shown in parts]


def without_digests(text: str) -> str:
    """What a command prints, without what is new every time."""
    return re.sub("[0-9a-f]{64}", "DIGEST", text)


def printed(words: list[str], folder: Path) -> str:
    """What a command prints that succeeds."""
    done = forkserver.run(*words, folder=folder, env=environment())
    assert 0 == done.returncode, done.stderr
    return without_digests(done.stdout)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service with nothing in it yet, as the reader's."""
    (tmp_path / "service").mkdir()
    running = Server(tmp_path / "service").start()
    yield running
    assert running.stop() == 0


def started(words: list[str], folder: Path, server: Server) -> ModuleProcess:
    """A command of ``modelkin`` in a folder, which finds the service."""
    assert "modelkin" == words[0]
    process = ModuleProcess(
        *words,
        folder=folder,
        env=environment(MODELKIN_URL=server.url),
        stdout=folder / ".out",
        stderr=folder / ".error",
    )
    process.start()
    return process


def end_well(process: ModuleProcess) -> None:
    """Wait for a command, which succeeds."""
    assert 0 == process.wait(TIMEOUT_S), process.stderr.read_text()


def weights(seed: int) -> torch.Tensor:
    """The weights of a small model."""
    return torch.randn(M, generator=torch.Generator().manual_seed(seed))


def test_the_readme_of_the_client(server: Server, tmp_path: Path) -> None:
    """A checkpoint becomes a support, the support a model of a new space, and its kin are asked."""
    save_file({"w": weights(0)}, tmp_path / "model.safetensors")
    shown = commands("client_sdk/README.md")
    install = [words for words in shown if words[0] == "pip"]
    use = [words for words in shown if words[0] == "modelkin"]
    assert ["support", "push", "neighbors"] == [words[1] for words in use]
    for words in use:
        end_well(started(words, tmp_path, server))
    with modelkin.Client(server.url) as client:
        assert M == client.supports.get("llama-8b", "org/name").num_parameters
    extras = [words[2].partition("[")[2].rstrip("]") for words in install]
    project = tomllib.loads((ROOT / "client_sdk" / "pyproject.toml").read_text())["project"]
    assert {"", "fast", "torch", "gguf", "plots"} == set(extras)
    assert set(extras) - {""} <= set(project["optional-dependencies"])


@pytest.mark.slow
def test_a_merge(server: Server, tmp_path: Path) -> None:
    """The page's merge: five donors and the newcomer run its commands, and all get one average."""
    create, member, neutral, *_ = commands("docs/sharing.md", "## Merges")
    with modelkin.Client(server.url) as client:
        client.ensure_space("s", num_parameters=M)
        for seed, name in enumerate((*DONORS, "org/newcomer")):
            importance = (weights(9) + 0.5 * weights(seed)).abs()
            client.put_support("s", name, modelkin.select_support(importance, k=200))
        end_well(started(create, tmp_path, server))
        parties = [joined(neutral, "org/newcomer", tmp_path, server)]
        wait_for(client, "org/newcomer")  # as the page says, before the last member
    for name in DONORS:
        words = [name if word == "org/a" else word for word in member]
        parties.append(joined(words, name, tmp_path, server))
    for party in parties:
        end_well(party)
    with modelkin.Client(server.url) as client:
        shares = {each.name: each.weight for each in client.merges.get("s", "july").parties}
    shown = torch.tensor([shares[name] for name in DONORS], dtype=torch.float64)
    vectors = torch.stack([weights(seed).double() for seed in range(len(DONORS))])
    average = (shown / shown.sum()) @ vectors
    for name in (*DONORS, "org/newcomer"):
        merged = load_file(tmp_path / name / "merged.safetensors")["w"]
        torch.testing.assert_close(merged.double(), average, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_merge_in_a_bucket(tmp_path: Path) -> None:
    """The page's bucket, but a folder is in its place: its members run its commands, and see it."""
    secret, named = commands("docs/sharing.md", "### In a bucket")
    lines, outputs = sessions("docs/sharing.md", "### In a bucket")
    assert "openssl rand -hex 32 > secret" == " ".join(secret)
    (tmp_path / "secret").write_text(64 * "5")
    (tmp_path / "drive").mkdir()
    where = named[0].removeprefix("where=").replace("s3://bucket/merges", "drive").split()
    create, member, show = [[*words[:3], *where, *words[4:]] for words in lines]
    assert 3 * ["$where"] == [words[3] for words in lines]
    names = [name for flag, name in pairwise(create) if flag == "--member"]
    for seed, name in enumerate(names):
        save_file({"w": weights(seed)}, tmp_path / f"{name[-1]}.safetensors")
    environ = environment()
    assert outputs[0] == printed(create, tmp_path)
    parties = []
    for name in names:
        own = {"org/a": name, "a.safetensors": f"{name[-1]}.safetensors"}
        words = [own.get(word, word) for word in member]
        if name != "org/a":
            words[-1] = f"merged-{name[-1]}.safetensors"
        out, error = tmp_path / f".out-{name[-1]}", tmp_path / f".error-{name[-1]}"
        parties.append(
            ModuleProcess(*words, folder=tmp_path, env=environ, stdout=out, stderr=error)
        )
        parties[-1].start()
    for party in parties:
        end_well(party)
    assert outputs[1] == without_digests((tmp_path / ".out-a").read_text())
    assert outputs[2] == printed(show, tmp_path)
    average = torch.stack([weights(seed).double() for seed in range(len(names))]).mean(0)
    for written in sorted(tmp_path.glob("merged*.safetensors")):
        merged = load_file(written)["w"]
        torch.testing.assert_close(merged.double(), average, rtol=0, atol=1e-6)


def joined(words: list[str], name: str, folder: Path, server: Server) -> ModuleProcess:
    """A party in its own folder, where its checkpoint has the command's name."""
    own = folder / name
    own.mkdir(parents=True)
    assert name in words
    checkpoint = next(word for word in words if word.endswith(".safetensors"))
    seed = (*DONORS, "org/newcomer").index(name)
    save_file({"w": weights(seed)}, own / checkpoint)
    return started(words, own, server)


def wait_for(client: modelkin.Client, name: str) -> None:
    """Wait until a party has joined the merge."""
    end = time.monotonic() + TIMEOUT_S
    while name not in {each.name for each in client.merges.get("s", "july").parties if each.joined}:
        assert time.monotonic() < end
        time.sleep(0.05)
