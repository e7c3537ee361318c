"""``modelkin fingerprint`` and ``modelkin anatomy``, as a shell sees them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkin
from modelkin import checkpoints
from tests.sdk.cli.conftest import Run, shown_on_a_terminal
from tests.sdk.core.fingerprints.planted import DERIVED, LAYERS, Tensors, model
from tests.sdk.core.fingerprints.stored import STORED
from tests.support.faults.interruptions import heed_interrupts
from tests.support.models.gguf_files import as_llama_cpp, llama, write_gguf

KINDS = ("down", "k", "o", "q", "up", "v")
ORIGIN = (
    "Equal lines mean a common origin: a base, a checkpoint, or the same random seed. Which of two "
    "came first, they do not say."
)
NOTHING = "no model given is an ancestor, as far as lines show; absence proves nothing."


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, an up-scaled model of it in 8 bits, and a stranger, written once."""
    folder, base = tmp_path_factory.mktemp("written"), model(0)
    save(folder / "base.safetensors", base)
    save(folder / "child.safetensors", DERIVED["up-scaled"](DERIVED["8 bits"](base)))
    save(folder / "stranger.safetensors", model(1))
    checkpoints.fingerprint(folder / "child.safetensors").save(folder / "child.mkfp")
    return folder


@pytest.fixture
def here(written: Path, tmp_path: Path) -> Path:
    """A folder with these files, in which commands run."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def save(path: Path, tensors: Tensors) -> None:
    """A checkpoint of one file."""
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, path)


def test_an_anatomy_is_a_table_by_layer_and_kind(run_here: Run, here: Path) -> None:
    """Rows of layers with their sources, what is left out, the models, and the sentences."""
    done = run_here(
        "anatomy", "child.safetensors", "--with", "base.safetensors", "stranger.safetensors"
    )
    assert (0, "") == (done.returncode, done.stderr)
    tensors, models, said = done.stdout.rstrip("\n").split("\n\n")
    rows = [line.split("  ") for line in tensors.splitlines()]
    assert ["TENSORS", "FROM", "ITS TENSORS", "SHARE", "P"] == list(filter(None, rows[0]))
    assert ["embed", "layers 0-2 down", "layers 3-5 down"] == [row[0].strip() for row in rows[1:4]]
    assert ["base", "layers 1-3 down"] == [cell.strip() for cell in rows[3] if cell][1:3]
    last = tensors.splitlines()[-1]
    assert re.fullmatch(r"compared: 2,\d{3} lines of the checkpoint, at scale 4", last)
    base, stranger = models.splitlines()[1:]
    assert ["base", "shares", "weights"] == base.split()[:3]
    assert ["stranger", "nothing", "found"] == stranger.split()
    assert ORIGIN == said.splitlines()[-1]


def test_where_nothing_is_found_that_proves_nothing(run_here: Run, here: Path) -> None:
    """All tensors are unknown, and the last words say what it means."""
    done = run_here("anatomy", "stranger.safetensors", "--with", "base.safetensors")
    lines = done.stdout.splitlines()
    assert 1 + len(KINDS) == sum(line.endswith("unknown") for line in lines)
    assert NOTHING == lines[-1]


def test_a_rotated_model_has_the_inner_products_of_its_base(run_here: Run, here: Path) -> None:
    """They are shown beside an anatomy that has nothing to say, as evidence and no verdict."""
    save(here / "rotated.safetensors", STORED["rotated"](model(0)))
    asked = ("anatomy", "rotated.safetensors", "--with", "base.safetensors", "stranger.safetensors")
    done = run_here(*asked, "--inner-products")
    *_, said, shown = done.stdout.rstrip("\n").split("\n\n")
    assert NOTHING == said
    head, base, stranger = shown.splitlines()
    assert ["INNER", "PRODUCTS", "ALIKE", "KAPPA", "WHAT", "THEY", "SAY"] == head.split()
    assert re.match(r"base +9 of 9 tensors +0\.9\d +its hidden units, in its order: ev", base)
    assert re.match(r"stranger +0 of 9 tensors +nothing", stranger)
    found = json.loads(run_here(*asked, "--inner-products", "--json").stdout)["inner_products"]
    assert (9, True, []) == (
        len(found["base"]["alike"]),
        found["base"]["is_evidence"],
        found["stranger"]["alike"],
    )


def test_an_anatomy_as_json(run_here: Run, here: Path) -> None:
    """One object: the tensors with their sources, the parents, the relations, all names."""
    done = run_here(
        *("anatomy", "child.safetensors", "--with", "first=base.safetensors", "--json"),
        *("--with", "stranger.safetensors", "--scale", "8"),
    )
    answer = json.loads(done.stdout)
    models = {"first": here / "base.safetensors", "stranger": here / "stranger.safetensors"}
    expected = modelkin.anatomy(here / "child.safetensors", models, scale=8).to_json()
    assert expected == {name: answer[name] for name in expected}
    assert {"first": "base.safetensors", "stranger": "stranger.safetensors"} == answer["models"]
    assert 8 == answer["scale"]
    [source, *_] = answer["tensors"][1]["sources"]
    assert ("first", ["layers.0.down"]) == (source["model"], source["names"])


def test_a_fingerprint_is_a_file_that_stands_for_a_checkpoint(run_here: Run, here: Path) -> None:
    """It is that of the SDK, and gives the same anatomy."""
    done = run_here("fingerprint", "base.safetensors", "-o", "base.mkfp", "--json")
    answer = json.loads(done.stdout)
    made = checkpoints.fingerprint(here / "base.safetensors")
    assert made == modelkin.Fingerprint.load(here / "base.mkfp")
    assert (made.digest, made.scale, made.distinct.size) == (
        *(answer["digest"], answer["scale"], answer["keys"]),
    )
    assert {"short": 1} == answer["not_comparable"]
    assert (here / "base.mkfp").stat().st_size == answer["bytes"]
    whole = run_here("anatomy", "child.safetensors", "--with", "base.safetensors")
    assert whole.stdout == run_here("anatomy", "child.safetensors", "--with", "base.mkfp").stdout


def test_a_fingerprint_says_what_it_holds(run_here: Run, here: Path) -> None:
    """One line, and one for each reason why tensors have no lines."""
    done = run_here(
        "fingerprint", "base.safetensors", "--exclude", "embed", "--scale", "4", "-o", "b.mkfp"
    )
    size = (here / "b.mkfp").stat().st_size
    first, second = done.stdout.splitlines()
    assert first.startswith("b.mkfp: ")
    assert first.endswith(f" of {LAYERS * 2048:,} lines at scale 4, {size:,} bytes")
    assert (
        "not compared: 1 tensor (0.0% of the parameters): vectors, or a side below 64, such as norm"
        == second
    )


@pytest.mark.slow
def test_pipes_stand_in_for_files(here: Path) -> None:
    """A fingerprint goes through a pipe into an anatomy."""
    command = f"{sys.executable} -m modelkin"
    piped = (
        f"{command} fingerprint child.safetensors -o - | "
        f"{command} anatomy - --with base.safetensors --json"
    )
    done = subprocess.run(piped, shell=True, cwd=here, capture_output=True, text=True, check=True)
    assert "base" == json.loads(done.stdout)["parents"][0]["model"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_a_plot_is_drawn_by_the_ending_of_its_name(run_here: Run, here: Path, ending: str) -> None:
    """The picture is of the anatomy; the answer stays."""
    (here / "b").mkdir()
    done = run_here(
        *("anatomy", "child.safetensors", "--with", "base.safetensors"),
        *("--plot", f"b/a.{ending}", "--json"),
    )
    assert f"b/a.{ending}" == json.loads(done.stdout)["plot"]
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype html>"}
    assert (here / "b" / f"a.{ending}").read_bytes().startswith(starts[ending])
    assert [f"a.{ending}"] == [path.name for path in (here / "b").iterdir()]


def test_gguf_and_its_original_are_kin(run_here: Run, tmp_path: Path) -> None:
    """A quantised file is read under its own names; a note says what its values come from."""
    write_gguf(tmp_path / "m.gguf", as_llama_cpp(llama(1)), "Q8_0")
    save(tmp_path / "m.safetensors", llama(1))
    done = run_here("anatomy", "m.gguf", "--with", "original=m.safetensors")
    assert "original" in done.stdout
    assert "nothing found" not in done.stdout
    assert "modelkin: note: its values are dequantised from Q8_0\n" == done.stderr


def test_a_finer_scale_than_a_fingerprint_has_is_told(run_here: Run, here: Path) -> None:
    """What was asked for cannot be compared, and a note says with what it could."""
    checkpoints.fingerprint(here / "base.safetensors", scale=8).save(here / "base.mkfp")
    done = run_here("anatomy", "child.safetensors", "--with", "base.mkfp", "--scale", "2")
    assert (
        "modelkin: note: --scale 2 is not that of the fingerprint base, which has scale 8: give "
        "its checkpoint, or make the fingerprint with --scale 2\n" == done.stderr
    )
    assert "at scale 8" in done.stdout


def test_a_folder_gives_a_model_its_name(run_here: Run, here: Path) -> None:
    """``model.safetensors`` is no name: the folder's is taken, as hubs name models."""
    (here / "lab" / "chat").mkdir(parents=True)
    (here / "base.safetensors").rename(here / "lab" / "chat" / "model.safetensors")
    for given in ("lab/chat", "lab/chat/model.safetensors"):
        done = run_here("anatomy", "child.mkfp", "--with", given, "--json")
        assert "chat" == json.loads(done.stdout)["parents"][0]["model"]


ADAPTER = {"base_model.model.q.lora_A.weight": (4, 64), "base_model.model.q.lora_B.weight": (64, 4)}

MISTAKES = {
    "no file": ("anatomy none --with base.safetensors", 1, "none: No such file or directory"),
    "no model's file": ("anatomy base.mkfp --with a=none", 1, "none: No such file or"),
    "no checkpoint": ("anatomy junk --with base.safetensors", 1, "junk: it is text that begins"),
    "neither here nor there": (
        "anatomy gone.safetensors",
        1,
        "there is no file 'gone.safetensors'",
    ),
    "a name at a scale": ("relatives org/m --scale 8", 1, "a stored fingerprint has its own"),
    "inner products of none": (
        "anatomy base.safetensors --inner-products",
        1,
        "--inner-products compares checkpoints: give them by --with",
    ),
    "one name twice": (
        "anatomy child.safetensors --with base.safetensors x/base.safetensors",
        1,
        "--with: base.safetensors and x/base.safetensors would both be named 'base': give a name, "
        "as in --with base-2=x/base.safetensors",
    ),
    "an adapter": (
        "fingerprint lora -o o.mkfp",
        1,
        "lora: it is an adapter, whose factors are no lines of a model: merge it into its base",
    ),
    "an adapter among models": (
        "anatomy base.mkfp --with lora",
        1,
        "lora: it is an adapter",
    ),
    "NaN": (
        "anatomy nan.safetensors --with base.mkfp",
        1,
        "nan.safetensors: tensor 'layers.1.up' has",
    ),
    "a scale": ("fingerprint base.safetensors --scale 3 -o o.mkfp", 1, "a power of two"),
    "no scale": ("anatomy base.safetensors --with base.mkfp --scale 0", 1, "power of two"),
    "a scale of finished ones": (
        "anatomy base.mkfp --with a=base.mkfp --scale 3",
        1,
        "power of two",
    ),
    "a word for a scale": ("fingerprint base.safetensors --scale x -o o.mkfp", 2, "invalid int"),
    "another version": ("anatomy later.mkfp --with base.safetensors", 1, "later.mkfp: version"),
    "a cut fingerprint": ("anatomy base.mkfp --with cut.mkfp", 1, "cut.mkfp: the CRC-32"),
    "a fingerprint of one": ("fingerprint base.mkfp -o o.mkfp", 1, "base.mkfp is a finished"),
    "a support of one": ("support base.mkfp -o o", 1, "base.mkfp: it is a fingerprint of modelkin"),
    "no folder": (
        "anatomy child.safetensors --with base.safetensors --plot no/a.png",
        1,
        "--plot no/a.png: there is no folder no",
    ),
    "inner products of a fingerprint": (
        "anatomy child.safetensors --with base.mkfp --inner-products",
        1,
        "--inner-products: base.mkfp is a fingerprint, which has none: give its checkpoint",
    ),
    "no folder for it": (
        "fingerprint base.safetensors -o no/o.mkfp",
        1,
        "no/o.mkfp: there is no folder no",
    ),
    "a name without a file": ("anatomy base.mkfp --with a=", 1, "a=: No such file or directory"),
    "itself": ("fingerprint base.safetensors -o base.safetensors", 1, "is the checkpoint itself"),
    "a pattern": ("fingerprint base.safetensors --exclude no.* -o o.mkfp", 1, "no tensor name"),
    "a picture": (
        "anatomy child.safetensors --with base.safetensors --plot a.gif",
        1,
        "--plot a.gif: end the name in .png, .svg, .pdf, or .html",
    ),
}


@pytest.fixture(scope="module")
def mistaken(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with these files and with broken ones, in which nothing is written."""
    folder = tmp_path_factory.mktemp("mistaken")
    shutil.copytree(written, folder, dirs_exist_ok=True)
    (folder / "junk").write_text("x" * 99)
    (folder / "x").mkdir()
    save(folder / "x" / "base.safetensors", {"w": np.ones((2, 2), np.float32)})
    (folder / "lora").mkdir()
    save(
        folder / "lora" / "adapter_model.safetensors",
        {name: np.ones(shape, np.float32) for name, shape in ADAPTER.items()},
    )
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q"]}
    (folder / "lora" / "adapter_config.json").write_text(json.dumps(config))
    broken = np.ones((300, 100), np.float32)
    broken[3, 5] = np.nan
    save(folder / "nan.safetensors", {"layers.1.up": broken})
    made = checkpoints.fingerprint(folder / "base.safetensors").to_bytes()
    (folder / "base.mkfp").write_bytes(made)
    (folder / "cut.mkfp").write_bytes(made[: len(made) // 2])
    (folder / "later.mkfp").write_bytes(made[:4] + bytes([made[4] + 9]) + made[5:])
    return folder


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_in_a_line(
    run_here: Run, mistaken: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """What is wrong and what to do; nothing is written."""
    monkeypatch.chdir(mistaken)
    before = {path: path.stat().st_mtime_ns for path in mistaken.rglob("*")}
    words, code, said = MISTAKES[case]
    done = run_here(*words.split())
    assert (code, "") == (done.returncode, done.stdout)
    assert said in done.stderr
    assert 1 == done.stderr.count("\n")
    assert before == {path: path.stat().st_mtime_ns for path in mistaken.rglob("*")}


def test_without_a_library_a_picture_says_what_to_install(
    run_here: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read."""
    monkeypatch.setattr("modelkin.cli.pictures.find_spec", lambda _: None)
    done = run_here("anatomy", "none", "--with", "none", "--plot", "a.html")
    assert "pip install 'modelkin[plotly]'" in done.stderr


def test_too_coarse_a_scale_is_noted(run_here: Run, here: Path) -> None:
    """Few lines tell nothing, whatever the models are; the note says what to do."""
    run_here("fingerprint", "base.safetensors", "--scale", "4096", "-o", "base.mkfp")
    done = run_here("anatomy", "child.mkfp", "--with", "base.mkfp")
    assert "compared: 2 lines of the checkpoint, at scale 4,096" in done.stdout
    assert "modelkin: note: at scale 4,096 only 2 lines can be compared: give" in done.stderr


@pytest.mark.slow
def test_all_lines_find_more(run_here: Run, here: Path) -> None:
    """Where a sample leaves tensors unknown, a word says what may find them."""
    save(here / "noisy.safetensors", DERIVED["noise .2"](model(0)))
    done = run_here("anatomy", "noisy.safetensors", "--with", "base.safetensors", "--scale", "32")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("compared: ")]
    assert re.search(r"; \d+ tensors unknown, for which --scale 1 compares all lines$", line)
    whole = run_here("anatomy", "noisy.safetensors", "--with", "base.safetensors", "--scale", "1")
    assert "unknown" not in whole.stdout


def test_links_and_folders_are_not_written_through(run_here: Run, here: Path) -> None:
    """Neither a fingerprint nor a picture."""
    (here / "link").symlink_to(here / "base.safetensors")
    for words in (
        "fingerprint child.safetensors -o link",
        "anatomy child.safetensors --with base.safetensors --plot link.png",
    ):
        (here / "link.png").unlink(missing_ok=True)
        (here / "link.png").symlink_to(here / "base.safetensors")
        done = run_here(*words.split())
        assert "is a link, and links are not followed" in done.stderr


def save_zeros(path: Path, tensors: int) -> None:
    """A checkpoint of 8 MiB a tensor, all in one hole of the file: it takes no room, and is read
    for far longer than its reader can go unseen.
    """
    described = {
        f"w{i}": {"dtype": "F32", "shape": [2048, 1024], "data_offsets": [i << 23, (i + 1) << 23]}
        for i in range(tensors)
    }
    header = json.dumps(described).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (tensors << 23))


@pytest.mark.slow
def test_an_interruption_leaves_nothing_half_written(tmp_path: Path) -> None:
    """Ctrl-C ends the reading in a line, and there is no file, not even one in parts."""
    save_zeros(tmp_path / "large.safetensors", tensors=4000)
    process = subprocess.Popen(
        [sys.executable, "-m", "modelkin", "fingerprint", "large.safetensors", "-o", "l.mkfp"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=heed_interrupts,
    )
    opened = Path(f"/proc/{process.pid}/fd")
    while process.poll() is None and not _reads(opened, "large.safetensors"):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (130, "modelkin: interrupted\n") == (process.returncode, error)
    assert ["large.safetensors"] == [path.name for path in tmp_path.iterdir()]


def _reads(opened: Path, name: str) -> bool:
    """Whether a process has a file open."""
    found = list[str]()
    with contextlib.suppress(OSError):  # of a process that has ended
        for each in opened.iterdir():
            with contextlib.suppress(OSError):  # others are closed meanwhile
                found.append(os.readlink(each))
    return any(each.endswith(name) for each in found)


@pytest.mark.slow
def test_a_terminal_shows_a_bar_while_files_are_read(here: Path) -> None:
    """One for each checkpoint, wiped in the end."""
    shown = shown_on_a_terminal(here, "anatomy", "child.safetensors", "--with", "base.safetensors")
    assert "reading child.safetensors [" in shown
    assert "reading base.safetensors [" in shown
    assert shown.endswith("\r\x1b[K")
