"""The rounds that are measured are the protocol's, and what stands beside them is what it says."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.io import savemat

from benchmarks.__main__ import main
from benchmarks.eris import data
from benchmarks.eris.baselines import QDPSGD, Ako, Alone, Shatter, noised, pruned
from benchmarks.eris.exactness import Parties, fedavg32
from benchmarks.eris.rounds import Rounds
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Round
from tests.studies.small_files import idx

Floats = npt.NDArray[np.float32]

N, M = 5, 203


def updates(number: int) -> Floats:
    return np.random.default_rng(number).standard_normal((N, M)).astype(np.float32)


@pytest.mark.parametrize(("one_in", "masks"), [(1, "one"), (4, "one"), (4, "own")])
def test_fast_rounds_have_the_bits_of_the_protocol(one_in: int, masks: str) -> None:
    """Six rounds with absent members and lost shards give what sealed cells give, bit for bit."""
    plan = Plan(
        num_parameters=M, shards=3, conceal=False, one_in=one_in, masks=masks, min_members=2
    )
    parties = Parties(N, plan)
    fast = Rounds(parties.roster)
    for number in range(1, 7):
        weights = {place: 10.0 + place for place in range(N) if (place + number) % 4}
        current = Round(number, weights, roster_total=sum(10.0 + place for place in range(N)))
        lost = (number % 3,) if number > 2 else ()
        expected = parties.mean(updates(number), current, lost)
        assert np.array_equal(expected, fast.mean(updates(number), current, lost))


def test_without_receipts_shifts_part_from_their_sum() -> None:
    """With receipts ``s`` is the mean of the members' shifts; without, a lost shard parts them."""
    plan = Plan(num_parameters=M, shards=3, conceal=False, one_in=4, masks="own")
    apart = []
    for receipts in (True, False):
        fast = Rounds(Parties(N, plan).roster, receipts=receipts)
        for number in range(1, 7):
            fast.mean(updates(number), Round(number, dict.fromkeys(range(N), 1.0)), lost=(1,))
        apart.append(float(np.abs(fast.shift - fast.member_shifts.mean(axis=0)).max()))
    assert apart[0] < 1e-6 < 1e-2 < apart[1]


def test_fedavg_in_float32_is_a_weighted_mean() -> None:
    """It follows the weights, in arithmetic of its own."""
    weights = {place: 1.0 + place for place in range(N)}
    exact = np.average(updates(0).astype(np.float64), axis=0, weights=list(weights.values()))
    assert np.abs(fedavg32(updates(0), weights) - exact).max() < 1e-6


def test_noise_is_of_clipped_updates() -> None:
    """Without noise no update is longer than the clipping norm; with noise they differ by it."""
    local = lambda _: torch.from_numpy(updates(0))  # noqa: E731
    weights = torch.zeros(M)
    clipped = noised(local, 1.0, 0.0, 0)(weights).numpy()
    assert np.linalg.norm(clipped, axis=1) == pytest.approx(np.ones(N), rel=1e-5)
    noise = noised(local, 1.0, 0.5, 0)(weights).numpy() - clipped
    assert noise.std() == pytest.approx(0.5, rel=0.1)


def test_pruning_withholds_the_largest_values() -> None:
    """A tenth of each row is zero, and no value that is left exceeds one that went."""
    left = pruned(lambda _: torch.from_numpy(updates(0)), 0.1)(torch.zeros(M)).numpy()
    for row, before in zip(left, updates(0), strict=True):
        gone = row == 0
        assert gone.sum() == pytest.approx(M / 10, abs=1)
        assert np.abs(before[gone]).min() >= np.abs(row).max()


def test_mixing_keeps_the_mean_of_models() -> None:
    """Shatter mixes within chunks; Ako delivers each part of an update to all others in time."""
    rng, models = np.random.default_rng(0), updates(0)
    assert np.array_equal(models, Alone()(models, models, 0, rng))
    spread = Shatter(chunks=4, degree=4)(models, models, 0, rng)
    assert spread == pytest.approx(np.tile(models.mean(axis=0), (N, 1)), abs=1e-5)
    ako, zeros = Ako(parts=5), np.zeros_like(models)
    delivered = ako(models, zeros, 0, rng)
    for number in range(1, 5):
        delivered = delivered + ako(zeros, zeros, number, rng)
    assert delivered == pytest.approx(np.tile(models.mean(axis=0), (N, 1)), abs=1e-5)


def test_quantized_models_are_drawn_to_their_mean() -> None:
    """Over many draws a step without gradients moves a model half-way to the mean of all."""
    rng, models = np.random.default_rng(0), updates(0)
    mean = np.mean([QDPSGD()(models, models, 0, rng) for _ in range(400)], axis=0)
    wanted = 0.5 * models + 0.5 * models.mean(axis=0)
    assert np.abs(mean - wanted).max() < 0.06


def test_clients_share_no_sample_with_each_other_or_the_test() -> None:
    """Every sample is dealt once at most, and all clients have as many."""
    digits = data.digits()
    marked = data.Dataset("marked", torch.arange(1797.0).view(-1, 1, 1, 1), digits.labels)
    clients = data.split(marked, 20, 0.3, 1)
    dealt = torch.cat([clients.inputs.flatten(), clients.test_inputs.flatten()])
    assert len(dealt) == len(dealt.unique()) > 1700
    assert (20, 69) == clients.labels.shape


def test_published_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST's idx files, CIFAR-10's binary batches and IMDB's texts are found where they lie."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 28, 28)).astype(np.uint8)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(6, dtype=np.uint8)))
    fashion = tmp_path / "FashionMNIST" / "raw"
    fashion.mkdir(parents=True)
    (fashion / "train-images-idx3-ubyte").write_bytes(idx(pixels))
    (fashion / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(4, 10, dtype=np.uint8)))
    rows = rng.integers(0, 10, (4, 3073)).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(rows.tobytes())
    fine = rng.integers(0, 20, (5, 3074)).astype(np.uint8)
    (tmp_path / "train.bin").write_bytes(fine.tobytes())
    houses = rng.integers(0, 256, (32, 32, 3, 4)).astype(np.uint8)
    numbers = np.array([[1], [10], [2], [3]], np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": houses, "y": numbers})
    for place, kind in enumerate(("neg", "pos")):
        folder = tmp_path / "aclImdb" / "train" / kind
        folder.mkdir(parents=True)
        (folder / "0_1.txt").write_text("good " * (1 + place))
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    found = {each.name: each for each in data.given()}
    assert [*data.NAMES] == list(found)
    assert {*range(4, 10)} == {*found["Fashion-MNIST"].labels.tolist()}
    first = found["MNIST"].labels.tolist().index(2)
    assert found["MNIST"].inputs[first, 0].numpy() == pytest.approx(pixels[2] / 255)
    assert (4, 3, 32, 32) == found["CIFAR-10"].inputs.shape
    assert sorted(rows[:, 0].tolist()) == sorted(found["CIFAR-10"].labels.tolist())
    assert sorted(fine[:, 1].tolist()) == sorted(found["CIFAR-100"].labels.tolist())
    assert {0, 1, 2, 3} == set(found["SVHN"].labels.tolist())
    zero = found["SVHN"].labels.tolist().index(0)
    seen = found["SVHN"].inputs[zero, 2, 5, 7]
    assert float(seen) == pytest.approx(houses[5, 7, 2, 1] / 255)
    assert {0, 1} == set(found["IMDB"].labels.tolist())
    assert 1.0 == float(found["IMDB"].inputs.max())


def test_nothing_is_read_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable there is no other data."""
    monkeypatch.delenv(data.FOLDER, raising=False)
    assert [] == list(data.given())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("", b"", "has no files of MNIST"),
        ("train-images-idx3-ubyte", idx(np.zeros((2, 4, 4), np.uint8)), "no file train-labels"),
        ("train-images-idx3-ubyte", b"PK", "not an IDX file"),
        ("data_batch_1.bin", bytes(3072), "truncated"),
        ("train.bin", b"\x14" + bytes(3073), "the label 20 in row 0"),
        ("train_32x32.mat", b"no MATLAB file", "not SVHN's file"),
    ],
)
def test_wrong_folders_end_a_command(
    name: str, content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A folder that is missing, without data or with damaged files is named before a start."""
    monkeypatch.setenv(data.FOLDER, "")
    (tmp_path / "train-labels-idx1-ubyte.txt").touch()
    if name:
        (tmp_path / name).write_bytes(content)
        if b"PK" == content:
            (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(2, np.uint8)))
    with pytest.raises(SystemExit) as ended:
        main(["eris", "methods", "--data-dir", str(tmp_path)])
    assert 2 == ended.value.code
    error = capsys.readouterr().err
    assert said in error
    assert str(tmp_path) in error


def test_a_missing_folder_and_missing_data_end_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is not there is named; so is the option, where a subject needs data."""
    monkeypatch.setenv(data.FOLDER, "")
    for arguments, said in (
        (["eris", "methods", "--data-dir", str(tmp_path / "none")], "none is not a folder"),
        (["eris", "published"], "name --data-dir"),
        (["eris", "letters"], "no subject eris-letters"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert 2 == ended.value.code
        assert said in capsys.readouterr().err
