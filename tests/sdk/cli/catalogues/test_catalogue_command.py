"""``modelkin catalogue`` and ``modelkin anatomy --catalogue``, as a shell sees them."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelkin import Catalogue
from modelkin.cli import main
from tests.sdk.cli.conftest import Run
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, model


def save(path: Path, tensors: Tensors) -> None:
    """A checkpoint of one file."""
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalogue of two bases, one of their children, and a stranger."""
    folder = tmp_path_factory.mktemp("written")
    for seed in range(3):
        save(folder / f"model-{seed}.safetensors", model(seed))
    save(folder / "child.safetensors", DERIVED["fused"](DERIVED["8 bits"](model(0))))
    first = "model-0.safetensors name=org/first license=mit date=2024-05-01"
    (folder / "list").write_text(f"{first}\nmodel-1.safetensors")
    with contextlib.chdir(folder):
        assert 0 == main(["catalogue", "build", "list", "-o", "bases.mkct"])
    return folder


@pytest.fixture
def here(written: Path, tmp_path: Path) -> Path:
    """A folder with these files, in which commands run."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_first_upload_is_told_its_base_without_a_service(run_here: Run, here: Path) -> None:
    """The base is named, and the sentence says what was made of it; of a stranger, nothing is."""
    done = run_here("anatomy", "child.safetensors", "--catalogue", "bases.mkct")
    tensors, models, said = done.stdout.rstrip("\n").split("\n\n")
    digest = Catalogue.load(here / "bases.mkct").digest
    assert f"looked up: 2 bases of the catalogue, {digest}" == tensors.splitlines()[-1]
    head, row = models.splitlines()
    assert ["P", "E"] == head.split()[-2:]
    assert ["org/first", "shares", "weights"] == row.split()[:3]
    assert said.startswith("another layout than org/first's: fused")
    done = run_here("anatomy", "model-2.safetensors", "--catalogue", "bases.mkct")
    assert done.stdout.endswith(
        "\n\nnone of 2 bases of the catalogue is an ancestor, as far as lines show; absence proves "
        "nothing.\n"
    )


def test_models_are_given_beside_a_catalogue(run_here: Run, here: Path) -> None:
    """All are compared, E is of all, and one with the name of a base is refused."""
    asked = ("anatomy", "child.safetensors", "--catalogue", "bases.mkct", "--with")
    answer = json.loads(run_here(*asked, "model-2.safetensors", "--json").stdout)
    digest = Catalogue.load(here / "bases.mkct").digest
    assert {"bases": 2, "digest": digest} == answer["catalogue"]
    [parent] = answer["parents"]
    assert np.log10(3) == pytest.approx(parent["log10_e"] - parent["log10_p"])
    done = run_here(*asked, "org/first=model-2.safetensors")
    assert (1, "") == (done.returncode, done.stdout)
    assert "would have the name of a base, 'org/first'" in done.stderr


def test_what_a_catalogue_holds(run_here: Run, here: Path) -> None:
    """A row for each base, and all that is known of one."""
    done = run_here("catalogue", "show", "bases.mkct")
    assert ["model-1", "org/first"] == [row.split()[0] for row in done.stdout.splitlines()[4:]]
    catalogue = Catalogue.load(here / "bases.mkct")
    shown = json.loads(run_here("catalogue", "show", "bases.mkct", "--json").stdout)
    assert [base.to_json() for base in catalogue.values()] == shown["bases"]
    one = run_here("catalogue", "show", "bases.mkct", "org/first").stdout
    assert "licence     mit" in one.splitlines()
    assert f"digest      {catalogue['org/first'].digest}" in one.splitlines()
    done = run_here("catalogue", "show", "bases.mkct", "org/second")
    assert "the catalogue has no base 'org/second'" in done.stderr


def test_a_line_that_fails_is_told(run_here: Run, here: Path) -> None:
    """The command ends with 1 and writes the others; again, it reads what failed alone."""
    with (here / "list").open("a") as lines:
        lines.write("\nmodel-9.safetensors")
    done = run_here("catalogue", "build", "list", "-o", "bases.mkct")
    assert 1 == done.returncode
    assert "line 3, model-9.safetensors: " in done.stderr
    assert done.stdout.startswith("bases.mkct: 2 bases, 2 read now")
    save(here / "model-9.safetensors", model(9))
    done = run_here("catalogue", "build", "list", "-o", "bases.mkct")
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("bases.mkct: 3 bases, 1 read now")
    assert not (here / "bases.mkct.building").exists()
