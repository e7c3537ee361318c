"""``modelkin bucket``: parties as processes, with checkpoints in files, and a folder they share."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from modelkin.cli import main
from tests.support.federations.meeting import NAMES, SECRET
from tests.support.servers import forkserver
from tests.support.servers.server_process import environment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four checkpoints of the same tensors, in one file in another order; a secret; a drive."""
    random = np.random.default_rng(0)
    for name in NAMES:
        tensors = [("w", random.normal(size=(20, 10))), ("b", random.normal(size=(10,)))]
        order = reversed(tensors) if name == "org/c" else tensors
        save_file({key: v.astype(np.float32) for key, v in order}, tmp_path / f"{name[-1]}.st")
    (tmp_path / "secret").write_text(SECRET.hex())
    (tmp_path / "drive").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(action: str, *more: str) -> list[str]:
    """The arguments of a command for the merge of this folder."""
    where = ("--store", "drive", "--merge", "july", "--group-secret-file", "secret")
    return ["bucket", action, *where, *more]


def created(*more: str) -> list[str]:
    """The arguments that create it."""
    members = [part for name in NAMES for part in ("--member", f"{name}=0.25")]
    return command("create", "a.st", *members, "--leader", "org/a", *more)


@pytest.mark.slow
def test_four_checkpoints(folder: Path) -> None:
    """Each party's command writes the same file; tensors are matched by their names."""
    assert 0 == main(created())

    def join(name: str) -> dict[str, Any]:
        path = f"{name[-1]}.st"
        arguments = command("join", "--model", name, path, "-o", f"merged-{path}", "--json")
        done = forkserver.run("modelkin", *arguments, folder=folder, env=environment())
        assert 0 == done.returncode, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    with ThreadPoolExecutor(4) as machines:
        ends = list(machines.map(join, NAMES))
    assert 4 * [[*NAMES]] == [end["members"] for end in ends]
    parts = [load_file(folder / f"{name[-1]}.st") for name in NAMES]
    for name in NAMES:
        merged = load_file(folder / f"merged-{name[-1]}.st")
        for key in ("w", "b"):
            wanted = np.mean([part[key].astype(np.float64) for part in parts], axis=0)
            assert np.abs(merged[key] - wanted).max() < 1e-6


def test_a_merge_is_created_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the weights of its members, a neutral party, and whom it waits for."""
    assert 0 == main(created("--neutral", "helper", "--aggregators", "2"))
    made = capsys.readouterr().out
    assert 0 == main(command("show"))
    assert made == capsys.readouterr().out
    assert "july, joining" in made
    assert "210 in 2 shards" in made
    assert "helper, org/a, org/b, org/c, org/d" in made
    assert ["0.25", "awaited"] == made.partition("org/d  ")[2].split()[:2]
    assert (folder / "drive" / "july" / "terms").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            command("create", "a.st", "--leader", "x", "--member", "x=1", "--member", "y"),
            "MODEL=WEIGHT: a number, for each member",
        ),
        (
            command("create", "a.st", "--leader", "x", "--member", "x", "--member", "y"),
            "2 members, and min_members is 3",
        ),
        (command("join", "--model", "org/a"), "give the checkpoint of the model, or --neutral"),
        (command("join", "--model", "org/a", "a.st"), "say where the average goes: -o FILE"),
        (command("show"), "there is no merge 'july' of this group in drive"),
    ],
)
def test_what_cannot_be(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Is refused, and nothing is written."""
    assert 1 == main(arguments)
    assert said in capsys.readouterr().err
    assert [] == [*(folder / "drive").iterdir()]
