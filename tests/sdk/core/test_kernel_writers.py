"""A second user of the machine: kernels that another user may write are not loaded."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from modelkin.core.kernels.writers import is_trusted

SOURCE = __file__
OTHER = 65534
"""The user ``nobody``."""
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can act as another user")

COUNTED = """
import numpy as np
from modelkin.core.kernels import fast
print(fast.and_count(np.ones(9, np.uint64), np.ones(9, np.uint64)))
"""
AS_OTHER = f"""
import colorsys, grp, os, pwd
import numba
from modelkin.core.kernels.loops import compile_loop
numba.njit(colorsys.rgb_to_yiq)(1.0, 1.0, 1.0)  # imports what the other may not read
os.environ["HOME"] = "/nonexistent"
os.setgroups([])
os.setresgid({OTHER}, {OTHER}, {OTHER})
os.setresuid({OTHER}, {OTHER}, {OTHER})
print(round(compile_loop(colorsys.rgb_to_yiq)(9.0, 9.0, 9.0)[0]))
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that keeps its kernels in a folder."""
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a kernel, as numba makes it: within its parent, with one file."""
    kernels = tmp_path / "kernels" / "fast_1"
    kernels.mkdir(parents=True)
    (kernels / "loop.nbi").write_bytes(b"")
    return kernels


def trusted(folder: Path) -> bool:
    is_trusted.cache_clear()
    return is_trusted(str(folder), SOURCE)


def test_a_folder_of_this_user_is_trusted(folder: Path) -> None:
    """Also in a folder like /tmp, where others may add theirs and not replace this one."""
    assert trusted(folder)
    folder.parent.chmod(0o1777)
    assert trusted(folder)


def part(folder: Path, which: str) -> Path:
    """The folder above, the folder, or a file in it."""
    return {"parent": folder.parent, "folder": folder, "file": folder / "loop.nbi"}[which]


@pytest.mark.parametrize("which", ["parent", "folder", "file"])
def test_what_all_may_write_is_not_trusted(folder: Path, which: str) -> None:
    """One place that everybody may write is enough."""
    part(folder, which).chmod(0o777)
    assert not trusted(folder)


@AS_ROOT
@pytest.mark.parametrize("which", ["parent", "folder", "file"])
def test_what_another_group_may_write_is_not_trusted(folder: Path, which: str) -> None:
    """A group that is named like the user is this user's alone; in others there are others."""
    path = part(folder, which)
    path.chmod(0o770)
    assert trusted(folder)
    os.chown(path, -1, OTHER)
    assert not trusted(folder)


def test_what_others_cannot_reach_is_trusted(folder: Path) -> None:
    """In a folder of mode 0700, whatever modes a umask of 002 or less gives the rest."""
    folder.chmod(0o777)
    part(folder, "file").chmod(0o666)
    folder.parent.chmod(0o711)
    assert not trusted(folder)
    folder.parent.chmod(0o700)
    assert trusted(folder)


def test_files_that_another_process_renames_change_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba renames each file that it has written; one listed before that is not there any more."""
    listed = [*folder.iterdir(), folder / "loop.nbi.tmp"]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    assert trusted(folder)


@AS_ROOT
@pytest.mark.parametrize("which", ["parent", "folder", "file"])
def test_what_another_user_owns_is_not_trusted(folder: Path, which: str) -> None:
    """An owner may write whatever the mode says today, also in a folder of mode 0700."""
    folder.parent.chmod(0o700)
    os.chown(part(folder, which), OTHER, OTHER)
    assert not trusted(folder)


@AS_ROOT
def test_who_may_write_the_source_may_write_the_kernels(folder: Path) -> None:
    """A clone of another user, in which root runs: its kernels are as good as its code."""
    source = folder.parents[1] / "source.py"
    source.write_text("")
    for path in (folder.parents[1], folder.parent, folder, folder / "loop.nbi", source):
        os.chown(path, OTHER, OTHER)
    assert is_trusted(str(folder), str(source))


class Planted:
    """An index of kernels that leaves a mark where a process reads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@AS_ROOT
@pytest.mark.slow
def test_code_that_another_user_has_planted_does_not_run(tmp_path: Path) -> None:
    """Numba unpickles what lies in its folder: planted by another user, it is not read, and the
    answer is right. The same file of this user's own is read, so the trap works.
    """
    kernels, mark = tmp_path / "kernels", tmp_path / "mark"
    run(COUNTED, kernels)
    indices = [*kernels.glob("fast_*/*_and_count-*.nbi")]
    assert 1 == len(indices)
    indices[0].write_bytes(pickle.dumps(Planted(mark)))
    own = [kernels, *kernels.rglob("*")]
    for path in own:
        os.chown(path, OTHER, OTHER)
    answer = run(COUNTED, kernels)
    assert "9\n" == answer.stdout
    assert "another user may write in" in answer.stderr
    assert not mark.exists()
    for path in own:
        os.chown(path, 0, 0)
    run(COUNTED, kernels)
    assert mark.exists()


@AS_ROOT
@pytest.mark.slow
def test_another_user_computes_without_a_folder(tmp_path: Path) -> None:
    """A process of a user who can write no folder of kernels answers all the same."""
    answer = run(AS_OTHER, tmp_path / "none")
    assert "9\n" == answer.stdout, answer.stderr
    assert "no folder can be written" in answer.stderr
