"""Data sets that come as files: read as written, and refused where they are not what they say."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.__main__ import main
from studies.federations import Federation
from studies.loaders.cifar import cifar10, cifar100, read_rows
from studies.loaders.folder import DataError, read
from studies.loaders.idx import fashion_mnist, read_idx
from studies.loaders.newsgroups import newsgroups, read_words, token_ids, word_vector
from studies.settings import FILES, Setting
from tests.studies.small_files import PER_CLASS, idx, write
from tests.support.repetitions import repetitions

MUTANTS = repetitions(10_000)
READERS: dict[str, Callable[[Path], Any]] = {
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "newsgroups": lambda folder: newsgroups(folder, word_vector),
}


@pytest.fixture(scope="module", params=FILES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """A small data set of each kind."""
    folder = tmp_path_factory.mktemp(request.param)
    write(request.param, folder)
    return Setting(request.param, "mlp", clients=20, data_dir=folder)


@pytest.mark.parametrize("split", ["Dir(0.3)", "Patho(20%)"])
def test_files_become_clients(written: Setting, split: str) -> None:
    """Each data set is dealt as digits are, and its clients have an importance."""
    found = Federation.of(Setting(written.data, "mlp", split, 20, data_dir=written.data_dir))
    assert (20, 100 if written.data == "cifar100" else 10) == found.mixes.shape
    assert found.labels.shape == found.samples.shape[:2]
    assert found.samples.shape[1] >= 10
    assert (found.importance_of(found.samples[0], found.labels[0]) > 0).any()


@pytest.mark.parametrize("scenario", ["labels", "permuted labels"])
def test_files_become_planted_groups(written: Setting, scenario: str) -> None:
    """Groups by labels have no label in common; concepts have all labels."""
    setting = Setting(written.data, "mlp", scenario, 4, data_dir=written.data_dir)
    found = Federation.planted(setting)
    own = [set(found.labels[found.groups == group].unique().tolist()) for group in range(4)]
    assert bool(own[0] & own[1]) == (scenario == "permuted labels")


def test_images_are_those_of_the_files(tmp_path: Path) -> None:
    """Pixels come as they were written, training's before the test's, plain or packed."""
    write("fashion-mnist", tmp_path)
    images, labels = fashion_mnist(tmp_path)
    assert (10 * PER_CLASS, 1, 8, 8) == images.shape
    raw = (tmp_path / "train-images-idx3-ubyte").read_bytes()[16:]
    assert images[: len(raw) // 64].tobytes() == raw
    assert labels[:12].tolist() == [*range(10), 0, 1]


def test_rows_have_channels_first(tmp_path: Path) -> None:
    """CIFAR's row is its label, then red, green and blue; of two labels the fine one counts."""
    row = bytes([3, 42]) + bytes([1] * 1024) + bytes([2] * 1024) + bytes([3] * 1024)
    images, labels = read_rows(io.BytesIO(row), "x.bin", (20, 100))
    assert [42] == labels.tolist()
    assert [1, 2, 3] == images[0, :, 5, 7].tolist()


def test_words_are_those_of_the_body() -> None:
    """Headers are left out, capitals are small letters, and single letters are not words."""
    text = b"From: a reader\r\nNewsgroups: sci.space\r\n\r\nThe ORBIT's 2 moons: a moon\n"
    words = read_words(io.BytesIO(text), "1")
    assert [b"the", b"orbit", b"moons", b"moon"] == words
    vector = word_vector([*words, b"moon"])
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert sorted(vector[vector > 0])[-1] == pytest.approx(
        np.log(3) / np.log(2) * min(vector[vector > 0])
    )
    ids = token_ids(words, 8, 1_000)
    assert ids.tolist()[:1] + ids.tolist()[5:] == [1, 0, 0, 0]
    assert ((ids[1:5] >= 2) & (ids[1:5] < 1_000)).all()
    assert token_ids(words, 3, 1_000).tolist() == ids[:3].tolist()


def damaged(data: str, folder: Path, name: str, change: Callable[[bytes], bytes]) -> str:
    """What the reader says of a folder with one file changed."""
    write(data, folder)
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError) as refused:
        READERS[data](folder)
    return str(refused.value)


@pytest.mark.parametrize(
    ("data", "name", "change", "said"),
    [
        ("fashion-mnist", "train-images-idx3-ubyte", lambda b: b[:-1], "truncated"),
        ("fashion-mnist", "train-images-idx3-ubyte", lambda b: b"PK" + b[2:], "not an IDX file"),
        ("fashion-mnist", "t10k-images-idx3-ubyte", lambda _: b"", "not an IDX file"),
        (
            "fashion-mnist",
            "t10k-images-idx3-ubyte",
            lambda _: idx(np.zeros((50, 4, 8), np.uint8)),
            "images of 4 x 8",
        ),
        (
            "fashion-mnist",
            "t10k-images-idx3-ubyte",
            lambda _: idx(np.zeros((50, 4, 4), np.uint8)),
            "different sizes",
        ),
        ("fashion-mnist", "t10k-labels-idx1-ubyte.gz", lambda b: b[:-9], "is damaged"),
        (
            "fashion-mnist",
            "t10k-labels-idx1-ubyte.gz",
            lambda _: idx(np.zeros(49, np.uint8)),
            "49 labels",
        ),
        (
            "fashion-mnist",
            "t10k-labels-idx1-ubyte.gz",
            lambda _: idx(np.full(50, 10, np.uint8)),
            "labels are 0 to 9",
        ),
        ("cifar10", "cifar-10-batches-bin/test_batch.bin", lambda b: b[:-1], "truncated"),
        ("cifar10", "cifar-10-batches-bin/test_batch.bin", lambda _: b"", "0 bytes"),
        ("cifar100", "train.bin", lambda b: b"\x63" + b[1:], "the label 99 in row 0"),
        ("newsgroups", "20news-bydate-test/group.3/1", lambda b: b + b"\0", "not a text"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, data: str, name: str, change: Callable[[bytes], bytes], said: str
) -> None:
    """A truncated or foreign file is an error that says which, and what is wrong."""
    message = damaged(data, tmp_path, name, change)
    assert Path(name).name in message
    assert said in message


@pytest.mark.parametrize("data", FILES)
def test_a_folder_without_the_files_says_what_it_lacks(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command ends with status 2, and names the folder and the option, before a service runs."""
    command = ["table3", "--data", data, "--network", "mlp", "--data-dir"]
    assert 2 == main([*command, str(tmp_path)])
    said = capsys.readouterr().err
    assert f"error: {tmp_path} has no f" in said
    assert "--data-dir" in said
    assert 2 == main([*command, str(tmp_path / "missing")])
    assert "missing is not a folder: give the one that has" in capsys.readouterr().err


@pytest.mark.parametrize("data", FILES)
def test_what_the_system_refuses_is_said(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that cannot be opened ends with status 2 and the system's own reason."""
    command = ["table3", "--data", data, "--network", "mlp", "--data-dir", "x" * 5_000]
    assert 2 == main(command)
    assert "cannot be read: File name too long" in capsys.readouterr().err


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    """Of files that belong together, the one that is missing is named."""
    write("cifar10", tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"no file data_batch_4\.bin"):
        cifar10(tmp_path)


def test_too_few_samples_are_an_error(written: Setting) -> None:
    """Clients without one batch of samples cannot train, which is said."""
    many = Setting(written.data, "mlp", clients=100, data_dir=written.data_dir)
    with pytest.raises(DataError, match=r"each trains in batches of 10"):
        Federation.of(many)
    with pytest.raises(DataError, match=r"too few for 100 clients"):
        Federation.planted(replace(many, split="permuted labels"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "cifar10"], "--data-dir"),
        (["--network", "bert"], "bert does not read digits"),
        (["--data", "newsgroups", "--network", "cnn"], "take mlp or bert"),
        (["--network", "resnet18", "--data", "fashion-mnist"], "resnet18 does not read"),
        (["--clients", "30"], "30"),
        (["--samples", "50"], "--samples is of data that come as files"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Networks that do not read the data, and data without a folder, end with status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["table3", *arguments])
    assert 2 == ended.value.code
    assert said in capsys.readouterr().err


def mutant(data: bytes, rng: random.Random) -> bytes:
    """The data with a few bytes changed, cut out, put in, or repeated."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            found[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            del found[at : at + rng.choice((1, 4, len(found)))]
        elif kind == 2:
            found[at:at] = rng.randbytes(rng.choice((1, 16)))
        elif kind == 3:
            found[at:at] = found[: rng.randrange(64)]
        else:
            place = 4 * rng.randrange(4)
            found[place : place + 4] = struct.pack(">I", rng.choice((0, 1, 2**31, 2**32 - 1)))
    return bytes(found)


def passed(data: bytes, reads: Callable[[io.BytesIO], Any], count: int) -> int:
    """How many mutants are read; the others are errors that name the file, and no other ones."""
    rng, refused = random.Random(count), []
    for _ in range(count):
        try:
            reads(io.BytesIO(mutant(data, rng)))
        except DataError as error:
            refused.append(str(error))
    assert all(message.startswith("tiny ") for message in refused)
    return count - len(refused)


def idx_of_mutant(file: io.BytesIO) -> None:
    found = read_idx(file, "tiny", 3)
    assert found.ndim == 3


def rows_of_mutant(file: io.BytesIO) -> None:
    images, labels = read_rows(file, "tiny", (10,))
    assert images.shape == (len(labels), 3, 32, 32)
    assert labels.max() < 10


def words_of_mutant(file: io.BytesIO) -> None:
    words = read_words(file, "tiny")
    assert np.isfinite(word_vector(words, 64)).all()
    assert token_ids(words, 16, 100).max() < 100


TINY = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)


@pytest.mark.parametrize(
    ("data", "reads"),
    [
        (idx(TINY), idx_of_mutant),
        (gzip.compress(idx(TINY), mtime=0), idx_of_mutant),
        (bytes([1]) + bytes(range(256)) * 12, rows_of_mutant),
        (b"Subject: x\n\nOrbits of moons and a rocket\n", words_of_mutant),
    ],
    ids=["IDX", "packed IDX", "CIFAR", "text"],
)
def test_mutants_are_read_or_refused(data: bytes, reads: Callable[[io.BytesIO], Any]) -> None:
    """Each mutant is read or is a DataError; some are measured to take under 4 MB."""
    reads(io.BytesIO(data))
    assert 0 < passed(data, reads, MUTANTS) < MUTANTS
    tracemalloc.start()
    try:
        passed(data, reads, MUTANTS // 20)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_unpacks_without_end_is_refused() -> None:
    """Memory does not grow with what a packed file would give."""
    packed = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than 2,000,000 bytes"):
            read(io.BytesIO(packed), "tiny", limit=2_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
