"""A family from its packages to its gates, through a service; and what ends without figures."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from studies.hub import Hub
from studies.real.command import measure
from studies.real.families.silero import in_one_order
from studies.real.gates import gates_of_real
from studies.real.kinship import among, chance, cosines, nearest, nearest_shared, of_family
from studies.real.results import results
from studies.real.section import claims, section
from tests.studies.real import small_files as small
from tests.support.servers.server_process import Server

_FILE = "spliceai-1.3.1-py2.py3-none-any.whl"
_SHAPE = (200, 50)


def _packages(folder: Path, kin: bool) -> Path:
    """A package of five seeds in a folder, and its manifest; seeds of kin are nearly equal."""
    random = np.random.default_rng(3)
    base = random.normal(size=_SHAPE)
    with zipfile.ZipFile(folder / _FILE, "w") as archive:
        for seed in range(1, 6):
            own = random.normal(size=_SHAPE)
            values = (base + 0.01 * own if kin else own).astype(np.float32)
            bias = np.zeros(8, np.float32)
            data = small.keras({"kernel:0": values, "bias:0": bias})
            archive.writestr(f"spliceai/models/spliceai{seed}.h5", data)
    digest = hashlib.sha256((folder / _FILE).read_bytes()).hexdigest()
    fields = {
        "family": "spliceai",
        "registry": "python",
        "name": "spliceai",
        "version": "1.3.1",
        "file": _FILE,
        "sha256": digest,
        "licence": "none",
    }
    manifest = folder / f"{digest}.toml"
    lines = (f'{name} = "{value}"' for name, value in fields.items())
    manifest.write_text("\n".join(["[[package]]", *lines]))
    return manifest


@pytest.mark.slow
def test_a_family_is_measured_through_the_service(
    tmp_path: Path, sqlite_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strangers meet their gate, kin miss it, and both are kept with their packages and date."""
    for kin in (False, True):
        manifest = _packages(tmp_path, kin)
        status = measure(
            ["spliceai"],
            tmp_path,
            tmp_path,
            manifest=manifest,
            hub=lambda: Hub(sqlite_server.url),
        )
        (found,) = results(tmp_path)
        assert int(kin) == status
        kappa = found.figures["five seeds, K = 10%"]["kappa, greatest"]
        assert (kappa > 0.9) == kin
        assert ("MISSED" in capsys.readouterr().out) == kin
        assert [not kin] == [gate.met for gate in gates_of_real([found])]
    assert _FILE == found.packages[0].file
    page = "\n".join(section([found]))
    assert f"## spliceai, measured on {found.date}" in page
    assert "| spliceai | 1.3.1 | none | spliceai |" in page
    assert "five seeds of SpliceAI have cosines of" in next(claims([found]))


@pytest.mark.slow
def test_a_package_that_cannot_be_had_leaves_the_last_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed file and no registry end with 3, and say which package and whose figures stay."""
    manifest = _packages(tmp_path, kin=False)

    def attempt() -> int:
        def started() -> Hub:
            pytest.fail("a service was started")

        return measure(["spliceai"], tmp_path, tmp_path, manifest=manifest, hub=started)

    (tmp_path / _FILE).write_bytes(b"changed")
    assert 3 == attempt()
    said = capsys.readouterr().err
    assert f"spliceai 1.3.1: {tmp_path / _FILE} has changed" in said
    assert "the page has no figures of it" in said
    result = Path(__file__).parents[3] / "docs" / "studies" / "real" / "spliceai.json"
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "spliceai.json").write_text(result.read_text())
    (tmp_path / _FILE).unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert 3 == attempt()
    said = capsys.readouterr().err
    assert "spliceai 1.3.1: the python registry does not give it" in said
    assert f"the page keeps its figures of {results(tmp_path)[0].date}" in said


def test_a_result_that_is_not_one_is_named(tmp_path: Path) -> None:
    """A damaged file is an error that says which to delete."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "chgnet.json").write_text("{}")
    with pytest.raises(ValueError, match=r"chgnet\.json is not a result .* delete it"):
        results(tmp_path)


def test_parents_and_families_are_counted_with_ties() -> None:
    """A parent that others equal is nearest, counts its share, and is not alone in a family."""
    similarity = np.array([[1, 0.5, 0.5, 0], [0.5, 1, 0.1, 0], [0.5, 0.1, 1, 0.2], [0, 0, 0.2, 1]])
    assert 1 == nearest(similarity, [(0, 1), (3, 0)])
    assert 0.5 == nearest_shared(similarity, [(0, 1), (3, 0)])
    assert 2 == of_family(similarity, ["a", "a", "b", "b"])
    assert [(0, 1), (2, 3)] == among(["a", "a", "b", "b"], related=True)
    assert 4 == len(among(["a", "a", "b", "b"], related=False))


def test_chance_follows_from_s_and_kappa() -> None:
    """The S that counts by tensor alone give is (S - kappa) / (1 - kappa)."""
    np.testing.assert_allclose([0.4, 0.25], chance(np.array([0.7, 0.25]), np.array([0.5, 0.0])))


def test_cosines_of_siblings_differ_in_the_last_digits() -> None:
    """Rows of float32 are compared in float64, so that ties are no more than equal rows."""
    rows = np.ones((3, 10_000), np.float32)
    rows[1, 0] += np.float32(1e-3)
    rows[2, 0] += np.float32(2e-3)
    found = cosines(rows)
    assert found[0, 0] > found[0, 1] > found[0, 2]


def test_files_of_silero_have_one_order() -> None:
    """Layers that count from 1, and biases in one row, become what the other formats have."""
    shapes = {
        "stft_conv.weight": (258, 1, 256),
        **{f"conv{n}.bias": (size,) for n, size in enumerate((128, 64, 64, 128), 1)},
        "conv1.weight": (128, 129, 3),
        "conv2.weight": (64, 128, 3),
        "conv3.weight": (64, 64, 3),
        "conv4.weight": (128, 64, 3),
        "final_conv.weight": (1, 128, 1),
    }
    random = np.random.default_rng(0)
    whole = {name: random.random(shape, np.float32) for name, shape in shapes.items()}
    recurrent = random.random((2, 512, 128), np.float32)
    biases = random.random((2, 512), np.float32)
    cell = {"weight_ih": recurrent[0], "weight_hh": recurrent[1]}
    cell |= {"bias_ih": biases[0], "bias_hh": biases[1]}
    joined = {"onnx::LSTM_209": recurrent[:1], "onnx::LSTM_210": recurrent[1:]}
    joined |= {"onnx::LSTM_211": biases.reshape(1, 1024), "else_branch/conv1.weight": biases}
    one = in_one_order({**whole, **{f"lstm_cell.{name}": t for name, t in cell.items()}})
    other = in_one_order({**whole, **joined})
    assert list(one) == list(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    np.testing.assert_array_equal(whole["conv1.bias"], one["conv0.bias"])
