"""``modelkin support`` and ``modelkin inspect``, as a shell sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import modelkin
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.cli.commands import inspection
from tests.sdk.cli.conftest import Run, shown_on_a_terminal
from tests.sdk.cli.files import random_tensors, save

LARGE = 150_000_000
"""Parameters of the large checkpoint: 300 MB of bfloat16, 600 MB as float32."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small checkpoint in the folder where commands run."""
    return save(tmp_path / "m.safetensors", random_tensors())


def test_support_writes_the_support_and_says_so(run: Run, path: Path) -> None:
    """The file holds the checkpoint's support; one line gives its size and coverage."""
    done = run("support", "m.safetensors", "--fraction", "0.1", "-o", "m.mksp")
    size = (path.parent / "m.mksp").stat().st_size
    assert (
        f"m.mksp: 131 of 1,316 parameters (9.95%) with 26.5% of all |w|, {size} bytes\n"
        == done.stdout
    )
    assert (0, "") == (done.returncode, done.stderr)


def test_support_as_json(run_here: Run, path: Path) -> None:
    """--json prints one object, nothing else, with the digest of the file's support."""
    done = run_here("support", "m.safetensors", "--support-size", "77", "-o", "m.mksp", "--json")
    support = modelkin.Support.from_bytes((path.parent / "m.mksp").read_bytes())
    answer = json.loads(done.stdout)
    assert (77, 1316, support.digest) == (support.k, support.num_parameters, answer["digest"])
    assert answer.keys() == {
        *("file", "bytes", "kind", "num_parameters", "support_size", "density", "coverage"),
        *("digest", "notes"),
    }


def test_support_of_a_change(run_here: Run, path: Path) -> None:
    """--base makes it a delta, and one that is mostly rounding is noted on standard error."""
    rounded = {name: t.bfloat16() for name, t in random_tensors().items()}
    base = save(path.parent / "b.safetensors", rounded)
    done = run_here(
        "support", "m.safetensors", "--base", "b.safetensors", "--support-size", "9", "-o", "m.mksp"
    )
    expected = select_from_checkpoint(open_checkpoint(path), open_checkpoint(base))
    written = modelkin.Support.from_bytes((path.parent / "m.mksp").read_bytes())
    assert "of all |w - base|" in done.stdout
    assert set(written.indices) <= set(expected.indices)
    assert (
        "modelkin: note: the base is BF16, the checkpoint F32: 100% of the differences are within "
        "the rounding of such a base: give the base in the checkpoint's precision where there is "
        "one\n" == done.stderr
    )


def test_inspect_reads_what_support_writes(run_here: Run, path: Path) -> None:
    """A support is verified whole and described."""
    run_here("support", "m.safetensors", "--support-size", "77", "-o", "m.mksp")
    done = run_here("inspect", "m.mksp")
    digest = modelkin.Support.from_bytes((path.parent / "m.mksp").read_bytes()).digest
    lines = done.stdout.splitlines()
    assert "support     77 of 1,316 parameters (5.85%)" == lines[0]
    assert f"digest      {digest}" == lines[2]


def test_inspect_a_checkpoint(run_here: Run, path: Path) -> None:
    """A checkpoint is its tensors, in the order in which people read them."""
    assert run_here("inspect", "m.safetensors").stdout == (
        "checkpoint  1,316 parameters in 6 tensors\n"
        "dtypes      F32 1,316\n"
        "\n"
        "TENSOR       DTYPE  SHAPE     PARAMETERS\n"
        "a.scalar     F32    []                 1\n"
        "body.bias    F32    [32]              32\n"
        "body.weight  F32    [32, 30]         960\n"
        "empty        F32    [0, 3]             0\n"
        "z.last       F32    [3]                3\n"
        "head.weight  F32    [10, 32]         320\n"
    )


def test_inspect_a_signature(run_here: Run, path: Path) -> None:
    """A signature says what it was made of and how."""
    signature = modelkin.Support.from_indices([1, 5, 9], 50).signature(num_perm=16, seed=3)
    (path.parent / "s").write_bytes(signature.to_bytes())
    assert (
        "signature  of 3 of 50 parameters\nscheme     affine32, 16 permutations, seed 3\n"
        == run_here("inspect", "s").stdout
    )


MISTAKES = {
    "no file": (["inspect", "none"], 1, "modelkin: none: No such file or directory"),
    "no checkpoint": (["inspect", "junk"], 1, "modelkin: junk: it is text that begins with 'xxx"),
    "damaged": (["inspect", "damaged"], 1, "modelkin: the CRC-32 in the last four bytes"),
    "no base": (
        ["support", "m.safetensors", "--kind", "delta", "-o", "o"],
        1,
        "modelkin: --kind delta needs --base CHECKPOINT",
    ),
    "too much of one": (
        ["support", "m.safetensors", "--kind", "weight", "--base", "m.safetensors", "-o", "o"],
        1,
        "modelkin: --kind weight needs no --base",
    ),
    "no change": (
        ["support", "m.safetensors", "--base", "m.safetensors", "-o", "o"],
        1,
        "modelkin: all 1316 entries of the importance are zero",
    ),
    "k": (
        ["support", "m.safetensors", "--support-size", "0", "-o", "o"],
        1,
        "modelkin: k must be 1 to 1316",
    ),
    "no folder": (
        ["support", "m.safetensors", "-o", "none/o"],
        1,
        "No such file or directory",
    ),
    "two sizes": (
        ["support", "m", "--support-size", "1", "--coverage", "1", "-o", "o"],
        2,
        "not allowed",
    ),
    "no command": (["merge"], 2, "modelkin merge: say which of create, show, join, plan"),
    "abbreviation": (["support", "m", "--cov", "1", "-o", "o"], 2, "--cov"),
    "no number": (["support", "m", "--k-max", "x", "-o", "o"], 2, "share or count value: 'x'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_end_in_one_line(run_here: Run, path: Path, mistake: str) -> None:
    """What is wrong is the last line of standard error; nothing is printed, nothing written."""
    (path.parent / "junk").write_bytes(b"x" * 99)
    (path.parent / "damaged").write_bytes(b"MKSP\1" + bytes(99))
    before = sorted(path.parent.iterdir())
    arguments, code, message = MISTAKES[mistake]
    done = run_here(*arguments)
    assert (code, "") == (done.returncode, done.stdout)
    assert message in done.stderr.splitlines()[-1]
    assert code == 2 or done.stderr.count("\n") == 1
    assert before == sorted(path.parent.iterdir())


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "modelkin: interrupted\n"),
        (MemoryError(), 1, "modelkin: there is not enough memory for this\n"),
        (
            OSError(28, "No space left on device"),
            1,
            "modelkin: [Errno 28] No space left on device\n",
        ),
    ],
)
def test_what_comes_from_outside_ends_in_one_line(
    run_here: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    """Ctrl-C, no memory and a full disk show no traceback."""
    monkeypatch.setattr(inspection, "show", Mock(side_effect=error))
    done = run_here("inspect", "m.safetensors")
    assert (code, "", message) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(path: Path) -> None:
    """Where the reader of a pipe has gone, as `head` does, nothing is said about it."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "modelkin", "inspect", str(path)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (1, b"") == (done.returncode, done.stderr)


@pytest.mark.slow
def test_a_terminal_of_few_letters_is_no_error(run_anew: Run, tmp_path: Path) -> None:
    """What the output's encoding lacks is spelled out."""
    save(tmp_path / "m.safetensors", {"größe": torch.ones(2)})
    done = run_anew("inspect", "m.safetensors", PYTHONIOENCODING="ascii")
    assert (0, "") == (done.returncode, done.stderr)
    assert "gr\\xf6\\xdfe" in done.stdout


def test_a_small_support_is_a_note(run_here: Run, tmp_path: Path) -> None:
    """Fewer positive weights than requested: standard error and the JSON have a note."""
    save(tmp_path / "m.safetensors", {"w": torch.tensor([0.0, 1.0, 0.0, 2.0])})
    done = run_here("support", "m.safetensors", "--support-size", "3", "-o", "m.mksp", "--json")
    (note,) = json.loads(done.stdout)["notes"]
    assert f"modelkin: note: {note}\n" == done.stderr
    assert note.startswith("only 2 of 4 entries are positive")


def test_names_of_strangers_cannot_write_to_the_terminal(run_here: Run, tmp_path: Path) -> None:
    """Escape sequences in a tensor's name are spelled out where the name is refused."""
    save(tmp_path / "m.safetensors", {"w\x1b[2J": torch.ones(2)})
    assert "w\\x1b[2J" in run_here("inspect", "m.safetensors").stderr


def test_the_version(run: Run) -> None:
    """--version names the program and its version."""
    assert f"modelkin {modelkin.__version__}\n" == run("--version").stdout


@pytest.mark.slow
def test_progress_shows_on_a_terminal_alone(path: Path) -> None:
    """With a terminal as standard error there is a bar, which is wiped away in the end."""
    shown = shown_on_a_terminal(path.parent, "support", "m.safetensors", "-o", "m.mksp")
    assert "reading m.safetensors, pass 1 [" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.slow
def test_a_large_checkpoint_takes_little_memory(tmp_path: Path) -> None:
    """300 MB of bfloat16 are selected in less memory than the file alone would take."""
    weights = torch.empty(LARGE // 10, dtype=torch.bfloat16).normal_()
    save(tmp_path / "m.safetensors", {f"w{i}": weights.clone() for i in range(10)})
    del weights
    code = (
        "from modelkin.cli import main\n"
        "assert main(['support', 'm.safetensors', '-o', 'm.mksp']) == 0\n"
        # The peak of this program alone: getrusage would count the process that started it.
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(done.stdout.splitlines()[-1]) < 260_000
