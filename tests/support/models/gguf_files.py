"""GGUF files for tests: written by the package ``gguf``, from weights as llama.cpp writes them.

The forms are those of llama.cpp's converters (``conversion/llama.py`` and others), in numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.support.models.k_quants import q4_k, q6_k

__all__ = [
    "LLAMA_SHAPES",
    "as_llama_cpp",
    "gguf_headers",
    "interleaved",
    "llama",
    "llama_metadata",
    "quantised",
    "split_name",
    "write_blocks",
    "write_gguf",
]

Tensors = Mapping[str, npt.NDArray[Any]]

_BLOCKS = {"Q4_K": q4_k, "Q6_K": q6_k}
"""The types that the package reads and does not write."""
HEADS, KEY_HEADS, WIDTH, HIDDEN, VOCABULARY = 4, 2, 256, 512, 96
LLAMA_SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (VOCABULARY, WIDTH),
    "model.norm.weight": (WIDTH,),
    "lm_head.weight": (VOCABULARY, WIDTH),
    **{
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(2)
        for name, shape in {
            "input_layernorm": (WIDTH,),
            "post_attention_layernorm": (WIDTH,),
            "self_attn.q_proj": (WIDTH, WIDTH),
            "self_attn.k_proj": (WIDTH // 2, WIDTH),
            "self_attn.v_proj": (WIDTH // 2, WIDTH),
            "self_attn.o_proj": (WIDTH, WIDTH),
            "mlp.gate_proj": (HIDDEN, WIDTH),
            "mlp.up_proj": (HIDDEN, WIDTH),
            "mlp.down_proj": (WIDTH, HIDDEN),
        }.items()
    },
}


def llama(seed: int, dtype: str = "f4") -> dict[str, npt.NDArray[Any]]:
    """A small LLaMA under the names of Hugging Face, of 1.1 million weights."""
    draw = np.random.default_rng(seed)
    return {
        name: draw.normal(scale=0.02, size=shape).astype(dtype)
        for name, shape in LLAMA_SHAPES.items()
    }


def llama_metadata(architecture: str = "llama") -> dict[str, Any]:
    """What a header says of such a model."""
    return {
        f"{architecture}.block_count": 2,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KEY_HEADS,
        "tokenizer.ggml.tokens": [f"token{i}" for i in range(VOCABULARY)],
        "tokenizer.ggml.scores": [float(i) for i in range(VOCABULARY)],
        "tokenizer.ggml.merges": ["a b"] * 40,
        "general.name": "a small one",
    }


def interleaved(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of q or k as llama.cpp's ``LlamaModel.permute`` orders them."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def as_llama_cpp(tensors: Tensors, architecture: str = "llama") -> dict[str, npt.NDArray[Any]]:
    """The tensors of a LLaMA under GGUF's names, in llama.cpp's order."""
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, 64)
    written = {}
    for name, values in tensors.items():
        found = re.search(r"\.(q|k)_proj\.", name)
        rotary = {"q": HEADS, "k": KEY_HEADS}[found[1]] if found else None
        ordered = values if rotary is None else interleaved(values, rotary)
        mapped = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert mapped is not None
        written[mapped] = ordered
    return written


def write_gguf(
    path: Path,
    tensors: Tensors,
    kind: str | Callable[[str, npt.NDArray[Any]], str] = "F32",
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
    tensors_a_split: int = 0,
) -> Path:
    """Write a file, or the files of a split one.

    Args:
        path: the file; the names of splits follow from it.
        tensors: by GGUF's names.
        kind: the type of all matrices, or a function that gives that of a tensor; vectors are F32.
        architecture: ``general.architecture``.
        metadata: by key; those of :func:`llama_metadata` by default.
        tensors_a_split: the most tensors of one file; 0 for one file.
    """
    path.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_a_split)
    for key, value in (llama_metadata(architecture) if metadata is None else metadata).items():
        _add(writer, key, value)
    for name, values in tensors.items():
        asked = kind(name, values) if callable(kind) else kind
        stored = asked if values.ndim > 1 or callable(kind) else "F32"
        if stored in {"I8", "I16", "I32", "I64"}:
            writer.add_tensor(name, values)
        else:
            numbered = gguf.GGMLQuantizationType[stored]
            writer.add_tensor(name, quantised(values, stored), raw_dtype=numbered)
    _finish(writer)
    return split_name(path, 1, -(-len(tensors) // tensors_a_split)) if tensors_a_split else path


def quantised(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """A matrix as GGUF stores it in a type."""
    whole = np.ascontiguousarray(values, np.float32)
    if kind in _BLOCKS:
        return _BLOCKS[kind](whole).reshape(*whole.shape[:-1], -1)
    return np.asarray(gguf.quantize(whole, gguf.GGMLQuantizationType[kind]))


def write_blocks(
    path: Path,
    rows: npt.NDArray[np.uint8],
    kind: str,
    name: str = "w.weight",
    architecture: str = "other",
) -> Path:
    """Write a matrix of any type from the bytes of its rows."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in llama_metadata(architecture).items():
        _add(writer, key, value)
    writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[kind])
    _finish(writer)
    return path


def gguf_headers() -> list[bytes]:
    """Small files: of a LLaMA, of experts, of norms that are shifted, of transposes, of a split."""
    vector, matrix = np.zeros(32, "f4"), np.zeros((32, 32), "f4")
    q = {"blk.0.attn_q.weight": matrix, "blk.0.attn_k.bias": vector, "rope_freqs.weight": vector}
    heads = {"llama.attention.head_count": [2, 2], "tokenizer.ggml.tokens": ["a", "b"]}
    files: list[tuple[str, dict[str, npt.NDArray[Any]], dict[str, Any]]] = [
        ("llama", q, heads),
        ("qwen3moe", {"blk.1.ffn_up_exps.weight": np.zeros((3, 4, 32), "f4")}, {}),
        ("gemma2", {"output_norm.weight": vector}, {"split.count": 1, "split.no": 0}),
        ("gpt2", {"blk.0.ffn_up.weight": matrix}, {"general.alignment": 64, "a.scale": 0.5}),
        ("flux", {"x.weight": matrix}, {}),
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        return [
            write_gguf(path, tensors, "Q8_0", architecture, metadata).read_bytes()
            for architecture, tensors, metadata in files
        ]


def split_name(path: Path, number: int, total: int) -> Path:
    """The name of a part of a split file."""
    return path.with_name(f"{path.stem}-{number:05d}-of-{total:05d}.gguf")


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)
