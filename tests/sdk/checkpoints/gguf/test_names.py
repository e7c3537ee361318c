"""Names of Hugging Face's files for the tensors of GGUF files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gguf
import pytest

from modelkin.checkpoints.gguf.names import EXPERT, hf_name

SAVED = json.loads((Path(__file__).parent / "saved_names.json").read_text())
"""Names in the files that transformers 5.23 saves for small models of each type, of one layer."""
NOT_WRITTEN = {"bert": "pooler", "roberta": "pooler", "apertus": "act_fn"}
"""Tensors that llama.cpp leaves out, or puts into the metadata."""
LEFT = {"granitemoe": "input_linear", "falcon": "query_key_value"}
"""Tensors whose form is not put back: they keep GGUF's names."""


@pytest.mark.parametrize("model_type", SAVED)
def test_names_are_those_that_transformers_saves(model_type: str) -> None:
    """The converter's own table, asked the other way round, leads back to each name."""
    architecture, names = SAVED[model_type]["architecture"], SAVED[model_type]["names"]
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(kinds[architecture], 2)
    expected, actual = [], []
    for name in names:
        if any(
            part in name for part in (NOT_WRITTEN.get(model_type), LEFT.get(model_type)) if part
        ):
            continue
        bare = name.removeprefix("transformer.") if architecture == "bloom" else name
        stacked = re.sub(r"\.experts\.0\.", ".experts.", bare)
        stacked = stacked.replace("e_score_correction_bias", "e_score_correction.bias")
        written = table.get_name(stacked, try_suffixes=(".weight", ".bias"))
        assert written is not None, name
        expected.append(re.sub(r"\.experts\.0\.", f".experts.{EXPERT}.", bare))
        actual.append(hf_name(written, architecture))
    assert expected == actual


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("blk.0.attn_q.weight", "flux"),  # no architecture of the tables
        ("blk.0.attn_q.weight", "clip"),
        ("blk.99999999999999999999.attn_q.weight", "llama"),
        ("blk.0.attn_qkv.weight", "falcon"),
        ("blk.0.attn_k_b.weight", "deepseek2"),
        ("nothing", "llama"),
        ("", "llama"),
        ("../../etc/passwd", "llama"),
    ],
)
def test_other_tensors_have_no_name_there(name: str, architecture: str) -> None:
    """They keep the name that GGUF gives them."""
    assert hf_name(name, architecture) is None
