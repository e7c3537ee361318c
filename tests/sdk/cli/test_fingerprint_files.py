"""Files of fingerprints on the command line: what they hold, and which commands take none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sdk.cli.conftest import Run
from tests.sdk.wire.fingerprints import drawn
from tests.sdk.wire.payloads import sealed

FINGERPRINT = drawn(3, tensors=9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of one of nine tensors."""
    path = tmp_path / "base.mkfp"
    FINGERPRINT.save(path)
    return path


def test_inspect_shows_the_tensors(run_here: Run, file: Path) -> None:
    """Each with its lines and keys, or why it is not compared."""
    shown = run_here("inspect", "base.mkfp").stdout
    assert "fingerprint  22 keys of 22 lines in 9 tensors\nscale        1\n" in shown
    assert f"size         {file.stat().st_size:,} bytes, " in shown
    assert f"digest       {FINGERPRINT.digest}\n" in shown
    table = [line.split("  ") for line in shown.partition("\n\n")[2].splitlines()]
    rows = [[cell.strip() for cell in line if cell] for line in table]
    assert ["TENSOR", "SHAPE", "LINES", "KEYS", "NOT COMPARED"] == rows[0]
    assert ["τ.3.0, τ.3.1", "[3, 3, 64, 96]", "16", "16"] == rows[4]
    assert ["τ.4.0", "[]", "0", "0", "vectors, or a side below 64"] == rows[5]
    assert "tables that no training made" in rows[1]


def test_inspect_has_fields(run_here: Run, file: Path) -> None:
    """With ``--json`` the same for programs; a coarser one has fewer keys of as many lines."""
    fields = json.loads(run_here("inspect", "base.mkfp", "--json").stdout)
    tensors = fields.pop("tensors")
    assert fields == {
        "kind": "fingerprint",
        "scheme": "lines1",
        "scale": 1,
        "keys": 22,
        "lines": 22,
        "bytes": file.stat().st_size,
        "digest": FINGERPRINT.digest,
        "notes": [],
    }
    assert {
        "names": ["τ.3.0", "τ.3.1"],
        "shape": [3, 3, 64, 96],
        "lines": 16,
        "keys": 16,
        "reason": None,
        "signature": True,
    } == tensors[3]
    assert ("short", False) == (tensors[4]["reason"], tensors[4]["signature"])
    FINGERPRINT.at(4).save(file)
    coarser = json.loads(run_here("inspect", "base.mkfp", "--json").stdout)
    assert (4, 22) == (coarser["scale"], coarser["lines"])
    assert sum(tensor["keys"] for tensor in coarser["tensors"]) < 22
    assert "scale        4: one line in 4 is kept\n" in run_here("inspect", "base.mkfp").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("push", "base.mkfp", "--model", "a"),
        ("assign", "base.mkfp"),
        ("neighbors", "--file", "base.mkfp"),
        ("start", "base.mkfp"),
    ],
)
def test_commands_of_spaces_take_none(run_here: Run, file: Path, words: tuple[str, ...]) -> None:
    """They name what the file is, and the commands that take it, in one line."""
    where = ("--space", "s", "--url", "http://127.0.0.1:9")
    done = run_here(*words, *where)
    assert 1 == done.returncode
    assert 1 == done.stderr.count("\n"), done.stderr
    assert "base.mkfp is a fingerprint of a checkpoint, and belongs to no space" in done.stderr
    assert "`modelkin anatomy`" in done.stderr


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-1], "the CRC-32 in the last four bytes does not match"),
        (lambda data: data[:4] + b"\2" + data[5:], "version 2 (byte 4) is unknown"),
        (lambda data: sealed(data[:5] + b"\2" + data[6:-4]), "scheme: 2 (byte 5) is unknown"),
    ],
)
def test_commands_name_what_is_wrong(run_here: Run, file: Path, damage: object, says: str) -> None:
    """A damaged file, and one of a newer version or scheme, are refused in one line: no two schemes
    are ever compared.
    """
    assert callable(damage)
    FINGERPRINT.save(file.with_name("good.mkfp"))
    file.write_bytes(damage(file.read_bytes()))
    for words in (("inspect", "base.mkfp"), ("anatomy", "good.mkfp", "--with", "base.mkfp")):
        done = run_here(*words)
        assert (1, 1) == (done.returncode, done.stderr.count("\n"))
        assert says in done.stderr
