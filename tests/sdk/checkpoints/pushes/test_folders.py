"""Which checkpoints a folder has, and the names of their models."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.checkpoints.pushes.folders import FolderContent, checkpoints_below
from modelkin.checkpoints.pushes.gathering import gather
from modelkin.checkpoints.pushes.manifests import read_manifest
from modelkin.errors import InvalidParameter
from tests.support.models.checkpoints import random_tensors, safetensors, sharded

CARD = b"---\nbase_model: acme/base\n---\n"
FILE = safetensors(random_tensors(0))
PIPELINE = b'{"_class_name": "P", "unet": ["diffusers", "U"], "vae": ["diffusers", "V"]}'


def laid_out(root: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def names(root: Path) -> dict[str, str]:
    """The names of models, with the paths that are opened."""
    found = checkpoints_below(root).found
    return {each.name: each.path.relative_to(root).as_posix() for each in found}


def left_out(root: Path) -> dict[str, str]:
    """What is left out, and why."""
    content = checkpoints_below(root).left_out
    return {each.path.relative_to(root).as_posix(): each.reason for each in content}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.safetensors", "sub/b.gguf"], {"a": "a.safetensors", "sub/b": "sub/b.gguf"}),
        (["x/model.safetensors", "x/config.json"], {"x": "x"}),
        (["x/weights.safetensors"], {"x/weights": "x/weights.safetensors"}),
        (["x/w.safetensors", "x/config.json"], {"x": "x"}),
        (
            ["x/a.safetensors", "x/b.safetensors", "x/config.json"],
            {"x/a": "x/a.safetensors", "x/b": "x/b.safetensors"},
        ),
        (["x/adapter_model.safetensors", "x/adapter_config.json"], {"x": "x"}),
        (
            ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
            {"m": "m-00001-of-00002.gguf"},
        ),
        (["x/model.safetensors", "x/original/consolidated.safetensors"], {"x": "x"}),
        (
            ["model.safetensors", "later/model.safetensors"],
            {"{root}": ".", "later": "later"},
        ),
        ([".cache/a.safetensors", "._a.safetensors", "notes.txt"], {}),
    ],
)
def test_names_of_layouts(tmp_path: Path, files: list[str], expected: dict[str, str]) -> None:
    """A folder that holds one model is that model; other files are named by their paths."""
    root = laid_out(tmp_path, dict.fromkeys(files, FILE))
    assert {name.format(root=root.name): path for name, path in expected.items()} == names(root)


def test_shards_with_an_index_are_one_model(tmp_path: Path) -> None:
    """In a folder of their own and beside others; a set that lacks a file is said."""
    shards = sharded(random_tensors(0))
    laid_out(tmp_path / "own", shards)
    laid_out(tmp_path / "beside", {**shards, "a.safetensors": FILE})
    laid_out(tmp_path / "cut", {"model-00001-of-00003.safetensors": FILE})
    assert {
        "own": "own",
        "beside": "beside",
    } == names(tmp_path)
    assert "not complete" in left_out(tmp_path)["cut/model-00001-of-00003.safetensors"]


def test_a_card_makes_a_folder_one_model(tmp_path: Path) -> None:
    """A card about the folder's only checkpoint is that of the model; one of the top is not."""
    laid_out(tmp_path, {"README.md": CARD, "a.safetensors": FILE})
    laid_out(tmp_path / "b", {"README.md": CARD, "weights.safetensors": FILE})
    found = {each.name: each.has_card for each in checkpoints_below(tmp_path).found}
    assert {"a": False, "b": True} == found


def test_components_of_a_pipeline(tmp_path: Path) -> None:
    """Each component with weights is a model, as of a hub; what lies beside them is said."""
    parts = {f"p/{part}/diffusion_pytorch_model.safetensors": FILE for part in ("unet", "vae")}
    laid_out(tmp_path, {"p/model_index.json": PIPELINE, **parts})
    expected = {"p/unet": "p/unet", "p/vae": "p/vae"}
    assert (expected, {}) == (names(tmp_path), left_out(tmp_path))
    beside = ["v1-5-pruned.safetensors", "old.pt", "loras/x.safetensors", "a/b/c/deep.gguf"]
    within = ["unet/more/below/z.safetensors", "unet/.hidden.safetensors", "vae/.cache/a.gguf"]
    laid_out(tmp_path / "p", dict.fromkeys([*beside, *within], FILE))
    expected |= {"p/loras/x": "p/loras/x.safetensors", "p/a/b/c/deep": "p/a/b/c/deep.gguf"}
    assert expected == names(tmp_path)
    said = left_out(tmp_path)
    assert "pickle" in said.pop("p/old.pt")
    assert {
        "p/v1-5-pruned.safetensors": "it lies beside the components of a pipeline",
        "p/unet/more": "it is a part of the model in 'p/unet'",
    } == said


def test_parts_of_a_split_file_without_their_first(tmp_path: Path) -> None:
    """They are said, also beside the first of another number of parts."""
    laid_out(tmp_path, dict.fromkeys(["m-00001-of-00001.gguf", "m-00002-of-00003.gguf"], FILE))
    assert {"m-00001-of-00001": "m-00001-of-00001.gguf"} == names(tmp_path)
    assert "give m-00001-of-00003.gguf" in left_out(tmp_path)["m-00002-of-00003.gguf"]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Links, downloads, other formats and what lies within a model, each with its reason."""
    outside = laid_out(tmp_path / "outside", {"secret.safetensors": FILE})
    root = laid_out(
        tmp_path / "zoo",
        {
            "a.safetensors": FILE,
            "b.safetensors.part": b"",
            "c.pt": b"",
            "d.SafeTensors": FILE,
            "E.GGUF": b"",
            "D-1-of-2.SafeTensors": FILE,
            "m/model.safetensors": FILE,
            "m/pytorch_model.bin": b"",
            "m/deeper/model.safetensors": FILE,
            "m/deep/down/model.safetensors": FILE,
            "m/cached/._model.safetensors": FILE,
        },
    )
    (root / "out.safetensors").symlink_to(outside / "secret.safetensors")
    (root / "folder").symlink_to(outside)
    (root / "gone.safetensors").symlink_to(root / "nothing")
    (root / "within.safetensors").symlink_to(root / "a.safetensors")
    os.mkfifo(root / "pipe.safetensors")
    said = left_out(root)
    assert {
        "b.safetensors.part": "it is a download that has not ended",
        "D-1-of-2.SafeTensors": "indexes and shards are read by endings in small letters: "
        "name it D-1-of-2.safetensors",
        "folder": "it is a link that leads out of the folder",
        "gone.safetensors": "it is a link to nothing",
        "m/deep": "it is a part of the model in 'm'",
        "m/deeper": "it is a part of the model in 'm'",
        "out.safetensors": "it is a link that leads out of the folder",
        "pipe.safetensors": "it is no file",
    } == {path: reason for path, reason in said.items() if path != "c.pt"}
    assert "pickle" in said["c.pt"]
    assert {"E", "a", "d", "m", "within"} == names(root).keys()


def test_a_closed_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold what should have been sent; the others are found."""
    laid_out(tmp_path, {"a.safetensors": FILE, "closed/b.safetensors": FILE})
    opened = os.scandir

    def refusing(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(os, "scandir", refusing)
    content = checkpoints_below(tmp_path)
    assert ["a"] == [each.name for each in content.found]
    assert [("closed", True)] == [(e.path.name, e.is_error) for e in content.left_out]


SEGMENT = st.sampled_from(["a", "b", "model", "x.y", "ä", "A", "unet", "vae"])
PATH = st.lists(SEGMENT, min_size=1, max_size=3).map("/".join)
ENDING = st.sampled_from([".safetensors", ".gguf", "-00001-of-00002.gguf"])
FOLDER = st.lists(SEGMENT, max_size=2).map(lambda names: "".join(f"{name}/" for name in names))


def is_told(path: Path, content: FolderContent) -> bool:
    """Whether a file is of a model that was found, or left out."""
    models = {each.path for each in content.found}
    said = {each.path for each in content.left_out}
    return bool({path, path.parent} & models or {path, *path.parents} & said)


@given(
    st.lists(st.tuples(PATH, ENDING).map("".join), min_size=1, max_size=8, unique=True),
    st.sets(FOLDER, max_size=2),
)
def test_names_are_stable_and_unique(paths: list[str], pipelines: set[str]) -> None:
    """Whatever the layout: the same names again, none twice, and each file once or said."""
    with TemporaryDirectory() as folder:
        root = laid_out(Path(folder), dict.fromkeys(paths, b""))
        laid_out(root, {f"{each}model_index.json": PIPELINE for each in pipelines})
        content = checkpoints_below(root)
        assert [] == [path for path in paths if not is_told(root / path, content)]
        found = gather(root, "acme/", None)
        assert found == gather(root, "acme/", None)
        models = [each.model for each in found.named]
        assert sorted(set(models)) == models
        assert all(name.startswith("acme/") for name in models)
        clashes = [each for each in found.results if "give this name" in (each.reason or "")]
        assert len(clashes) != 1
        assert {*models}.isdisjoint(each.model for each in clashes)


def test_two_paths_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    """Neither is taken, and both are named."""
    laid_out(tmp_path, {"a.safetensors": FILE, "a.gguf": FILE, "b.safetensors": FILE})
    found = gather(tmp_path, "", None)
    assert ["b"] == [each.model for each in found.named]
    assert ["failed"] * 2 == [each.state for each in found.results]
    assert all("a.gguf" in (each.reason or "") for each in found.results)


def test_paths_give_names_of_models(tmp_path: Path) -> None:
    """Without endings and parts; a file named as most are has the name of its folder."""
    files = ["a/model.safetensors", "b/model.safetensors.index.json", "c-00001-of-00002.gguf"]
    laid_out(tmp_path, dict.fromkeys([*files, "c.gguf", "d.safetensors/x"], b""))
    given = [*files, "d.safetensors"]
    found = gather([tmp_path / each for each in given], "p/", None)
    assert ["p/a", "p/b", "p/c", "p/d"] == [each.model for each in found.named]
    same = gather([tmp_path / "c.gguf", tmp_path / files[2]], "", None)
    assert ["c", "c"] == [each.model for each in same.results]
    assert ["as in CheckpointItem(path, model)"] * 2 == [
        str(each.reason).partition("a name, ")[2] for each in same.results
    ]


def test_a_name_that_no_model_has(tmp_path: Path) -> None:
    """It fails with the reason, and a manifest can name it."""
    laid_out(tmp_path, {"<b>bold.safetensors": FILE, f"{'n' * 201}.safetensors": FILE})
    [first, second] = gather(tmp_path, "", None).results
    assert "manifest" in (first.reason or "")
    assert "manifest" in (second.reason or "")
    manifest = tmp_path / "names.csv"
    manifest.write_text("path,name\n<b>bold.safetensors,bold\n")
    [bold] = gather(tmp_path, "acme/", manifest).named
    assert "acme/bold" == bold.model


def test_a_manifest_says_names_bases_tags_and_spaces(tmp_path: Path) -> None:
    """By the path with or without its ending; what either lacks is said."""
    laid_out(tmp_path, {f"{name}.safetensors": FILE for name in "abc"})
    manifest = tmp_path / "zoo.csv"
    manifest.write_text(
        "path,name,base,tags,space\r\n"
        'a.safetensors,first,acme/base,"bird; v2",zoo\r\n'
        "b,,,,\r\n"
        "\r\n"
        "d.safetensors,,,,\r\n"
    )
    found = gather(tmp_path, "acme/", manifest)
    a, b = found.named
    assert ("acme/b", None, None, None) == (a.model, a.base_model, a.tags, a.space)
    assert ("acme/first", "acme/base", ("bird", "v2"), "zoo") == (
        b.model,
        b.base_model,
        b.tags,
        b.space,
    )
    assert {"failed": "line 5 of the manifest", "skipped": "it is not in the manifest"} == {
        each.state: (each.reason or "").partition(":")[0] for each in found.results
    }
    assert {""} == {each.model for each in found.results}  # a prefix alone is no name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name\na\n", "line 1: name each column once, and path among them"),
        ("path,nmae\na,b\n", "line 1: 'nmae' is no column of a manifest"),
        ("path,path\na,b\n", "line 1: name each column once"),
        ("path,name\na,b,c\n", "line 2: it has 3 cells, and the first line 2 columns"),
        ("path\n../a\n", "line 2: '../a' leads out of the folder"),
        ("path\n/etc/a\n", "line 2: '/etc/a' leads out"),
        ("path,name\na,<b>\n", "line 2: model name '<b>' has '<'"),
        ("path,space\na,UP\n", "line 2: space name 'UP'"),
        ("path\na\nb\na\n", "line 4: 'a' is in line 2, too"),
        ('path\n"a\n', "it is not CSV"),
        ("path\n", "it has no line of a checkpoint"),
        ("", "it has no line of a checkpoint"),
        ("path,tags\n,x\n", "line 2: its path is empty"),
        ("path\n\xff\n", "line 2: it is not UTF-8"),
    ],
)
def test_a_wrong_manifest_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    """With the line and what is wrong in it."""
    (tmp_path / "m.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidParameter) as refused:
        read_manifest(tmp_path / "m.csv")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: gather(path / "a.safetensors", "", path / "m.csv"),
        lambda path: gather([3], "", None),  # type: ignore[list-item]
        lambda path: gather(path, None, None),  # type: ignore[arg-type]
    ],
)
def test_other_arguments_are_refused(tmp_path: Path, call: Callable[[Path], object]) -> None:
    """A manifest without a folder, an item of another type, a prefix that is no text."""
    laid_out(tmp_path, {"a.safetensors": FILE, "m.csv": b"path\na\n"})
    with pytest.raises(InvalidParameter):
        call(tmp_path)
