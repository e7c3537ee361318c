"""``modelkin subspace``, ``push``, ``inspect`` and ``start`` of data, against a real service."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from demo.planted import newcomers
from modelkin import Client, Subspace, Support, fit_subspace
from tests.sdk.cli.conftest import Run
from tests.sdk.cli.conftest import modelkin as command
from tests.support.servers.server_process import Server

KNOWN, NEW = newcomers("rotations", known=True, num_newcomers=4, seed=1)
FEW = ("--samples-per-direction", "1")


def saved(folder: Path, row: int = 0) -> None:
    """A newcomer's samples and labels in a folder."""
    np.save(folder / "x.npy", NEW.samples[row])
    np.save(folder / "y.npy", NEW.labels[row])


def test_a_subspace_is_that_of_the_samples(run_here: Run, tmp_path: Path) -> None:
    """The file is what the SDK makes, and one line says what it holds."""
    saved(tmp_path)
    done = run_here("subspace", "x.npy", "--labels", "y.npy", *FEW, "-o", "d.mksb")
    assert 0 == done.returncode, done.stderr
    made = fit_subspace(NEW.samples[0], NEW.labels[0], samples_per_direction=1)
    written = (tmp_path / "d.mksb").read_bytes()
    assert made.to_bytes() == written
    size = f"{len(written):,} bytes"
    assert f"d.mksb: 22 directions of 64 features, 4 classes, {size}\n" == done.stdout
    shown = run_here("inspect", "d.mksb")
    assert made.digest in shown.stdout
    answer = json.loads(run_here("inspect", "d.mksb", "--json").stdout)
    assert ("subspace", list(made.labels)) == (answer["kind"], answer["classes"])


def test_few_samples_are_refused_and_noted(run_here: Run, tmp_path: Path) -> None:
    """By default a class of five is left out, and nineteen samples are too few."""
    saved(tmp_path)
    done = run_here("subspace", "x.npy", "--labels", "y.npy", "-o", "d.mksb")
    assert "4 classes have fewer than 20 samples" in done.stderr
    np.save(tmp_path / "few.npy", NEW.samples[0][:19])
    done = run_here("subspace", "few.npy", "-o", "e.mksb")
    assert (1, "") == (done.returncode, done.stdout)
    assert "19 samples are too few" in done.stderr
    assert not (tmp_path / "e.mksb").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"x", "holds no array"), (b"", "holds no array"), (b"\x80\x04N.", "holds no array")],
)
def test_a_file_that_is_no_array_is_named(
    run_here: Run, tmp_path: Path, content: bytes, says: str
) -> None:
    """A pickle is not loaded."""
    (tmp_path / "x.npy").write_bytes(content)
    done = run_here("subspace", "x.npy", "-o", "d.mksb")
    assert 1 == done.returncode
    assert says in done.stderr


@pytest.mark.slow
def test_a_newcomers_way(server: Server, tmp_path: Path) -> None:
    """Pushed fingerprints are clustered, and a newcomer's data find their cluster."""
    for row in range(24):
        made = fit_subspace(KNOWN.samples[row], KNOWN.labels[row], samples_per_direction=1)
        (tmp_path / "d.mksb").write_bytes(made.to_bytes())
        where = ("--space", "cli-wards", "--model", f"ward-{row:02d}")
        create = ("--create",) if row == 0 else ()
        if row < 2:
            done = command(tmp_path, "push", "d.mksb", *where, *create, MODELKIN_URL=server.url)
            assert 0 == done.returncode, done.stderr
            assert "a data subspace of" in done.stdout
        else:
            with Client(server.url) as client:
                client.subspaces.put("cli-wards", where[3], made)
    with Client(server.url) as client:
        clusters = client.clusterings.create("cli-wards", "agglomerative", n_clusters=4)
        assert client.subspaces.get("cli-wards", "ward-23") == Subspace.from_bytes(made.to_bytes())
    for row in range(4):
        saved(tmp_path, row)
        names = ("--labels", "y.npy", *FEW, "-o", "new.mksb")
        command(tmp_path, "subspace", "x.npy", *names)
        done = command(
            tmp_path, "start", "new.mksb", "--space", "cli-wards", "--json", MODELKIN_URL=server.url
        )
        assert 0 == done.returncode, done.stderr
        answer = json.loads(done.stdout)
        like = f"ward-{int(NEW.groups[row]):02d}"  # groups take turns
        assert clusters.labels[like] == answer["cluster"]
        assert "classes" == answer["compare"]
        assert 0 < answer["margin"] <= 1
    done = command(tmp_path, "start", "new.mksb", "--space", "cli-wards", MODELKIN_URL=server.url)
    assert "nearest" in done.stdout
    assert f"{answer['votes'][0]['similarity']:.3f}" in done.stdout
    other = fit_subspace(NEW.samples[3], NEW.labels[3] + 1000, samples_per_direction=1)
    (tmp_path / "other.mksb").write_bytes(other.to_bytes())
    where = ("start", "other.mksb", "--space", "cli-wards")
    done = command(tmp_path, *where, "--compare", "classes", MODELKIN_URL=server.url)
    assert "no class in common with any model" in done.stderr
    assert "--compare whole" in done.stderr
    whole = (*where, "--compare", "whole")
    done = command(tmp_path, *whole, MODELKIN_URL=server.url)
    said = json.loads(command(tmp_path, *whole, "--json", MODELKIN_URL=server.url).stdout)
    assert said["votes"][0]["similarity"] > 0.5
    assert f"{said['votes'][0]['similarity']:.3f}" in done.stdout
    files = ("new.mksb", "other.mksb")
    asked = ("assign", *files, "--space", "cli-wards", "--compare", "classes")
    done = command(tmp_path, *asked, MODELKIN_URL=server.url)
    assert 0 == done.returncode
    assert ["new.mksb", str(answer["cluster"])] == done.stdout.splitlines()[1].split()[:2]
    assert "other.mksb: it has no class in common" in done.stderr
    done = command(tmp_path, *asked, "--json", "--exit-code", MODELKIN_URL=server.url)
    items = json.loads(done.stdout)["items"]
    assert [1, *files] == [done.returncode, *(item["file"] for item in items)]
    assert [answer["cluster"], -1] == [item["cluster"] for item in items]
    placed = (*asked[:2], *asked[3:], "--exit-code")
    assert 0 == command(tmp_path, *placed, MODELKIN_URL=server.url).returncode
    found = command(
        tmp_path,
        *("neighbors", "--space", "cli-wards", "--file", "new.mksb", "-k", "2"),
        MODELKIN_URL=server.url,
    )
    assert "ward-" in found.stdout


@pytest.mark.parametrize(("kind", "name"), [("support", "own.mksp"), ("signature", "own.mksg")])
def test_start_names_the_command_for_a_support(
    run_here: Run, tmp_path: Path, kind: str, name: str
) -> None:
    """It is for data subspaces, and says what asks for a support's or a signature's cluster."""
    support = Support([1, 2], 9)
    made = support if kind == "support" else support.signature()
    (tmp_path / name).write_bytes(made.to_bytes())
    done = run_here("start", name, "--space", "any")
    assert 1 == done.returncode
    assert f"{name} is a {kind}, and `start` takes a data subspace" in done.stderr
    assert f"`modelkin assign {name}`" in done.stderr
