"""The values of each type of GGUF, read in stretches."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from modelkin.checkpoints import open_checkpoint
from tests.support.models.gguf_files import write_blocks, write_gguf
from tests.support.models.k_quants import q4_k, q6_k

READ = [
    *("F32", "F16", "BF16", "F64", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
]


def test_all_types_that_the_package_reads_are_read() -> None:
    """None of them is left out of this list, but for integers."""
    zeros = {
        kind: np.zeros((1, size), np.uint8) for kind, (_, size) in gguf.GGML_QUANT_SIZES.items()
    }
    found = {"F64"}
    for kind, block in zeros.items():
        try:
            gguf.dequantize(block, kind)
        except NotImplementedError:
            continue
        found.add(kind.name)
    assert set(READ) == found


@pytest.mark.parametrize("name", READ)
def test_values_are_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever the type, each value is what the package makes of its block, in any stretch."""
    monkeypatch.setattr("modelkin.checkpoints.gguf.tensors.STRETCH_SIZE", 1024)
    monkeypatch.setattr("modelkin.checkpoints.tensors.STRETCH_SIZE", 1024)
    kind = gguf.GGMLQuantizationType[name]
    size, length = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(3).integers(1, 60, (9 * 256 // size, length), np.uint8)
    path = write_blocks(tmp_path / "m.gguf", blocks.reshape(3, -1), name)
    if name == "F64":
        expected = blocks.view("<f8").reshape(-1)
    else:
        expected = gguf.dequantize(blocks.reshape(1, -1), kind).reshape(-1)
    (tensor,) = open_checkpoint(path).tensors
    stretches = np.concatenate([stretch.copy() for stretch in tensor.stretches()])
    np.testing.assert_array_equal(expected, stretches)
    np.testing.assert_array_equal(expected[300:1900], tensor.part(300, 1900))


def test_blocks_of_tests_are_near_their_values() -> None:
    """What the tests and studies write as Q4_K and Q6_K is a fair copy."""
    values = np.random.default_rng(1).normal(size=(40, 256))
    for made, name, error in ((q4_k(values), "Q4_K", 0.1), (q6_k(values), "Q6_K", 0.025)):
        read = gguf.dequantize(made, gguf.GGMLQuantizationType[name])
        assert np.std(read - values) < error


def test_integers_are_no_parameters(tmp_path: Path) -> None:
    """They are skipped, as those of safetensors are, and said to be."""
    tensors = {"a": np.ones((8, 32), "f4"), "b": np.arange(8, dtype="i4")}
    kinds = {"a": "Q8_0", "b": "I32"}
    path = write_gguf(tmp_path / "m.gguf", tensors, lambda name, _: kinds[name], "other", {})
    checkpoint = open_checkpoint(path)
    assert (["a"], ["b"]) == (
        [tensor.name for tensor in checkpoint.tensors],
        [tensor.name for tensor in checkpoint.skipped],
    )
    assert {"Q8_0": 256} == checkpoint.dtypes
