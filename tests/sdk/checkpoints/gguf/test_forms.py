"""What llama.cpp's converters change, put back: order, shape, shift, stacks, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from modelkin.checkpoints.gguf.opening import read_gguf
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.errors import InvalidCheckpoint
from tests.support.models.gguf_files import (
    as_llama_cpp,
    interleaved,
    llama,
    split_name,
    write_gguf,
)

DRAW = np.random.default_rng(5)


def drawn(*shape: int) -> npt.NDArray[Any]:
    return DRAW.normal(size=shape).astype("f4")


def values_of(*files: Path) -> dict[str, npt.NDArray[Any]]:
    """All tensors of a model, in their shapes."""
    tensors, _ = read_gguf(files)
    return {t.name: np.concatenate([s.copy() for s in flat(t)]).reshape(t.shape) for t in tensors}


def flat(tensor: StoredTensor) -> list[npt.NDArray[Any]]:
    return [stretch.copy() for stretch in tensor.stretches()] or [np.empty(0, "f4")]


def assert_same(expected: dict[str, npt.NDArray[Any]], actual: dict[str, npt.NDArray[Any]]) -> None:
    assert {n: v.shape for n, v in expected.items()} == {n: v.shape for n, v in actual.items()}
    for name, values in expected.items():
        np.testing.assert_array_equal(values, actual[name], name)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_llama_is_as_it_was(tmp_path: Path, dtype: str) -> None:
    """Names, shapes and each value are those of Hugging Face's file, with q and k in its order."""
    weights = llama(1)
    file = write_gguf(tmp_path / "m.gguf", as_llama_cpp(weights), dtype)
    kind = gguf.GGMLQuantizationType[dtype]
    expected = {
        name: values
        if values.ndim == 1
        else gguf.dequantize(gguf.quantize(values, kind), kind).reshape(values.shape)
        for name, values in weights.items()
    }
    assert_same(expected, values_of(file))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_quantised_rows_come_back_in_order(tmp_path: Path, kind: str) -> None:
    """Rows of q and k move whole, so that they have the values of the quantised original."""
    weights = llama(2)
    file = write_gguf(tmp_path / "m.gguf", as_llama_cpp(weights), kind)
    numbered = gguf.GGMLQuantizationType[kind]
    name = "model.layers.1.self_attn.k_proj.weight"
    expected = gguf.dequantize(gguf.quantize(weights[name], numbered), numbered)
    np.testing.assert_array_equal(expected, values_of(file)[name])


def test_biases_of_q_and_k_are_in_order(tmp_path: Path) -> None:
    """A vector has the order of the rows that it belongs to; one of v has none."""
    q, k, v = drawn(256), drawn(128), drawn(128)
    tensors = {
        "blk.0.attn_q.bias": interleaved(q, 4),
        "blk.0.attn_k.bias": interleaved(k, 2),
        "blk.0.attn_v.bias": v,
    }
    at = "model.layers.0.self_attn"
    expected = {f"{at}.q_proj.bias": q, f"{at}.k_proj.bias": k, f"{at}.v_proj.bias": v}
    assert_same(expected, values_of(write_gguf(tmp_path / "m.gguf", tensors)))


def test_heads_may_differ_by_layer(tmp_path: Path) -> None:
    """A header that lists the heads of each layer gives each layer its order."""
    first, second = drawn(64, 32), drawn(64, 32)
    tensors = {
        "blk.0.attn_q.weight": interleaved(first, 2),
        "blk.1.attn_q.weight": interleaved(second, 4),
    }
    metadata = {"llama.attention.head_count": [2, 4]}
    file = write_gguf(tmp_path / "m.gguf", tensors, metadata=metadata)
    at = "model.layers.{}.self_attn.q_proj.weight"
    assert_same({at.format(0): first, at.format(1): second}, values_of(file))


def test_experts_are_taken_apart(tmp_path: Path) -> None:
    """A stack of three dimensions is the experts of Hugging Face's files, one by one."""
    stack = drawn(3, 64, 32)
    tensors = {"blk.4.ffn_gate_exps.weight": stack}
    for architecture, name in (
        ("llama", "model.layers.4.block_sparse_moe.experts.{}.w1.weight"),
        ("qwen3moe", "model.layers.4.mlp.experts.{}.gate_proj.weight"),
    ):
        file = write_gguf(tmp_path / f"{architecture}.gguf", tensors, "Q8_0", architecture, {})
        kind = gguf.GGMLQuantizationType.Q8_0
        expected = {
            name.format(i): gguf.dequantize(gguf.quantize(one, kind), kind)
            for i, one in enumerate(stack)
        }
        assert_same(expected, values_of(file))


def test_norms_are_shifted_back(tmp_path: Path) -> None:
    """Gemma's converter adds 1 to the weights of norms, and to nothing else."""
    norm, other = drawn(64) / 8, drawn(64, 32)
    tensors = {"blk.0.attn_q_norm.weight": norm + 1, "blk.0.ffn_up.weight": other}
    file = write_gguf(tmp_path / "m.gguf", tensors, architecture="gemma3", metadata={})
    found = values_of(file)
    np.testing.assert_array_equal(other, found["model.layers.0.mlp.up_proj.weight"])
    shifted = found["model.layers.0.self_attn.q_norm.weight"]
    np.testing.assert_array_equal((norm + 1) - np.float32(1), shifted)


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_transposed_matrices_are_turned_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """GPT-2's linear layers have their inputs first, whatever the size of a tile."""
    monkeypatch.setattr("modelkin.checkpoints.gguf.tensors.MAX_TILE", 96 * 64)
    monkeypatch.setattr("modelkin.checkpoints.gguf.opening.MAX_TILE", 96 * 64)
    stored = drawn(96, 160)
    numbered = gguf.GGMLQuantizationType[kind]
    tensors = {"blk.0.ffn_up.weight": stored, "blk.0.ffn_up.bias": drawn(96)}
    file = write_gguf(tmp_path / "m.gguf", tensors, kind, "gpt2", {})
    expected = gguf.dequantize(gguf.quantize(stored, numbered), numbered).T
    np.testing.assert_array_equal(expected, values_of(file)["transformer.h.0.mlp.c_fc.weight"])
    tensor = next(t for t in read_gguf([file])[0] if t.size > 96)
    np.testing.assert_array_equal(expected.reshape(-1)[1000:9000], tensor.part(1000, 9000))


def test_fused_heads_are_side_by_side(tmp_path: Path) -> None:
    """GPT-NeoX has q, k and v of a head together, and GGUF those of all heads."""
    heads, width = 4, 8
    fused = drawn(heads * 3 * width, 32)
    apart = fused.reshape(heads, 3, width, 32).swapaxes(0, 1).reshape(fused.shape)
    metadata = {"gptneox.attention.head_count": heads}
    tensors = {"blk.0.attn_qkv.weight": np.ascontiguousarray(apart)}
    file = write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", "gptneox", metadata)
    kind = gguf.GGMLQuantizationType.Q8_0
    expected = gguf.dequantize(gguf.quantize(fused, kind), kind)
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    assert_same({name: expected}, values_of(file))


def test_stretches_and_parts_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the length of a stretch nor the place of a part shows in the values."""
    weights = {name: values for name, values in llama(3).items() if ".0.self_attn.k" in name}
    file = write_gguf(tmp_path / "m.gguf", as_llama_cpp(weights), "Q4_1")
    expected = values_of(file)["model.layers.0.self_attn.k_proj.weight"].reshape(-1)
    for size in (64, 100, 1000):  # shorter than a row, across blocks, across heads
        monkeypatch.setattr("modelkin.checkpoints.tensors.STRETCH_SIZE", size)
        monkeypatch.setattr("modelkin.checkpoints.gguf.tensors.STRETCH_SIZE", size)
        (tensor,) = read_gguf([file])[0]
        stretches = flat(tensor)
        assert {size} == {len(stretch) for stretch in stretches[:-1]}
        np.testing.assert_array_equal(expected, np.concatenate(stretches))
        np.testing.assert_array_equal(expected[77:2345], tensor.part(77, 2345))


def test_a_split_file_is_one_model(tmp_path: Path) -> None:
    """The parts of a split file hold what the whole one has."""
    tensors = as_llama_cpp(llama(4))
    whole = write_gguf(tmp_path / "whole.gguf", tensors, "Q8_0")
    write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", tensors_a_split=8)
    parts = [split_name(tmp_path / "m.gguf", number, 3) for number in (1, 2, 3)]
    assert_same(values_of(whole), values_of(*parts))
    for wrong in (parts[:2], parts[1:], [parts[0], parts[2], parts[1]]):
        with pytest.raises(InvalidCheckpoint, match="it says that it is part"):
            read_gguf(wrong)


def test_tables_of_positions_are_left_out(tmp_path: Path) -> None:
    """What is computed from the configuration, and not trained, is no parameter."""
    tensors = {"rope_freqs.weight": drawn(32), "output_norm.weight": drawn(64)}
    found, remarks = read_gguf([write_gguf(tmp_path / "m.gguf", tensors)])
    assert ["model.norm.weight"] == [tensor.name for tensor in found]
    assert ("tables of rotary positions are left out, such as 'rope_freqs.weight'",) == remarks


def test_unknown_architectures_keep_their_names(tmp_path: Path) -> None:
    """A file of a diffusion model, say, has the names that it came with, and says so."""
    tensors = {"double_blocks.0.img_attn.qkv.weight": drawn(64, 32)}
    found, remarks = read_gguf([write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", "flux", {})])
    assert [*tensors] == [tensor.name for tensor in found]
    assert "the architecture 'flux' are not known here" in remarks[0]


def test_forms_that_are_not_put_back_are_named(tmp_path: Path) -> None:
    """They keep GGUF's names, so that nothing is compared with something else."""
    tensors = {"blk.0.attn_k_b.weight": drawn(2, 32, 32), "output_norm.weight": drawn(64)}
    file = write_gguf(tmp_path / "m.gguf", tensors, architecture="deepseek2", metadata={})
    found, remarks = read_gguf([file])
    assert ["blk.0.attn_k_b.weight", "model.norm.weight"] == [tensor.name for tensor in found]
    assert ("1 tensor keeps the name that GGUF gives it: 'blk.0.attn_k_b.weight'",) == remarks
