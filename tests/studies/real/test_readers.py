"""Readers of foreign formats find the values that are in a file, and name what is wrong with it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import numpy as np
import pytest

from studies.real.errors import InvalidFile
from studies.real.readers.keras import read_keras
from studies.real.readers.ncnn import read_ncnn
from studies.real.readers.onnx import read_onnx
from studies.real.readers.raw import read_layer, read_raw
from studies.real.readers.tfjs import read_tfjs
from tests.studies.real import small_files as small

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
BIASES = np.array([0.5, -1, 2], np.float32)


def test_onnx_gives_initialisers_and_constants_of_nested_graphs() -> None:
    """Weights are initialisers or constants, in branches of branches; integers are left out."""
    constant = small.node("Constant", (), ("value", 5, small.tensor("", BIASES)))
    inner = small.message((5, small.tensor("w", VALUES)), (1, constant))
    branch = small.node("If", (), ("then_branch", 6, inner))
    outer = small.node("Loop", (), ("body", 6, small.message((1, branch))))
    integers = small.tensor("steps", np.zeros(2, np.int64), kind=7)
    found = read_onnx(small.model((1, outer), (5, small.tensor("w", 2 * VALUES)), (5, integers)))
    nested = "Loop.body/If.then_branch/"
    assert ["w", f"{nested}w", f"{nested}out"] == list(found)
    np.testing.assert_array_equal(VALUES, found[f"{nested}w"])
    np.testing.assert_array_equal(2 * VALUES, found["w"])


def test_onnx_gives_the_gates_of_an_lstm_as_pytorch_has_them() -> None:
    """Input, output, forget and cell become input, forget, cell and output, in all three inputs."""
    weights = np.arange(24, dtype=np.float32).reshape(1, 8, 3)
    biases = np.arange(16, dtype=np.float32).reshape(1, 16)
    both = np.concatenate([small.gates(half) for half in np.split(biases, 2, 1)], 1)
    parts = {"W": small.gates(weights), "R": small.gates(2 * weights), "B": both}
    tensors = [(5, small.tensor(name, values)) for name, values in parts.items()]
    found = read_onnx(small.model((1, small.node("LSTM", ("x", "W", "R", "B"))), *tensors))
    np.testing.assert_array_equal(weights, found["W"])
    np.testing.assert_array_equal(2 * weights, found["R"])
    np.testing.assert_array_equal(biases, found["B"])


def test_onnx_gives_values_that_are_listed_and_other_precisions() -> None:
    """Values may be a list of numbers, or of another precision."""
    listed = small.message((1, 2), (2, 1), (8, b"list"), (4, struct.pack("<2f", 1, 2)))
    half = small.tensor("half", np.array([1.5], np.float16).view(np.uint16), kind=10)
    found = read_onnx(small.model((5, listed), (5, half)))
    assert [1.0, 2.0] == found["list"].tolist()
    assert [1.5] == found["half"].tolist()


def test_keras_gives_datasets_by_path() -> None:
    """Names, shapes and values are those that were written."""
    found = read_keras(small.keras({"kernel:0": VALUES, "bias:0": BIASES}))
    assert ["bias:0", "kernel:0"] == sorted(found)
    np.testing.assert_array_equal(VALUES, found["kernel:0"])
    np.testing.assert_array_equal(BIASES, found["bias:0"])


def test_ncnn_gives_the_weights_of_each_layer() -> None:
    """Half precision, padding, biases and slopes are read in the order of the layers."""
    found = read_ncnn(*small.ncnn(VALUES[:, :3].copy(), BIASES))
    expected = ["000.Convolution.weight", "000.Convolution.bias", "001.PReLU.slope"]
    assert [*expected, "002.InnerProduct.weight"] == list(found)
    np.testing.assert_array_equal(VALUES[:, :3], found["000.Convolution.weight"])
    np.testing.assert_array_equal(BIASES, found["001.PReLU.slope"])


def test_tfjs_gives_weights_over_several_files() -> None:
    """A weight may lie in two files, and what was made small is restored; integers are left out."""
    found = read_tfjs(*small.tfjs(VALUES))
    np.testing.assert_array_equal(VALUES, found["first/kernel"])
    assert [-1, -0.5, 0, 1] == found["second/kernel"].tolist()
    assert 2 == len(found)


def test_raw_layers_have_a_row_for_each_bias() -> None:
    """The shape of raw weights follows from the number of biases."""
    weight, bias = read_layer(VALUES.tobytes(), BIASES.tobytes())
    np.testing.assert_array_equal(VALUES, weight)
    np.testing.assert_array_equal(BIASES, bias)


def _deep_onnx() -> bytes:
    graph = small.message((5, small.tensor("w", BIASES)))
    for _ in range(40):
        graph = small.message((1, small.node("If", (), ("then_branch", 6, graph))))
    return small.message((7, graph))


def _circular_keras() -> bytes:
    data = bytearray(small.keras({"a": BIASES}))
    at = data.index(b"SNOD") + 8 + 8
    data[at : at + 8] = data[64:72]  # the dataset is the root group
    return bytes(data)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: read_onnx(b"\x89HDF"), "wire type|truncated|not an ONNX"),
        (lambda: read_onnx(b""), "not an ONNX model"),
        (lambda: read_onnx(_deep_onnx()), "nested more than"),
        (lambda: read_onnx(small.model((5, small.tensor("w", VALUES)))[:-9]), "truncated"),
        (
            lambda: read_onnx(small.model((5, small.message((1, 1), (2, 1), (14, 1))))),
            "in another file",
        ),
        (lambda: read_keras(b"PK\x03\x04" * 20), "not those of HDF5"),
        (lambda: read_keras(small.keras({"a": VALUES})[:200]), "truncated"),
        (lambda: read_keras(_circular_keras()), "two links lead to"),
        (lambda: read_keras(small.keras({})), "no dataset"),
        (lambda: read_ncnn(b"PK\x03\x04", b""), "first line"),
        (lambda: read_ncnn(small.ncnn(VALUES, BIASES)[0], b"\0" * 40), "truncated"),
        (lambda: read_ncnn(b"7767517\n1 1\nLSTM a 1 1 a b 0=3\n", b""), "LSTM are not read"),
        (lambda: read_ncnn(b"7767517\n1 1\nPReLU a 1 1 a b zero=3\n", b""), "not an option"),
        (lambda: read_ncnn(b"7767517\n1 1\nInput a 0 1 a\n", b"more"), "belong to no layer"),
        (lambda: read_tfjs(b"{}", {}), "not a model of TensorFlow.js"),
        (lambda: read_tfjs(b"<html>", {}), "not JSON"),
        (lambda: read_tfjs(small.tfjs(VALUES)[0], {"a.bin": b""}), "b.bin"),
        (lambda: read_tfjs(small.tfjs(VALUES)[0], {"a.bin": b"", "b.bin": b""}), "truncated"),
        (lambda: read_raw(b"123"), "not a whole number"),
        (lambda: read_raw(b""), "empty"),
        (lambda: read_layer(VALUES.tobytes()[4:], BIASES.tobytes()), "values for the shape"),
    ],
)
def test_a_file_that_is_not_one_says_why(read: Callable[[], object], words: str) -> None:
    """Truncated, foreign, circular and bottomless files are errors that say what is wrong."""
    with pytest.raises(InvalidFile, match=words):
        read()


def test_a_file_is_read_once_for_each_path() -> None:
    """A model that names one file a thousand times does not become a thousand times its size."""
    model, files = small.tfjs(VALUES)
    read = json.loads(model)
    read["weightsManifest"][0]["paths"] = ["a.bin"] * 1000
    with pytest.raises(InvalidFile, match=r"a\.bin"):
        read_tfjs(json.dumps(read).encode(), files)
