"""Pickles of PyTorch give tensors in containers. They run nothing."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.real.errors import InvalidFile
from studies.real.readers.pickles import read_pickle, tensors_at
from tests.studies.real import small_files as small

_FLOATS = b"ctorch\nFloatStorage\n"
_REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def test_tensors_and_containers_are_read() -> None:
    """Transposed and double tensors, dictionaries, lists, tuples and numbers are all there."""
    tree = read_pickle(small.pth())
    assert isinstance(tree, dict)
    assert [0.5, None, (1, 2)] == tree["rates"]
    assert 3 == tree["model"]["epoch"]
    found = tensors_at(tree, "model", "state_dict")
    np.testing.assert_array_equal(np.arange(6).reshape(2, 3).T, found["w"])
    assert [1, 1] == found["b"].tolist()


class _Command:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_asks_for_a_class_is_refused_by_name(tmp_path: Path) -> None:
    """What the pickle would call is named, and never called."""
    target = tmp_path / "was-here"
    program = pickle.dumps(_Command(target), protocol=2)
    with pytest.raises(InvalidFile, match=r"it asks for \w+\.mkdir, which is not a tensor"):
        read_pickle(small.torch_archive(program))
    assert not target.exists()
    with pytest.raises(InvalidFile, match=r"it asks for os\.system, which is not a tensor"):
        read_pickle(small.torch_archive(b"cos\nsystem\n(X\x02\x00\x00\x00lstR."))
    with pytest.raises(InvalidFile, match="the operation 0x8c, which no tensor needs"):
        read_pickle(small.torch_archive(pickle.dumps(Path, protocol=4)))


def _tensor(offset: bytes, shape: bytes, strides: bytes) -> bytes:
    """A pickle of a tensor of a storage of two numbers."""
    storage = b"(X\x07\x00\x00\x00storage" + _FLOATS + b"X\x01\x00\x00\x000NK\x02tQ"
    return _REBUILD + b"(" + storage + offset + shape + strides + b"tR."


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (_tensor(b"K\x01", b"K\x02\x85", b"K\x01\x85"), "leaves its storage"),
        (_tensor(b"K\x00", b"J\xff\xff\xff\x7f\x85", b"K\x00\x85"), "leaves its storage"),
        (_tensor(b"K\x00", b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), "not of numbers"),
        (_tensor(b"K\x00", b"K\x02\x85", b")"), "two ranks"),
        (b"}(K\x01u.", "no dictionary to set"),
        (b"](K\x01", "truncated"),
        (b"K\x01(K\x02e.", "no list to append"),
        (b"t.", "mark is missing"),
        (b"", "truncated"),
        (b"ccollections\nOrderedDict\n(K\x01tR.", r"it calls collections\.OrderedDict with 1"),
    ],
)
def test_a_damaged_pickle_says_why(program: bytes, words: str) -> None:
    """Tensors that leave their storage, and operations without their values, are errors."""
    with pytest.raises(InvalidFile, match=words):
        read_pickle(small.torch_archive(program, _0=bytes(8)))


def test_nesting_is_never_shown_in_full() -> None:
    """A tuple of itself, sixty deep, as a key is an error at once, not after its text is made."""
    deep = b"X\x01\x00\x00\x000" + b"q\x01h\x01\x86" * 60
    storage = b"(X\x07\x00\x00\x00storage" + _FLOATS + deep + b"NK\x02tQ."
    with pytest.raises(InvalidFile, match="a storage is missing"):
        read_pickle(small.torch_archive(storage))


def test_an_archive_that_is_not_one_says_so() -> None:
    """Foreign bytes, a missing pickle and a missing path are errors that say what is missing."""
    with pytest.raises(InvalidFile, match="not an archive of PyTorch"):
        read_pickle(b"not a zip")
    with pytest.raises(InvalidFile, match="not an archive of PyTorch"):
        read_pickle(small.pth()[:-30])
    with pytest.raises(InvalidFile, match="it has no optimizer/state"):
        tensors_at(read_pickle(small.pth()), "optimizer", "state")
